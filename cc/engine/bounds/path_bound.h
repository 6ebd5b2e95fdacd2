// How early each op can start and how soon after it the step can end, on each class of devices.
//
// Inputs are a problem and its device classes. For every feasible placement, if op i is on a device
// of class c, then  start(i) >= Head(i, c)  and  makespan - finish(i) >= Tail(i, c).
//
// Proof of the head, in topological order; the tail is the same on the reversed graph. Let i be on
// device d. An input of i from a predecessor j comes
//  * from d itself, not before j finishes: Head(j, c) + cost(j, c); or
//  * from another device, of class a: then it takes a transfer per tensor that i reads of j (a
//    signal if it reads none), which end at the earliest at Head(j, a) + cost(j, a) +
//    MinTransferNs(a, c). That is `away`, the least over a; only d is possible within one unit.
// Let S be the predecessors on d. They all run there between their heads and start(i), on `slots`
// slots, so for each h: start(i) >= h + (cost of those in S with head >= h) / slots. Which S a
// placement has is unknown; the head is the least over S of the largest of these and of `away` of
// the others. If a predecessor is in the best S, then adding those with a larger `away` to S can be
// undone or not, but any S whose others all have `away` <= x contains all with `away` > x, and
// fewer in S is never worse: only prefixes in the order of falling `away` need a look.
//
// The idea of weighing serial execution against communication at a join is that of Al-Mouhamed,
// "Lower Bound on the Number of Processors and Time for Scheduling Precedence Graphs with
// Communication Costs", IEEE TSE 16(12), 1990.

#ifndef HPLACER_ENGINE_BOUNDS_PATH_BOUND_H_
#define HPLACER_ENGINE_BOUNDS_PATH_BOUND_H_

#include <cstdint>
#include <vector>

#include "engine/bounds/device_classes.h"
#include "engine/problem/problem.h"

namespace hplacer {

struct PathBound {
  // [n * classes], kNever where no feasible placement has the op.
  std::vector<int64_t> head_ns, tail_ns;
};

PathBound BoundPaths(const Problem& problem, const DeviceClasses& classes);

// a + b, where kNever absorbs and is never reached otherwise.
inline int64_t AddNs(int64_t a, int64_t b) {
  int64_t sum;
  if (a == kNever || b == kNever) return kNever;
  return __builtin_add_overflow(a, b, &sum) ? kNever - 1 : sum;
}

inline int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace hplacer

#endif  // HPLACER_ENGINE_BOUNDS_PATH_BOUND_H_
