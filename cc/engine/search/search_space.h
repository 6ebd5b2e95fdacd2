// What a local search asks of one problem again and again: neighbours, loads, look-alikes.
//
// Computed once per problem (or level of a multilevel search); never changes, read by all threads.

#ifndef HPLACER_ENGINE_SEARCH_SEARCH_SPACE_H_
#define HPLACER_ENGINE_SEARCH_SEARCH_SPACE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/simulator/placed_tails.h"

namespace hplacer {

// Members of sets 0..size-1: items[ptr[s]..ptr[s + 1]).
struct Grouping {
  std::vector<int32_t> ptr, items;
};

// Positions of 0..labels.size()-1 by label 0..count-1, ascending.
Grouping GroupByLabel(const std::vector<int32_t>& labels, int32_t count);

class SearchSpace {
 public:
  struct Neighbour {
    int32_t unit;
    int64_t transfer_ns;  // of all tensors between the two, at the mean rate
  };

  explicit SearchSpace(const Problem& problem);

  const Problem& problem() const { return problem_; }
  const TailTables& tables() const { return tables_; }

  // Units with a tensor in common, by index: neighbours[neighbour_ptr[u]..neighbour_ptr[u + 1]).
  const std::vector<int32_t>& neighbour_ptr() const { return neighbour_ptr_; }  // [U + 1]
  const std::vector<Neighbour>& neighbours() const { return neighbours_; }

  // The sum of the costs of the unit's ops; the unit must have a kernel for each.
  int64_t LoadNs(int32_t unit, int32_t device) const {
    return load_ns_[static_cast<size_t>(unit) * problem_.num_kinds() +
                    problem_.spec().device_kind[device]];
  }

  int64_t LeastLoadNs(int32_t unit) const;  // on any candidate

  double MeanLoadNs() const;  // of the units

  // Units that look alike: equal costs and sizes, and so do their surroundings. In an unrolled
  // network these are the repetitions of one part.
  const std::vector<int32_t>& look() const { return look_; }  // [U]
  const Grouping& look_alikes() const { return look_alikes_; }

  // Clusters of units, from fine to coarse: unit_cluster[level][unit] and their members.
  struct Clusters {
    std::vector<int32_t> of_unit;  // [U]
    Grouping members;
  };
  const std::vector<Clusters>& clusters() const { return clusters_; }
  void ClearClusters() { clusters_.clear(); }
  // `of_unit`: a label 0..count-1 per unit.
  void AddClusters(std::vector<int32_t> of_unit, int32_t count) {
    Grouping members = GroupByLabel(of_unit, count);
    clusters_.push_back({std::move(of_unit), std::move(members)});
  }

 private:
  void FindNeighbours();
  void SumLoads();
  void FindLookAlikes();

  const Problem& problem_;
  TailTables tables_;
  std::vector<int32_t> neighbour_ptr_;
  std::vector<Neighbour> neighbours_;
  std::vector<int64_t> load_ns_;
  std::vector<int32_t> look_;
  Grouping look_alikes_;
  std::vector<Clusters> clusters_;
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_SEARCH_SPACE_H_
