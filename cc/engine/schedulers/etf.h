// Memory-constrained earliest-task-first (m-ETF) and small-communication-time (m-SCT) scheduling.
//
// Jeon et al., "Baechi: Fast Device Placement of Machine Learning Graphs", SoCC 2020; ETF itself:
// Hwang et al., "Scheduling Precedence Graphs in Systems with Interprocessor Communication Times",
// SIAM J. Computing 1989; SCT: Hanen and Munier, "An Approximation Algorithm for Scheduling
// Dependent Tasks on m Processors with Small Communication Delays", ETFA 1995. Repeatedly takes the
// ready op that can start first and puts it where it can, given the devices' slots, the channels'
// transfers and the memory reserved so far.
//
// m-SCT is told one *favourite child* of some ops (from a linear program, outside the engine).
// It goes where its parent is unless it ends sooner elsewhere, and before other ops that wait
// there; and until it could have started elsewhere, others are placed as if the device were busy.
//
// Input: a Problem. Result: one device per op, each a candidate of its unit. If memory runs out,
// the device that overflows least is taken, so that the result may be infeasible by the simulator.
//
// Where this departs from the papers:
//  * Devices differ. A device is chosen by start + duration of the unit, which on equal devices
//    is the earliest start.
//  * A colocation group is decided by its first scheduled op, but with the duration and the
//    persistent memory of the whole group; its persistent bytes are reserved at that moment.
//  * Sources are scheduled on demand: list_scheduler.h.
//  * A start estimate is refreshed when its op heads a queue, kMaxRefreshes times at most; this
//    keeps the work near n log n (`ETF` proper is quadratic).
//  * Memory is what is live in the schedule: a tensor and its copies are held until the last
//    consumer of the tensor or of its aliases finishes, anywhere. Never less than simulated for
//    the same times, at most a little more.
//
// Deterministic; ties are broken by (time, op, device).

#ifndef HPLACER_ENGINE_SCHEDULERS_ETF_H_
#define HPLACER_ENGINE_SCHEDULERS_ETF_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

inline constexpr int32_t kNoFavourite = -1;

// Both return a device per op, and throw InfeasibleError if a unit has no candidate.
std::vector<int32_t> PlaceEtf(const Problem& problem);

// `favourite_child`: an op, or kNoFavourite, for each op.
std::vector<int32_t> PlaceSct(const Problem& problem, const std::vector<int32_t>& favourite_child);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SCHEDULERS_ETF_H_
