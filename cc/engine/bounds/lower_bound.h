// A step time that no feasible placement of a problem can beat, and why.
//
// Input is a problem; the result holds for every placement under the exact semantics of
// `simulator/simulator.h`, constraints, kernels, links, slots and memories included. Times are
// integer nanoseconds. The largest of these terms is the bound; each is proved where it is
// computed:
//
//  * "critical path through OP": `path_bound.h`. On each class of devices an op cannot start before
//    its head and the step cannot end sooner after it than its tail; the ops of a unit are on one
//    device, which works through them. The least over the unit's classes of the largest of these,
//    for the unit where that is largest. Transfers that no placement avoids are seen.
//  * "load of the unit of OP": the same, where it is the work of several ops of the unit.
//  * "load of KINDS": `load_bound.h` with the prices of `price_search.h`, the fractional load.
//  * "load of DEVICES": the same for units that are confined to these devices.
//  * "memory of KINDS forces load on KINDS": the same with prices for scarce memory.
//  * "cost of cutting the graph, or TERM": `cut_bound.h`. Units that are dear to part are on one
//    device, and then TERM binds, or one of them is parted from another. There only where it is
//    larger than all the others.
//
// A problem is proved infeasible if a unit has no device with a kernel for all its ops, the user's
// leave and room for it; if units confined to some devices have more persistent bytes than these
// have memory; or if an op cannot be linked with what it needs and what needs it on any device.

#ifndef HPLACER_ENGINE_BOUNDS_LOWER_BOUND_H_
#define HPLACER_ENGINE_BOUNDS_LOWER_BOUND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

struct LowerBound {
  struct Term {
    std::string name;
    int64_t ns;
  };
  std::vector<Term> terms;  // by falling ns; the first is the bound; empty if infeasible
  // Sentences; not empty if it is proved that no placement is feasible.
  std::vector<std::string> infeasible_because;
};

LowerBound BoundStep(const Problem& problem);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_BOUNDS_LOWER_BOUND_H_
