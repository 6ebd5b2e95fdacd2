// Clusters of units that are better kept together, from fine to coarse.
//
// Agglomeration by heavy edges (the matching rule of multilevel partitioning, Karypis and Kumar,
// "A Fast and High Quality Multilevel Scheme for Partitioning Irregular Graphs", SIAM J. Scientific
// Computing 1998), one pair at a time. Two neighbours are joined in the order of
//
//     time to transfer all that a step moves between them / work of the smaller one
//
// which is how many times the smaller one's work its separation may cost. So a weight joins the
// ops that read it in every unrolled step, and cheap ops their neighbours. While there are other
// pairs no cluster grows beyond a limit: its share of all work if each device had so many clusters.
// Clusters that exchange nothing with others are joined in topological order before that limit is
// raised: a graph with many of them would have one cluster of nearly all other units.
// Precedence is not seen, so that clusters may wait for each other; nor are control edges of
// barriers (step_graph.h).
//
// Input: a Problem, sizes, descending, and the clusters per device, at least 1. Result: for each
// size the cluster of each unit; coarser clusters are unions of finer ones. Clusters are numbered
// by the mean topological position of their ops. Only units with the same candidates are joined;
// those with a single candidate are one cluster for each device, and count. There may be more
// clusters than asked for if the candidates differ in more ways.
//
// Deterministic. Time about E log E.

#ifndef HPLACER_ENGINE_SEARCH_UNIT_CLUSTERS_H_
#define HPLACER_ENGINE_SEARCH_UNIT_CLUSTERS_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

// Returns, for each of `sizes` (falling), a cluster per unit. Throws InfeasibleError if a unit has
// no candidate.
std::vector<std::vector<int32_t>> ClusterUnits(const Problem& problem,
                                               const std::vector<int32_t>& sizes,
                                               int32_t clusters_per_device);

// Throws ProblemError unless there is a label 0 to units - 1 for each unit.
void CheckClustering(const Problem& problem, const std::vector<int32_t>& label);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_UNIT_CLUSTERS_H_
