// Heterogeneous earliest finish time (HEFT) scheduling.
//
// Topcuoglu, Hariri and Wu, "Performance-Effective and Low-Complexity Task Scheduling for
// Heterogeneous Computing", IEEE Transactions on Parallel and Distributed Systems 2002, section 4.
// Takes ops by falling *upward rank*, the longest way to the end of the step by mean durations of
// ops and transfers, and puts each where it finishes first, in a gap between other ops if there is
// one (insertion policy).
//
// Input: a Problem. Result: one device per op, each a candidate of its unit. If memory runs out,
// the device that overflows least is taken, so that the result may be infeasible by the simulator.
//
// Where this departs from the paper:
//  * Memory and missing links come before the finish time; memory is what is live in the schedule,
//    see schedule_state.h.
//  * A colocation group is decided by its first scheduled op, with the duration and the persistent
//    memory of the whole group; a transfer within a group takes no time.
//  * Channels carry one transfer at a time.
//  * Sources are scheduled on demand: list_scheduler.h.
//
// Deterministic; ties are broken by op id. Time: about E m log n, more where gaps are many.

#ifndef HPLACER_ENGINE_SCHEDULERS_HEFT_H_
#define HPLACER_ENGINE_SCHEDULERS_HEFT_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

// Returns a device per op. Throws InfeasibleError if a unit has no candidate.
std::vector<int32_t> PlaceHeft(const Problem& problem);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SCHEDULERS_HEFT_H_
