#include "engine/search/phase_partition.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/problem/mean_costs.h"
#include "engine/search/random_stream.h"

namespace hplacer {
namespace {

constexpr int64_t kCoarsestSweeps = 400, kSweeps = 30;
constexpr int64_t kMaxVisits = 2'000'000;  // of units and neighbours, per level

// The phase of each op: equal shares of the work by the earliest start.
std::vector<int32_t> PhaseOfOps(const SearchSpace& space, int32_t phases) {
  const Problem& problem = space.problem();
  const MeanCosts mean(problem);
  const int32_t n = problem.num_ops();
  std::vector<int64_t> work_ns(n), head_ns(n, 0);
  for (int32_t op = 0; op < n; ++op) {
    int64_t least = mean.op_ns[op];
    const int32_t unit = problem.units()[op];
    for (int32_t i = problem.candidate_ptr()[unit]; i < problem.candidate_ptr()[unit + 1]; ++i) {
      least = std::min(least, problem.CostNs(op, problem.candidates()[i]));
    }
    work_ns[op] = least;
  }
  for (int32_t op : space.tables().order) {
    const int64_t end_ns = head_ns[op] + work_ns[op];
    const int32_t end = problem.consumer_ptr()[problem.FirstTensor(op + 1)];
    for (int32_t e = problem.consumer_ptr()[problem.FirstTensor(op)]; e < end; ++e) {
      head_ns[problem.consumers()[e]] = std::max(head_ns[problem.consumers()[e]], end_ns);
    }
    for (int32_t c = problem.control_out_ptr()[op]; c < problem.control_out_ptr()[op + 1]; ++c) {
      head_ns[problem.control_out()[c]] = std::max(head_ns[problem.control_out()[c]], end_ns);
    }
  }
  std::vector<int32_t> order(n), phase(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return head_ns[a] < head_ns[b]; });
  const double all = static_cast<double>(
      std::max<int64_t>(1, std::accumulate(work_ns.begin(), work_ns.end(), int64_t{0})));
  int64_t before = 0;
  for (int32_t op : order) {
    phase[op] =
        std::min(phases - 1, static_cast<int32_t>(static_cast<double>(before) / all * phases));
    before += work_ns[op];
  }
  return phase;
}

class LevelPartition {
 public:
  LevelPartition(const SearchSpace& space, const PhasePartitionOptions& options)
      : space_(space),
        problem_(space.problem()),
        options_(options),
        pools_(problem_.num_pools()),
        load_ns_(static_cast<size_t>(options.phases) * pools_, 0) {
    const std::vector<int32_t> phase = PhaseOfOps(space, options.phases);
    share_ptr_.push_back(0);
    for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
      const size_t first = shares_.size();
      for (int32_t i = problem_.unit_op_ptr()[unit]; i < problem_.unit_op_ptr()[unit + 1]; ++i) {
        AddShare(first, phase[problem_.unit_ops()[i]], problem_.unit_ops()[i]);
      }
      share_ptr_.push_back(static_cast<int32_t>(shares_.size()));
    }
  }

  void Anneal(std::vector<int32_t>* unit_device, int64_t max_sweeps, double begin_temperature,
              uint64_t stream) {
    device_ = unit_device;
    std::fill(load_ns_.begin(), load_ns_.end(), 0);
    for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
      AddLoad(unit, (*device_)[unit], 1);
    }
    RandomStream random(options_.seed, stream, 0);
    const auto visits = static_cast<int64_t>(problem_.num_units() + space_.neighbours().size());
    const int64_t sweeps = std::clamp<int64_t>(kMaxVisits / visits, 1, max_sweeps);
    const int64_t moves = sweeps * problem_.num_units();
    for (int64_t i = 0; i < moves; ++i) {
      const double progress = static_cast<double>(i) / static_cast<double>(moves);
      const double temperature = begin_temperature * std::pow(0.01, progress);
      const int32_t unit = random.Below(problem_.num_units());
      const int32_t from = (*device_)[unit], to = Target(unit, &random);
      if (to == from) continue;
      const double delta = Delta(unit, from, to);
      if (delta > 0 && delta > temperature * random.Exponential()) continue;
      AddLoad(unit, from, -1);
      AddLoad(unit, to, 1);
      (*device_)[unit] = to;
    }
  }

  double MeanWorkNs() const {
    double sum = 0;
    for (const Share& share : shares_) sum += static_cast<double>(LeastNs(share));
    return sum / std::max(1, problem_.num_units());
  }

 private:
  // What a unit costs in one phase: load_ns[kind].
  struct Share {
    int32_t phase;
    size_t load;  // index into share_ns_
  };

  void AddShare(size_t first, int32_t phase, int32_t op) {
    const auto kinds = static_cast<size_t>(problem_.num_kinds());
    auto share = std::find_if(shares_.begin() + static_cast<ptrdiff_t>(first), shares_.end(),
                              [&](const Share& s) { return s.phase == phase; });
    if (share == shares_.end()) {
      shares_.push_back({phase, share_ns_.size()});
      share_ns_.resize(share_ns_.size() + kinds, 0);
      share = shares_.end() - 1;
    }
    for (size_t kind = 0; kind < kinds; ++kind) {
      share_ns_[share->load + kind] +=
          std::max<int64_t>(0, problem_.spec().cost_ns[static_cast<size_t>(op) * kinds + kind]);
    }
  }

  int64_t LeastNs(const Share& share) const {
    const auto begin = share_ns_.begin() + static_cast<ptrdiff_t>(share.load);
    return *std::min_element(begin, begin + problem_.num_kinds());
  }

  int64_t ShareNs(const Share& share, int32_t device) const {
    return share_ns_[share.load + problem_.spec().device_kind[device]] /
           problem_.spec().device_slots[device];
  }

  int32_t PoolOf(int32_t device) const { return problem_.device_pool()[device]; }

  void AddLoad(int32_t unit, int32_t device, int64_t sign) {
    for (int32_t i = share_ptr_[unit]; i < share_ptr_[unit + 1]; ++i) {
      load_ns_[static_cast<size_t>(shares_[i].phase) * pools_ + PoolOf(device)] +=
          sign * ShareNs(shares_[i], device);
    }
  }

  int32_t Target(int32_t unit, RandomStream* random) const {
    const int32_t begin = space_.neighbour_ptr()[unit], end = space_.neighbour_ptr()[unit + 1];
    if (end > begin && random->Below(2) == 0) {
      const int32_t device =
          (*device_)[space_.neighbours()[begin + random->Below(end - begin)].unit];
      if (problem_.IsCandidate(unit, device)) return device;
    }
    const int32_t first = problem_.candidate_ptr()[unit];
    return problem_.candidates()[first + random->Below(problem_.candidate_ptr()[unit + 1] - first)];
  }

  double Delta(int32_t unit, int32_t from, int32_t to) const {
    int64_t cut_ns = 0;
    for (int32_t i = space_.neighbour_ptr()[unit]; i < space_.neighbour_ptr()[unit + 1]; ++i) {
      const SearchSpace::Neighbour& other = space_.neighbours()[i];
      const int32_t device = (*device_)[other.unit];
      cut_ns += device == from ? other.transfer_ns : device == to ? -other.transfer_ns : 0;
    }
    const int32_t from_pool = PoolOf(from), to_pool = PoolOf(to);
    double load_ns = 0;
    for (int32_t i = share_ptr_[unit]; i < share_ptr_[unit + 1]; ++i) {
      const Share& share = shares_[i];
      const int64_t* load = &load_ns_[static_cast<size_t>(share.phase) * pools_];
      int64_t from_ns = load[from_pool] - ShareNs(share, from);
      int64_t to_ns = load[to_pool] + ShareNs(share, to);
      if (from_pool == to_pool) from_ns = to_ns = from_ns + ShareNs(share, to);
      int64_t before = 0, after = std::max(from_ns, to_ns);
      for (int32_t pool = 0; pool < pools_; ++pool) {
        before = std::max(before, load[pool]);
        if (pool != from_pool && pool != to_pool) after = std::max(after, load[pool]);
      }
      // A little of the difference between these two, so that a level maximum still has a slope.
      load_ns += static_cast<double>(after - before) +
                 0.1 * static_cast<double>(std::max(from_ns, to_ns) -
                                           std::max(load[from_pool], load[to_pool]));
    }
    return load_ns + options_.cut_weight * static_cast<double>(cut_ns);
  }

  const SearchSpace& space_;
  const Problem& problem_;
  const PhasePartitionOptions& options_;
  const int32_t pools_;
  std::vector<int32_t> share_ptr_;  // [U + 1]
  std::vector<Share> shares_;
  std::vector<int64_t> share_ns_;
  std::vector<int64_t> load_ns_;  // [phases * pools]
  std::vector<int32_t>* device_ = nullptr;
};

}  // namespace

std::vector<int32_t> PartitionByPhases(const std::vector<PartitionLevel>& levels,
                                       const PhasePartitionOptions& options) {
  std::vector<int32_t> placement;
  for (size_t level = 0; level < levels.size(); ++level) {
    const SearchSpace& space = *levels[level].space;
    const Problem& problem = space.problem();
    const std::vector<int32_t>& cluster = *levels[level].cluster;
    std::vector<int32_t> unit_device(problem.num_units());
    if (level == 0) {
      RandomStream random(options.seed, 0, 1);
      for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
        const int32_t first = problem.candidate_ptr()[unit];
        unit_device[unit] =
            problem.candidates()[first + random.Below(problem.candidate_ptr()[unit + 1] - first)];
      }
    } else {
      for (size_t op = 0; op < cluster.size(); ++op) {
        unit_device[problem.units()[cluster[op]]] = placement[op];
      }
    }
    LevelPartition partition(space, options);
    partition.Anneal(&unit_device, level == 0 ? kCoarsestSweeps : kSweeps,
                     partition.MeanWorkNs() * (level == 0 ? 1 : 0.1), level);
    placement.resize(cluster.size());
    for (size_t op = 0; op < cluster.size(); ++op) {
      placement[op] = unit_device[problem.units()[cluster[op]]];
    }
  }
  return placement;
}

}  // namespace hplacer
