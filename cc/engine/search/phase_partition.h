// Placements that keep all devices busy all the time and cut little, found without simulating.
//
// A partition of the units into one part per device. Balancing the devices' whole loads, as graph
// partitioners do, makes stages that run one after the other. Here the ops are divided into
// phases, equal shares of the work in the order in which ops can start at the earliest, and the
// cost of a partition is
//
//   sum over phases of the largest load of a device in that phase
//     + cut_weight * the transfer time of all tensors between parts,
//
// the idea of multi-constraint partitioning (Karypis and Kumar, "Multilevel Algorithms for
// Multi-Constraint Graph Partitioning", SC 1998). Annealed from the coarsest level to the finest;
// a move costs as much as the unit has neighbours. Memory and links are not seen.

#ifndef HPLACER_ENGINE_SEARCH_PHASE_PARTITION_H_
#define HPLACER_ENGINE_SEARCH_PHASE_PARTITION_H_

#include <cstdint>
#include <vector>

#include "engine/search/search_space.h"

namespace hplacer {

struct PhasePartitionOptions {
  int32_t phases;
  double cut_weight;
  uint64_t seed;
};

// One level of a multilevel partition: a problem and where its ops' clusters lie in the finest one.
struct PartitionLevel {
  const SearchSpace* space;
  const std::vector<int32_t>* cluster;  // [n] of the ops of the finest problem
};

// `levels` from coarse to fine; every unit must have a candidate. Returns a device per op of the
// finest problem, the same within each cluster of the last level.
std::vector<int32_t> PartitionByPhases(const std::vector<PartitionLevel>& levels,
                                       const PhasePartitionOptions& options);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_PHASE_PARTITION_H_
