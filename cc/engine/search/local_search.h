// Anytime search for a fast placement: operators take turns at the best one, as they have paid.
//
//   starts --> best placement --anneal--> a better one
//   many other starts --cycle--> another placement, which may be better
//
//   cycle:  problem --coarsen--> level 1 --> level 0 ;  anneal level 1, level 0, the problem itself
//
// Starts are the list schedulers, each device alone, and what the caller gives.
//
// Another start is the best of partitions and list schedules. A cycle coarsens the graph
// (coarsening.h), anneals on coarse levels, where a simulation is cheapest and a move is largest,
// and then the problem itself.
//
// An operator's turn is as likely as the step became shorter in its last turns for the work that
// they took, with a least share for each (adaptive operator selection: Fialho et al., "Analyzing
// Bandit-based Adaptive Operator Selection Mechanisms", Annals of Mathematics and AI 2010). First
// of all the best placement is likely to be annealed, as that pays on most graphs. Turns that bring
// nothing make the next ones longer.
//
// A problem with few placements is enumerated instead, which proves the optimum.
//
// The result is never worse than any start. It depends on the problem, the seed, the starts and the
// number of evaluations, not on time or threads: a search ended by time is repeated with the number
// of evaluations that it reports. An evaluation is a placement made and scored, on any level.

#ifndef HPLACER_ENGINE_SEARCH_LOCAL_SEARCH_H_
#define HPLACER_ENGINE_SEARCH_LOCAL_SEARCH_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/search/annealing.h"
#include "engine/search/search_clock.h"
#include "engine/simulator/placement_scorer.h"

namespace hplacer {

// What may be left out, to see what it gives.
struct SearchParts {
  AnnealingParts annealing;
  bool other_starts = true;
};

struct SearchOptions {
  uint64_t seed = 0;
  int threads = 1;
  SearchLimits limits;
  int64_t max_enumerated = 60'000;           // with so many placements at most, all are looked at
  std::vector<std::vector<int32_t>> starts;  // devices per op; units are put on candidates
  SearchParts parts;
};

struct SearchResult {
  std::vector<int32_t> placement;
  Score score;
  int64_t evaluations = 0;
  bool is_optimal = false;     // all placements were enumerated
  bool ended_by_time = false;  // by `seconds` or `on_progress`
  bool was_stalled = false;    // ended as little was gained any more
};

// Throws InfeasibleError if a unit has no candidate, ProblemError for a malformed start. The result
// may lack memory or links if no placement was found that does not.
SearchResult LocalSearch(const Problem& problem, const SearchOptions& options);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_LOCAL_SEARCH_H_
