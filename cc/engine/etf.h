// Memory-constrained earliest-task-first list scheduling (m-ETF).
//
// Jeon et al., "Baechi: Fast Device Placement of Machine Learning Graphs", SoCC 2020; ETF itself:
// Hwang et al., "Scheduling Precedence Graphs in Systems with Interprocessor Communication Times",
// SIAM J. Computing 1989. Repeatedly takes the ready op that can start first and puts it where it
// can, given the devices' slots, the channels' transfers and the memory reserved so far.
//
// Input: a Problem. Result: one device per op, each a candidate of its unit. If memory runs out,
// the device that overflows least is taken, so that the result may be infeasible by the simulator.
//
// Where this departs from the papers:
//  * Devices differ. A device is chosen by start + duration of the unit, which on equal devices
//    is the earliest start.
//  * A colocation group is decided by its first scheduled op, but with the duration and the
//    persistent memory of the whole group; its persistent bytes are reserved at that moment.
//  * Ops at the sources (variables, constants, reads of these) say nothing about where they are
//    needed. They are scheduled on demand, with their first consumer and next to it if they may.
//  * A start estimate is refreshed when its op heads a queue, kMaxRefreshes times at most; this
//    keeps the work near n log n (`ETF` proper is quadratic).
//  * Memory is what is live in the schedule: a tensor and its copies are held until the last
//    consumer of the tensor or of its aliases finishes, anywhere. Never less than simulated for
//    the same times, at most a little more.
//
// Deterministic; ties are broken by (time, op, device).

#ifndef HPLACER_ENGINE_ETF_H_
#define HPLACER_ENGINE_ETF_H_

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "engine/problem.h"

namespace hplacer {

// No placement satisfies the constraints. The message names the op and the devices.
class InfeasibleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws InfeasibleError if a unit has no candidate.
void CheckCandidates(const Problem& problem);

// Returns a device per op. Throws InfeasibleError if a unit has no candidate.
std::vector<int32_t> PlaceEtf(const Problem& problem);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_ETF_H_
