// Memory-constrained topological placement (m-TOPO).
//
// Jeon et al., "Baechi: Fast Device Placement of Machine Learning Graphs", SoCC 2020, section 3.
// Takes ops in topological order and fills one device after the other, each up to a cap: its share
// of all memory needed plus the memory of the largest item, and no more than it has. No costs are
// looked at.
//
// Input: a Problem and the devices to fill, in order. Result: one device per op, each a candidate
// of its unit.
//
// Where this departs from the paper:
//  * What is placed is a unit, when its first op comes, with the memory of all its ops:
//    persistent memory and all outputs, kept for the whole step, and the largest temporary.
//  * Shares are in proportion to the devices' memory, which on equal devices is an equal share.
//  * A unit that may not run where the filling is goes to the first of the devices in order where
//    it may and has room, without moving the filling on; if it may run on none of them, to its
//    first candidate. If no device has room, it goes where the least is missing.
//
// Deterministic; among ready ops the one with the smallest id comes first. Time: E + n log n.

#ifndef HPLACER_ENGINE_SCHEDULERS_TOPO_H_
#define HPLACER_ENGINE_SCHEDULERS_TOPO_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

// Returns a device per op. Throws InfeasibleError if a unit has no candidate.
std::vector<int32_t> PlaceTopo(const Problem& problem, const std::vector<int32_t>& devices);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SCHEDULERS_TOPO_H_
