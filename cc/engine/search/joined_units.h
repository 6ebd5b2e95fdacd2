// A problem in which clusters of units move as one: a small search space with exact answers.
//
// The ops, and so every simulation, are those of the problem; the units are the clusters of
// unit_clusters.h, which do not see precedence, unlike those of a coarsening (coarsening.h).

#ifndef HPLACER_ENGINE_SEARCH_JOINED_UNITS_H_
#define HPLACER_ENGINE_SEARCH_JOINED_UNITS_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

// `unit_cluster`: a label 0..count-1 per unit. Units of one cluster must have the same candidates.
Problem JoinUnits(const Problem& problem, const std::vector<int32_t>& unit_cluster);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_JOINED_UNITS_H_
