// All placements of a small problem, one after the other: proves the optimum.

#ifndef HPLACER_ENGINE_SEARCH_ENUMERATION_H_
#define HPLACER_ENGINE_SEARCH_ENUMERATION_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/search/search_space.h"
#include "engine/simulator/placement_scorer.h"
#include "engine/simulator/worker_team.h"

namespace hplacer {

// The number of placements with every unit on a candidate, at most `limit` + 1.
int64_t CountPlacements(const Problem& problem, int64_t limit);

// Improves `placement` and `score` to the best placement there is, of equals the given one, then
// the first in lexicographic order of units. `take(wanted)` says how many may be scored next; none
// ends the enumeration, which then returns false.
bool EnumeratePlacements(const SearchSpace& space, WorkerTeam* team,
                         const std::function<int32_t(int32_t wanted)>& take,
                         std::vector<int32_t>* placement, Score* score);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_ENUMERATION_H_
