// Makes a placement fit the memories by moving and exchanging units that hold memory.
//
// A device's peak is taken apart into the persistent bytes of its units and the rest, what its ops
// held besides at that moment. Persistent bytes are packed anew into what the rest leaves of each
// memory: moves and exchanges between an overfull device and another, each of which lessens the
// overflow. What that does to the rest is seen by simulating again, a few times over. Units of
// equal effect are taken at random, so that several seeds give several answers.

#ifndef HPLACER_ENGINE_SEARCH_MEMORY_REPAIR_H_
#define HPLACER_ENGINE_SEARCH_MEMORY_REPAIR_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/simulator/placement_scorer.h"

namespace hplacer {

// A search tries so often, each time with another seed.
inline constexpr int32_t kRepairs = 4;

// Returns the best of the given placement, which must put every unit on a candidate, and of those
// tried; their number is added to `evaluations`.
std::vector<int32_t> RepairMemory(const Problem& problem, PlacementScorer* scorer, uint64_t seed,
                                  std::vector<int32_t> placement, int32_t* evaluations);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_MEMORY_REPAIR_H_
