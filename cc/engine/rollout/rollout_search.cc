#include "engine/rollout/rollout_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/problem/candidates.h"
#include "engine/rollout/rollout.h"
#include "engine/search/memory_repair.h"
#include "engine/search/random_stream.h"
#include "engine/search/search_clock.h"
#include "engine/search/search_levels.h"
#include "engine/search/search_space.h"
#include "engine/search/unit_clusters.h"
#include "engine/simulator/critical_chain.h"
#include "engine/simulator/memory_trace.h"
#include "engine/simulator/worker_team.h"

namespace hplacer {
namespace {

using Placement = std::vector<int32_t>;

constexpr auto kNumKinds = static_cast<int32_t>(ItemKind::kNumKinds);
constexpr int32_t kAtOnce = 4;  // chains, and sweeps
// Of the clusterings.
constexpr int32_t kClustersPerDevice[] = {16, 6, 2};
constexpr int32_t kClusters = 1000, kLeastUnitsPerCluster = 2;
constexpr int32_t kFits = 6;           // attempts to make a placement fit the memories
constexpr double kPolicyNoise = 0.85;  // of weights in sweeps, in the logarithm
constexpr double kMovedFirst = 0.5;    // share of sweeps that move an item before all else

int32_t Index(ItemKind kind) { return static_cast<int32_t>(kind); }

class RolloutSearcher {
 public:
  RolloutSearcher(const Problem& problem, const RolloutOptions& options)
      : problem_(problem),
        options_(options),
        clock_(options_.limits),
        team_(std::max(1, options.threads)),
        space_(problem),
        rollout_space_(space_, options.scope) {
    for (int i = 0; i < team_.size(); ++i) {
      workers_.push_back({MakePlacementScorer(problem, space_.tables()), Rollout(rollout_space_)});
    }
  }

  SearchResult Run() {
    TrySingleDevices();
    MakeItems();
    RunPortfolio();
    Repair();
    while (options_.sweeps && problem_.num_devices() > 1 && !clock_.IsOver()) Sweep();
    clock_.Report(result_.score);
    result_.evaluations = clock_.evaluations();
    result_.ended_by_time = clock_.WasEndedByTime();
    return std::move(result_);
  }

 private:
  struct Worker {
    std::unique_ptr<PlacementScorer> scorer;
    Rollout rollout;
  };
  struct Chain {
    int32_t policy, items;  // of the options; of items_
  };
  struct Candidate {
    Placement placement;
    Score score;
  };

  int32_t Take(int32_t wanted) { return clock_.Take(wanted, result_.score); }

  void Keep(const Candidate& candidate) {
    if (!(candidate.score < result_.score)) return;
    result_.placement = candidate.placement;
    result_.score = candidate.score;
    clock_.OnImproved();
    changed_ = true;
  }

  void TrySingleDevices() {
    int64_t largest_peak = 0;
    int32_t most_candidates = -1;
    Placement fullest;
    for (int32_t device = 0; device < problem_.num_devices(); ++device) {
      if (Take(1) == 0 && !result_.placement.empty()) return;
      Candidate candidate;
      candidate.placement = OnCandidates(problem_, Placement(problem_.num_ops(), device));
      workers_[0].scorer->Run(candidate.placement.data(), Score(), &candidate.score, nullptr);
      for (const int64_t bytes : workers_[0].scorer->peak_bytes()) {
        largest_peak = std::max(largest_peak, bytes);
      }
      const auto here = static_cast<int32_t>(
          std::count(candidate.placement.begin(), candidate.placement.end(), device));
      if (here > most_candidates) {
        most_candidates = here;
        fullest = candidate.placement;
      }
      Keep(candidate);
    }
    const std::vector<int64_t>& memory = problem_.spec().device_memory_bytes;
    if (largest_peak > *std::min_element(memory.begin(), memory.end())) {
      unit_bytes_ = HeldBytesByUnit(fullest);
    }
  }

  // What each unit holds when the memory of its device is fullest.
  std::vector<int64_t> HeldBytesByUnit(const Placement& placement) const {
    std::vector<int64_t> bytes(problem_.num_units(), 0);
    const std::vector<int64_t> own_bytes = OwnBytesAtPeaks(problem_, placement);
    for (int32_t op = 0; op < problem_.num_ops(); ++op) {
      bytes[problem_.units()[op]] += own_bytes[op];
    }
    return bytes;
  }

  // Of the kinds that chains name; where the problem lacks one, another takes its place.
  void MakeItems() {
    std::vector<int32_t> own(problem_.num_units());
    std::iota(own.begin(), own.end(), 0);
    std::array<std::vector<int32_t>, kNumKinds> labels;
    std::array<bool, kNumKinds> is_wanted{};
    for (const RolloutChain& chain : options_.chains) is_wanted[Index(chain.items)] = true;
    const int32_t size = std::min(kClusters, problem_.num_units() / kLeastUnitsPerCluster);
    team_.ForEach(kNumKinds, [&](int, int32_t kind) {
      if (!is_wanted[kind]) return;
      if (kind == Index(ItemKind::kUnits)) {
        labels[kind] = own;
      } else if (kind == Index(ItemKind::kScopes)) {
        labels[kind] = options_.scope;
      } else if (size > 1) {
        const int32_t per_device = kClustersPerDevice[kind - Index(ItemKind::kSmallClusters)];
        labels[kind] = ClusterUnits(problem_, {size}, per_device).front();
      }
    });
    if (std::all_of(labels.begin(), labels.end(),
                    [](const auto& label) { return label.empty(); })) {
      labels[Index(ItemKind::kUnits)] = own;
    }
    std::array<int32_t, kNumKinds> items_of_kind;
    items_of_kind.fill(-1);
    for (int32_t kind = 0; kind < kNumKinds; ++kind) {
      if (labels[kind].empty()) continue;
      const int32_t count = 1 + *std::max_element(labels[kind].begin(), labels[kind].end());
      Grouping members = GroupByLabel(labels[kind], count);
      items_of_kind[kind] = static_cast<int32_t>(items_.size());
      items_.push_back({std::move(labels[kind]), std::move(members)});
    }
    for (const RolloutChain& chain : options_.chains) {
      chains_.push_back({chain.policy, std::max(0, items_of_kind[Index(chain.items)])});
    }
  }

  // ---- chains ----

  void RunPortfolio() {
    const auto chains = static_cast<int32_t>(chains_.size());
    for (int32_t first = 0; first < chains && !clock_.IsOver(); first += kAtOnce) {
      const int32_t count = Take(std::min(kAtOnce, chains - first) * options_.passes);
      std::vector<Candidate> found(kAtOnce);
      team_.ForEach((count + options_.passes - 1) / options_.passes, [&](int worker, int32_t i) {
        const int32_t passes = std::min(options_.passes, count - i * options_.passes);
        found[i] = RunChain(&workers_[worker], chains_[first + i], passes, result_.score);
      });
      for (const Candidate& candidate : found) {
        if (!candidate.placement.empty()) Keep(candidate);
      }
    }
  }

  // The best of its passes, or nothing if none is better than `cutoff`.
  Candidate RunChain(Worker* worker, const Chain& chain, int32_t passes,
                     const Score& cutoff) const {
    const PlacementPolicy& policy = options_.policies[chain.policy];
    const Items& items = items_[chain.items];
    Candidate best;
    best.score = cutoff;
    std::vector<int32_t> unit_device;
    std::vector<int64_t> finish_ns;
    Rollout::Begin begin;
    if (!unit_bytes_.empty()) begin.unit_bytes = &unit_bytes_;
    for (int32_t pass = 0; pass < passes; ++pass) {
      unit_device = worker->rollout.Run(items, policy, begin);
      finish_ns = worker->rollout.finish_ns();
      begin.unit_device = &unit_device;
      begin.finish_ns = &finish_ns;
      Candidate candidate = Scored(worker, unit_device, best.score);
      if (!candidate.placement.empty()) best = std::move(candidate);
    }
    return best;
  }

  // Empty if it is not better than `cutoff`. What is quick enough but does not fit is made to fit.
  Candidate Scored(Worker* worker, const std::vector<int32_t>& unit_device,
                   const Score& cutoff) const {
    Candidate candidate;
    candidate.placement = Expand(unit_device);
    bool is_better =
        worker->scorer->Run(candidate.placement.data(), cutoff, &candidate.score, nullptr);
    if (candidate.score.missing_links == 0 && candidate.score.missing_bytes > 0) {
      is_better = Fit(worker, cutoff, &candidate) || is_better;
    }
    if (!is_better) return {};
    return candidate;
  }

  // Packs anew what no chain has made fit.
  void Repair() {
    for (int32_t i = 0; i < kRepairs && !result_.score.feasible() && Take(1) > 0; ++i) {
      Candidate candidate;
      int32_t evaluations = 0;
      PlacementScorer* scorer = workers_[0].scorer.get();
      candidate.placement =
          RepairMemory(problem_, scorer, options_.seed + i, result_.placement, &evaluations);
      scorer->Run(candidate.placement.data(), Score(), &candidate.score, nullptr);
      Keep(candidate);
    }
  }

  Placement Expand(const std::vector<int32_t>& unit_device) const {
    Placement placement(problem_.num_ops());
    for (int32_t op = 0; op < problem_.num_ops(); ++op) {
      placement[op] = unit_device[problem_.units()[op]];
    }
    return placement;
  }

  // Moves what overflows the memories, the units of the least loss per byte first. Returns whether
  // the candidate has become better than `cutoff`.
  bool Fit(Worker* worker, const Score& cutoff, Candidate* candidate) const {
    Candidate trial = *candidate;
    bool is_better = false;
    for (int32_t i = 0; i < kFits && trial.score.missing_bytes > 0; ++i) {
      if (!Relieve(*worker, &trial.placement)) break;
      const Score& least = is_better ? candidate->score : cutoff;
      if (!worker->scorer->Run(trial.placement.data(), least, &trial.score, nullptr)) continue;
      *candidate = trial;
      is_better = true;
    }
    return is_better;
  }

  // Of the placement that was scored last.
  bool Relieve(const Worker& worker, Placement* placement) const {
    struct Move {
      double loss_per_byte;
      int32_t unit, device;
      bool operator<(const Move& other) const {
        return std::tie(loss_per_byte, unit, device) <
               std::tie(other.loss_per_byte, other.unit, other.device);
      }
    };
    const int32_t m = problem_.num_devices();
    const std::vector<float>& loss = worker.rollout.loss();
    const std::vector<int64_t> bytes = HeldBytesByUnit(*placement);
    std::vector<int64_t> free_bytes(m);
    for (int32_t d = 0; d < m; ++d) {
      free_bytes[d] = problem_.spec().device_memory_bytes[d] - worker.scorer->peak_bytes()[d];
    }
    std::vector<int32_t> unit_device = UnitDevices(problem_, *placement);
    std::vector<Move> moves;
    for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
      const int32_t from = unit_device[unit];
      if (free_bytes[from] >= 0 || bytes[unit] == 0) continue;
      for (int32_t c = problem_.candidate_ptr()[unit]; c < problem_.candidate_ptr()[unit + 1];
           ++c) {
        const int32_t to = problem_.candidates()[c];
        if (free_bytes[to] <= 0) continue;
        const double loss_ns = loss[static_cast<size_t>(unit) * m + to] + 1 +
                               static_cast<double>(space_.LoadNs(unit, to));
        moves.push_back({loss_ns / static_cast<double>(bytes[unit]), unit, to});
      }
    }
    std::sort(moves.begin(), moves.end());
    bool moved = false;
    for (const auto& [rate, unit, to] : moves) {
      const int32_t from = unit_device[unit];
      if (free_bytes[from] >= 0 || free_bytes[to] < bytes[unit]) continue;
      free_bytes[from] += bytes[unit];
      free_bytes[to] -= bytes[unit];
      unit_device[unit] = to;
      moved = true;
    }
    *placement = Expand(unit_device);
    return moved;
  }

  // ---- sweeps ----

  void Sweep() {
    const int32_t count = Take(kAtOnce);
    if (changed_) Study();
    std::vector<Candidate> found(kAtOnce);
    team_.ForEach(count, [&](int worker, int32_t i) {
      RandomStream random(options_.seed, 2, sweeps_ + i);
      found[i] = DecideAgain(&workers_[worker], &random);
    });
    sweeps_ += count;
    for (const Candidate& candidate : found) {
      if (!candidate.placement.empty()) Keep(candidate);
    }
  }

  // Simulates the best placement once more, for what sweeps want to know of it.
  void Study() {
    changed_ = false;
    schedule_ = {};
    Score score;
    workers_[0].scorer->Run(result_.placement.data(), Score(), &score, &schedule_);
    unit_device_ = UnitDevices(problem_, result_.placement);
    by_time_.resize(problem_.num_units());
    std::iota(by_time_.begin(), by_time_.end(), 0);
    critical_.clear();
    if (schedule_.start_ns.empty()) return;
    const std::vector<int64_t> start_ns = StartOfLongestOps();
    std::stable_sort(by_time_.begin(), by_time_.end(),
                     [&](int32_t a, int32_t b) { return start_ns[a] < start_ns[b]; });
    const CriticalChain chain = FindCriticalChain(problem_, result_.placement.data(), schedule_);
    for (const int32_t op : chain.senders) critical_.push_back(problem_.units()[op]);
    for (const int32_t op : chain.ops) critical_.push_back(problem_.units()[op]);
  }

  // [U]
  std::vector<int64_t> StartOfLongestOps() const {
    std::vector<int64_t> start_ns(problem_.num_units(), 0), longest_ns(problem_.num_units(), -1);
    for (int32_t op = 0; op < problem_.num_ops(); ++op) {
      const int32_t unit = problem_.units()[op];
      const int64_t ns = schedule_.finish_ns[op] - schedule_.start_ns[op];
      if (ns <= longest_ns[unit]) continue;
      longest_ns[unit] = ns;
      start_ns[unit] = schedule_.start_ns[op];
    }
    return start_ns;
  }

  Candidate DecideAgain(Worker* worker, RandomStream* random) const {
    PlacementPolicy policy = options_.policies[Below(options_.policies.size(), random)];
    for (double& weight : policy.weight) {
      weight *= std::exp(kPolicyNoise * (2 * random->Uniform() - 1));
    }
    const Items& items = items_[Below(items_.size(), random)];
    const std::vector<int32_t> free_units = Choose(items, random);
    if (free_units.empty()) return {};
    std::vector<uint8_t> is_free(problem_.num_units(), 0);
    for (const int32_t unit : free_units) is_free[unit] = 1;
    std::vector<int32_t> unit_device = unit_device_;
    if (random->Uniform() < kMovedFirst) {
      MoveItem(items, free_units[Below(free_units.size(), random)], random, &unit_device, &is_free);
    }
    Rollout::Begin begin;
    begin.unit_device = &unit_device;
    begin.is_free = &is_free;
    if (!schedule_.finish_ns.empty()) begin.finish_ns = &schedule_.finish_ns;
    if (!unit_bytes_.empty()) begin.unit_bytes = &unit_bytes_;
    const std::vector<int32_t>& decided = worker->rollout.Run(items, policy, begin);
    if (decided == unit_device_) return {};
    return Scored(worker, decided, result_.score);
  }

  static int32_t Below(size_t count, RandomStream* random) {
    return random->Below(static_cast<int64_t>(count));
  }

  // Puts the item of a unit on a device drawn at random, where it stays.
  void MoveItem(const Items& items, int32_t unit, RandomStream* random,
                std::vector<int32_t>* unit_device, std::vector<uint8_t>* is_free) const {
    const int32_t first = problem_.candidate_ptr()[unit];
    const int32_t count = problem_.candidate_ptr()[unit + 1] - first;
    const int32_t device = problem_.candidates()[first + random->Below(count)];
    const int32_t item = items.of_unit[unit];
    for (int32_t i = items.members.ptr[item]; i < items.members.ptr[item + 1]; ++i) {
      const int32_t member = items.members.items[i];
      (*unit_device)[member] = device;
      (*is_free)[member] = 0;
    }
  }

  // ---- which units are decided again ----

  // All units of some items, at times with repetitions.
  std::vector<int32_t> Choose(const Items& items, RandomStream* random) const {
    std::vector<int32_t> units;
    switch (random->Below(5)) {
      case 0:
        units = ChooseAtRandom(random);
        break;
      case 1:
        units = ChooseByTime(random);
        break;
      case 2:
        units = ChooseOnTwoDevices(random);
        break;
      case 3:
        units = ChooseCritical(random);
        break;
      default:
        units = ChooseNeighbours(random);
    }
    std::vector<int32_t> chosen;
    std::vector<uint8_t> is_taken(items.members.ptr.size(), 0);
    for (const int32_t unit : units) {
      const int32_t item = items.of_unit[unit];
      if (std::exchange(is_taken[item], 1)) continue;
      chosen.insert(chosen.end(), items.members.items.begin() + items.members.ptr[item],
                    items.members.items.begin() + items.members.ptr[item + 1]);
    }
    return chosen;
  }

  // All shares of the units between the least one and 1, as likely in the logarithm.
  int32_t DrawSize(double log_least, RandomStream* random) const {
    const double share = std::exp(-log_least * random->Uniform());
    return std::max(1, static_cast<int32_t>(problem_.num_units() * share));
  }

  std::vector<int32_t> ChooseAtRandom(RandomStream* random) const {
    std::vector<int32_t> units(DrawSize(4, random));
    for (int32_t& unit : units) unit = random->Below(problem_.num_units());
    return units;
  }

  std::vector<int32_t> ChooseByTime(RandomStream* random) const {
    const int32_t size = DrawSize(4, random);
    const auto first = by_time_.begin() + random->Below(problem_.num_units() - size + 1);
    return {first, first + size};
  }

  std::vector<int32_t> ChooseOnTwoDevices(RandomStream* random) const {
    std::vector<int32_t> units = ChooseByTime(random);
    const int32_t one = unit_device_[units[Below(units.size(), random)]];
    const int32_t other = random->Below(problem_.num_devices());
    const auto is_elsewhere = [&](int32_t unit) {
      return unit_device_[unit] != one && unit_device_[unit] != other;
    };
    units.erase(std::remove_if(units.begin(), units.end(), is_elsewhere), units.end());
    return units;
  }

  std::vector<int32_t> ChooseCritical(RandomStream* random) const {
    const double share = std::exp(-2 * random->Uniform());
    std::vector<int32_t> units;
    for (const int32_t unit : critical_) {
      if (random->Uniform() < share) units.push_back(unit);
    }
    return units;
  }

  std::vector<int32_t> ChooseNeighbours(RandomStream* random) const {
    const auto size = static_cast<size_t>(DrawSize(6, random));
    std::vector<int32_t> units{random->Below(problem_.num_units())};
    std::vector<uint8_t> is_found(problem_.num_units(), 0);
    is_found[units[0]] = 1;
    for (size_t next = 0; next < units.size() && units.size() < size; ++next) {
      const int32_t end = space_.neighbour_ptr()[units[next] + 1];
      for (int32_t k = space_.neighbour_ptr()[units[next]]; k < end; ++k) {
        const int32_t other = space_.neighbours()[k].unit;
        if (!std::exchange(is_found[other], 1)) units.push_back(other);
      }
    }
    return units;
  }

  const Problem& problem_;
  const RolloutOptions& options_;
  SearchClock clock_;
  WorkerTeam team_;
  SearchSpace space_;
  RolloutSpace rollout_space_;
  std::vector<Worker> workers_;
  SearchResult result_;
  std::vector<Items> items_;
  std::vector<Chain> chains_;
  std::vector<int64_t> unit_bytes_;  // [U], or empty: memory is no limit
  // Of the best placement.
  bool changed_ = true;
  std::vector<int32_t> unit_device_, by_time_;  // [U]
  std::vector<int32_t> critical_;               // units, as often as they are on the chain
  Schedule schedule_;
  int64_t sweeps_ = 0;
};

Score NothingToDo() {
  Score score;
  score.missing_links = 0;
  return score;
}

void Check(const Problem& problem, const RolloutOptions& options) {
  CheckCandidates(problem);
  if (!options.scope.empty()) CheckClustering(problem, options.scope);
}

}  // namespace

SearchResult RolloutSearch(const Problem& problem, const RolloutOptions& options) {
  Check(problem, options);
  if (problem.num_ops() == 0) {
    SearchResult result;
    result.score = NothingToDo();
    return result;
  }
  return RolloutSearcher(problem, options).Run();
}

}  // namespace hplacer
