// The best of many rollouts, and of parts of the best one decided again.
//
//   policies x items (units, clusters, name scopes) --> chains of passes --> best
//   sweeps: some units of the best placement decided again: a part of the step, a neighbourhood,
//           the critical chain, what two devices do, or units at random
//
// A chain's later passes decide each item again, knowing where all others were last. Each device
// alone is always a candidate.
//
// Memory. What a unit costs is what it holds when a device's memory is fullest. Where not all fits
// one device, policies see how full each device would be; what overflows still is moved elsewhere,
// first the units of the least loss by the policy's own scores per byte.
//
// The result depends on the problem, the seed, the policies and the number of evaluations, not on
// time or threads. An evaluation is a placement made and scored.

#ifndef HPLACER_ENGINE_ROLLOUT_ROLLOUT_SEARCH_H_
#define HPLACER_ENGINE_ROLLOUT_ROLLOUT_SEARCH_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/rollout/placement_policy.h"
#include "engine/search/local_search.h"

namespace hplacer {

// What is decided together: units, clusters of them (16, 6 or 2 a device, 1,000 at most), scopes.
enum class ItemKind : int32_t {
  kUnits,
  kSmallClusters,
  kClusters,
  kLargeClusters,
  kScopes,
  kNumKinds,
};

inline constexpr const char* kItemKindNames[] = {"units", "small_clusters", "clusters",
                                                 "large_clusters", "scopes"};

struct RolloutChain {
  int32_t policy = 0;  // of the options
  ItemKind items = ItemKind::kUnits;
};

struct RolloutOptions {
  uint64_t seed = 0;
  int threads = 1;
  SearchLimits limits;
  // A label from 0 per unit, or empty. Units of one scope must have the same candidates.
  std::vector<int32_t> scope;
  std::vector<PlacementPolicy> policies;  // at least one
  std::vector<RolloutChain> chains;       // in this order; at least one
  int32_t passes = 3;                     // of each chain
  bool sweeps = true;                     // by the policies and the items of the chains
};

// Throws InfeasibleError if a unit has no candidate, ProblemError for a malformed scope. The result
// may lack memory or links if no placement was found that does not. `is_optimal` is never set.
SearchResult RolloutSearch(const Problem& problem, const RolloutOptions& options);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_ROLLOUT_ROLLOUT_SEARCH_H_
