#include "engine/search/search_levels.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/schedulers/etf.h"
#include "engine/schedulers/heft.h"
#include "engine/search/coarsening.h"
#include "engine/search/phase_partition.h"

namespace hplacer {
namespace {

constexpr int64_t kFinestClusters = 1500;  // per device, if all have the most work allowed
constexpr int32_t kMaxLevels = 7, kWorkFactor = 4;
constexpr int32_t kLeastOps = 20;  // what is smaller needs no coarser level
constexpr double kLeastShrinkage = 0.8;
constexpr size_t kScheduledLevels = 2;  // coarser ones are too unlike the problem
constexpr int32_t kPhases[] = {4, 16, 64};
constexpr double kCutWeights[] = {0.2, 0.3, 0.45, 0.7};
constexpr auto kNumWeights = static_cast<int32_t>(std::size(kCutWeights));
constexpr auto kNumPartitions = static_cast<int32_t>(std::size(kPhases)) * kNumWeights;

// The unit of `coarse` to which each unit of `fine` belongs; clusters are those of the same ops.
std::vector<int32_t> UnitClusters(const Problem& fine, const std::vector<int32_t>& fine_cluster,
                                  const SearchLevel& coarse) {
  std::vector<int32_t> result(fine.num_units());
  for (size_t op = 0; op < fine_cluster.size(); ++op) {
    result[fine.units()[fine_cluster[op]]] = coarse.problem().units()[coarse.cluster()[op]];
  }
  return result;
}

}  // namespace

std::vector<int32_t> SearchLevel::Restrict(const std::vector<int32_t>& fine) const {
  const auto m = static_cast<size_t>(problem_.num_devices());
  std::vector<int64_t> votes(problem_.num_units() * m, 0);
  for (int32_t op = 0; op < fine_.num_ops(); ++op) {
    votes[problem_.units()[cluster_[op]] * m + fine[op]] += 1 + fine_.CostNs(op, fine[op]);
  }
  std::vector<int32_t> result(problem_.num_ops());
  for (int32_t c = 0; c < problem_.num_ops(); ++c) {
    const auto of_unit = votes.begin() + static_cast<ptrdiff_t>(problem_.units()[c] * m);
    result[c] = static_cast<int32_t>(
        std::max_element(of_unit, of_unit + static_cast<ptrdiff_t>(m)) - of_unit);
  }
  return result;
}

std::vector<int32_t> SearchLevel::Expand(const std::vector<int32_t>& coarse) const {
  std::vector<int32_t> fine(cluster_.size());
  for (size_t op = 0; op < fine.size(); ++op) fine[op] = coarse[cluster_[op]];
  return fine;
}

SearchLevels::SearchLevels(const SearchSpace& finest, uint64_t seed) : problem_(finest.problem()) {
  const Problem& problem = problem_;
  Coarsening coarsening(problem, seed);
  const int64_t clusters = kFinestClusters * problem.num_devices();
  auto max_work_ns = static_cast<int64_t>(finest.MeanLoadNs() * problem.num_units() /
                                          static_cast<double>(clusters)) +
                     1;
  for (int32_t i = 0; i < kMaxLevels; ++i, max_work_ns *= kWorkFactor) {
    const int32_t before =
        levels_.empty() ? problem.num_ops() : levels_.back()->problem().num_ops();
    if (coarsening.num_clusters() < kLeastOps) break;
    coarsening.Shrink(kLeastOps, max_work_ns);
    if (coarsening.num_clusters() > before * kLeastShrinkage) continue;
    levels_.push_back(
        std::make_unique<SearchLevel>(problem, coarsening.Contract(), coarsening.cluster()));
  }
  for (size_t i = 0; i < levels_.size(); ++i) {
    for (size_t j = i + 1; j < levels_.size(); ++j) {
      levels_[i]->mutable_space()->AddClusters(
          UnitClusters(levels_[i]->problem(), levels_[i]->cluster(), *levels_[j]),
          levels_[j]->problem().num_units());
    }
  }
}

void SearchLevels::GiveClustersTo(SearchSpace* space) const {
  std::vector<int32_t> identity(problem_.num_ops());
  std::iota(identity.begin(), identity.end(), 0);
  space->ClearClusters();
  for (const auto& level : levels_) {
    space->AddClusters(UnitClusters(problem_, identity, *level), level->problem().num_units());
  }
}

int32_t SearchLevels::num_starts() const {
  return kNumPartitions + 2 * static_cast<int32_t>(std::min(kScheduledLevels, levels_.size()));
}

std::vector<int32_t> SearchLevels::Start(int32_t index, uint64_t seed) const {
  if (index < kNumPartitions) {
    std::vector<PartitionLevel> hierarchy;
    for (size_t i = levels_.size(); i-- > 0;) {
      hierarchy.push_back({&levels_[i]->space(), &levels_[i]->cluster()});
    }
    return PartitionByPhases(
        hierarchy, {kPhases[index / kNumWeights], kCutWeights[index % kNumWeights], seed});
  }
  const SearchLevel& level = *levels_[(index - kNumPartitions) / 2];
  return level.Expand(index % 2 == 0 ? PlaceHeft(level.problem()) : PlaceEtf(level.problem()));
}

std::vector<int32_t> UnitDevices(const Problem& problem, const std::vector<int32_t>& placement) {
  std::vector<int32_t> devices(problem.num_units());
  for (size_t op = 0; op < placement.size(); ++op) devices[problem.units()[op]] = placement[op];
  return devices;
}

std::vector<int32_t> OnCandidates(const Problem& problem, const std::vector<int32_t>& wanted) {
  const auto m = static_cast<size_t>(problem.num_devices());
  std::vector<int32_t> votes(problem.num_units() * m, 0);
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    ++votes[problem.units()[op] * m + wanted[op]];
  }
  std::vector<int32_t> result(problem.num_ops());
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    const int32_t unit = problem.units()[op], first = problem.candidate_ptr()[unit];
    int32_t& best = result[op] = problem.candidates()[first];
    for (int32_t i = first; i < problem.candidate_ptr()[unit + 1]; ++i) {
      const int32_t device = problem.candidates()[i];
      if (votes[unit * m + device] > votes[unit * m + best]) best = device;
    }
  }
  return result;
}

}  // namespace hplacer
