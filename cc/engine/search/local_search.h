// Anytime search for a fast placement: a population, each member annealed from coarse to fine.
//
//   clusterings of the units --> many starts --cycle--> member   member   member  ...
//                                                          \      /
//                     units that neither of the two has cut --cycle--> a better one
//
//   cycle:  problem --coarsen--> level 1 --> level 0 ;  anneal level 1, level 0, the problem itself
//
// Starts are the list schedulers, each device alone, and what the caller gives. Each member begins
// with other units: those of the problem, or clusters that are better kept together
// (unit_clusters.h), of which even random placements are good. A cycle coarsens the graph
// (coarsening.h), anneals on coarse levels, where a simulation is cheapest and a move is largest,
// and then the problem itself. A member's first cycle begins with the best of partitions and list
// schedules of the levels; in all later ones its units are those of the problem.
//
// A generation improves one member, mostly the best. Its coarsening keeps apart what the member or
// another one keeps apart, so that the regions in which the two differ move as a whole (Sanders and
// Schulz, "Distributed Evolutionary Graph Partitioning", ALENEX 2012; for one member, iterated
// multilevel search: Walshaw, "Multilevel Refinement for Combinatorial Optimisation Problems",
// Annals of OR 2004). Where that brings nothing for long, a new member takes the last one's place.
//
// A problem with few placements is enumerated instead, which proves the optimum.
//
// The result is never worse than any start. It depends on the problem, the seed, the starts, the
// clusterings and the number of evaluations, not on time or threads: a search ended by time is
// repeated with the number of evaluations that it reports. An evaluation is a placement made and
// scored, on any level.

#ifndef HPLACER_ENGINE_SEARCH_LOCAL_SEARCH_H_
#define HPLACER_ENGINE_SEARCH_LOCAL_SEARCH_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/search/search_clock.h"
#include "engine/simulator/placement_scorer.h"

namespace hplacer {

struct SearchOptions {
  uint64_t seed = 0;
  int threads = 1;
  SearchLimits limits;
  int64_t max_enumerated = 60'000;           // with so many placements at most, all are looked at
  std::vector<std::vector<int32_t>> starts;  // devices per op; units are put on candidates
  // Labels from 0 per unit: further clusterings whose clusters may stay together. Units of one
  // cluster must have the same candidates.
  std::vector<std::vector<int32_t>> clusterings;
};

struct SearchResult {
  std::vector<int32_t> placement;
  Score score;
  int64_t evaluations = 0;
  bool is_optimal = false;     // all placements were enumerated
  bool ended_by_time = false;  // by `seconds` or `on_progress`
};

// Throws InfeasibleError if a unit has no candidate, ProblemError for a malformed start or
// clustering. The result
// may lack memory or links if no placement was found that does not.
SearchResult LocalSearch(const Problem& problem, const SearchOptions& options);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_LOCAL_SEARCH_H_
