// The levels of a multilevel search: a problem coarsened again and again, and starts from them.
//
// Clusters of a level have at most a given share of the work that each device would have if all had
// the same, four times as much on each next level. Levels are nested. Keeps a reference to the
// problem.

#ifndef HPLACER_ENGINE_SEARCH_SEARCH_LEVELS_H_
#define HPLACER_ENGINE_SEARCH_SEARCH_LEVELS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/search/search_space.h"

namespace hplacer {

class SearchLevel {
 public:
  // `cluster`: of each op of `fine`, the op of `coarse`.
  SearchLevel(const Problem& fine, Problem coarse, std::vector<int32_t> cluster)
      : fine_(fine), problem_(std::move(coarse)), space_(problem_), cluster_(std::move(cluster)) {}

  const Problem& problem() const { return problem_; }
  const SearchSpace& space() const { return space_; }
  SearchSpace* mutable_space() { return &space_; }
  const std::vector<int32_t>& cluster() const { return cluster_; }

  // A placement of the fine problem on this level: each unit where most of its work is.
  std::vector<int32_t> Restrict(const std::vector<int32_t>& fine) const;
  std::vector<int32_t> Expand(const std::vector<int32_t>& coarse) const;

 private:
  const Problem& fine_;
  Problem problem_;
  SearchSpace space_;
  std::vector<int32_t> cluster_;  // [n]
};

class SearchLevels {
 public:
  SearchLevels(const SearchSpace& finest, uint64_t seed);

  size_t size() const { return levels_.size(); }
  const SearchLevel& operator[](size_t i) const { return *levels_[i]; }  // from fine to coarse

  // Makes the units of all levels the clusters of the problem's own space.
  void GiveClustersTo(SearchSpace* space) const;

  // Partitions by phases, and list schedules of the finer levels, as placements of the problem.
  int32_t num_starts() const;
  std::vector<int32_t> Start(int32_t index, uint64_t seed) const;

 private:
  const Problem& problem_;
  std::vector<std::unique_ptr<SearchLevel>> levels_;
};

std::vector<int32_t> UnitDevices(const Problem& problem, const std::vector<int32_t>& placement);

// Each unit on one of its candidates: the one that most of its ops want.
std::vector<int32_t> OnCandidates(const Problem& problem, const std::vector<int32_t>& wanted);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_SEARCH_LEVELS_H_
