#include "engine/search/local_search.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/problem/candidates.h"
#include "engine/schedulers/etf.h"
#include "engine/schedulers/heft.h"
#include "engine/search/annealing.h"
#include "engine/search/enumeration.h"
#include "engine/search/memory_repair.h"
#include "engine/search/random_stream.h"
#include "engine/search/search_levels.h"
#include "engine/search/search_space.h"
#include "engine/simulator/worker_team.h"

namespace hplacer {
namespace {

using Placement = std::vector<int32_t>;

constexpr int32_t kStartsAtOnce = 4;
constexpr int64_t kTryInterval = 256;  // evaluations of a coarse level
// Levels whose clusters are small enough for a coarse step to last nearly as long as a fine one.
constexpr size_t kAnnealedLevels = 2;
// Of the first turn of each operator, in simulated ops.
constexpr double kAnnealingWork = 1500, kCycleWork = 400;  // per op
constexpr double kLeastWork = 1e4, kMostAnnealingWork = 8e6;
constexpr double kWorkOfLevels = 150;  // per op: making them takes as long as so much
constexpr double kWorkGrowth = 1.1;    // after a turn that brought nothing
// Of operators. What they gain is a share of the step, for 1,000 simulated ops per op.
constexpr double kHopeOfBest = 0.02, kHopeOfOthers = 0.0003;
constexpr double kForgetPerTurn = 0.5, kLeastShare = 0.01;
// Shares of the makespan, and of the mean unit, which is a large part of it on small graphs.
constexpr double kAnnealingTemperature = 0.0007, kAnnealingUnits = 0.3;
constexpr double kCycleTemperature = 0.002, kFinestCycleTemperature = 0.0005;
constexpr double kCooling = 0.01;

class LocalSearcher {
 public:
  LocalSearcher(const Problem& problem, const SearchOptions& options)
      : problem_(problem),
        options_(options),
        clock_(options.limits),
        team_(std::max(1, options.threads)),
        space_(problem),
        scorer_(MakePlacementScorer(problem, space_.tables(), OrdersOf(options.parts.annealing))) {}

  SearchResult Run() {
    TryStarts();
    if (CountPlacements(problem_, options_.max_enumerated) <= options_.max_enumerated) {
      result_.is_optimal = EnumeratePlacements(
          space_, &team_, [this](int32_t wanted) { return Take(wanted); }, &result_.placement,
          &result_.score);
    } else {
      MakeOperators();
      while (!clock_.IsOver()) TakeTurn();
    }
    clock_.Report(result_.score);
    result_.evaluations = clock_.evaluations();
    result_.ended_by_time = clock_.WasEndedByTime();
    result_.was_stalled = clock_.WasStalled();
    return std::move(result_);
  }

 private:
  int32_t Take(int32_t wanted) { return clock_.Take(wanted, result_.score); }

  void Keep(const Placement& placement, const Score& score) {
    if (!(score < result_.score)) return;
    result_.placement = placement;
    result_.score = score;
    clock_.OnImproved();
  }

  // Scores a placement of the problem itself, the first one in any case.
  void Try(const Placement& placement) {
    if (Take(1) == 0 && !result_.placement.empty()) return;
    tried_at_ = clock_.evaluations();
    Score score;
    if (scorer_->Run(placement.data(), result_.score, &score, nullptr)) Keep(placement, score);
  }

  void TryStarts() {
    // The caller's come first: however short the search is, it answers nothing worse.
    for (const Placement& start : options_.starts) Try(OnCandidates(problem_, start));
    for (int32_t device = 0; device < problem_.num_devices() && !clock_.IsOver(); ++device) {
      Try(OnCandidates(problem_, Placement(problem_.num_ops(), device)));
    }
    if (!clock_.IsOver()) Try(OnCandidates(problem_, PlaceHeft(problem_)));
    if (!clock_.IsOver()) Try(OnCandidates(problem_, PlaceEtf(problem_)));
    for (int32_t i = 0; i < kRepairs && !result_.score.feasible() && Take(1) > 0; ++i) {
      int32_t evaluations = 0;
      Try(RepairMemory(problem_, scorer_.get(), options_.seed + i, result_.placement,
                       &evaluations));
    }
  }

  // ---- operators ----

  enum class OperatorKind {
    kAnneal,  // the best placement
    kCycle,   // from another start
  };
  struct Operator {
    OperatorKind kind;
    double work;  // of its next turn, in simulated ops
    double gain, effort = 1;
  };

  double WorkOf(double per_op) const { return std::max(per_op * problem_.num_ops(), kLeastWork); }

  void MakeOperators() {
    const double annealing_work = std::min(WorkOf(kAnnealingWork), kMostAnnealingWork);
    operators_.push_back({OperatorKind::kAnneal, annealing_work, kHopeOfBest});
    if (!options_.parts.other_starts) return;
    operators_.push_back({OperatorKind::kCycle, WorkOf(kCycleWork), kHopeOfOthers});
  }

  void TakeTurn() {
    RandomStream random(options_.seed, 1, ++turns_);
    Operator& it = operators_[DrawOperator(&random)];
    const Score before = result_.score;
    double work = it.work;
    switch (it.kind) {
      case OperatorKind::kAnneal:
        AnnealBest(it.work);
        break;
      case OperatorKind::kCycle:
        RunCycle(it.work);
        work += WorkOf(kWorkOfLevels);
    }
    it.gain *= kForgetPerTurn;
    it.effort = kForgetPerTurn * it.effort + work / WorkOf(1000);
    if (!(result_.score < before)) {
      it.work *= kWorkGrowth;
    } else if (before.feasible()) {
      it.gain += 1 - static_cast<double>(result_.score.makespan_ns) /
                         static_cast<double>(before.makespan_ns);
    } else {
      it.gain += kHopeOfBest;
    }
  }

  // As likely as it has paid.
  size_t DrawOperator(RandomStream* random) const {
    double sum = 0, all = 0;
    for (const Operator& it : operators_) sum += it.gain / it.effort;
    std::vector<double> share;
    for (const Operator& it : operators_) {
      share.push_back(std::max(kLeastShare, sum > 0 ? it.gain / it.effort / sum : 0));
      all += share.back();
    }
    double draw = random->Uniform() * all;
    size_t i = 0;
    while (i + 1 < share.size() && (draw -= share[i]) >= 0) ++i;
    return i;
  }

  void AnnealBest(double work) {
    Placement current = result_.placement;
    const double temperature =
        std::max(kAnnealingTemperature, kAnnealingUnits * MeanUnitShare(space_));
    Anneal(space_, work, temperature, &current,
           [this](const Placement& placement, const Score& better) { Keep(placement, better); });
  }

  // Anneals two levels of a coarsening, then the problem, from the best of many starts.
  void RunCycle(double work) {
    const uint64_t seed = options_.seed + static_cast<uint64_t>(cycles_++) * 1009;
    SearchLevels levels(space_, seed);
    levels.GiveClustersTo(&space_);
    Placement current = BestStartOn(levels, seed);
    double share = 0.5;
    for (size_t i = std::min(kAnnealedLevels, levels.size()); i-- > 0 && !clock_.IsOver();) {
      const SearchLevel& level = levels[i];
      Placement coarse = level.Restrict(current);
      Anneal(level.space(), work * share, std::max(kCycleTemperature, MeanUnitShare(level.space())),
             &coarse, [&](const Placement& better, const Score&) {
               if (clock_.evaluations() >= tried_at_ + kTryInterval) Try(level.Expand(better));
             });
      current = level.Expand(coarse);
      Try(current);
      share /= 2;
    }
    if (clock_.IsOver()) return;
    Anneal(space_, work * share, std::max(kFinestCycleTemperature, MeanUnitShare(space_)), &current,
           [this](const Placement& placement, const Score& better) { Keep(placement, better); });
  }

  // The fastest on the first annealed level of the best placement, partitions, and list schedules
  // of the levels.
  Placement BestStartOn(const SearchLevels& levels, uint64_t seed) {
    Placement best = result_.placement;
    if (levels.size() == 0) return best;
    const SearchLevel& judge = levels[std::min(kAnnealedLevels, levels.size()) - 1];
    const auto scorer = MakePlacementScorer(judge.problem(), judge.space().tables(),
                                            OrdersOf(options_.parts.annealing));
    Score best_score;
    const auto offer = [&](const Placement& fine) {
      Score score;
      if (!scorer->Run(judge.Restrict(fine).data(), best_score, &score, nullptr)) return;
      best_score = score;
      best = fine;
    };
    offer(result_.placement);
    std::vector<Placement> starts(kStartsAtOnce);
    for (int32_t i = 0; i < levels.num_starts() && !clock_.IsOver(); i += kStartsAtOnce) {
      const int32_t count = std::min(kStartsAtOnce, levels.num_starts() - i);
      team_.ForEach(count, [&](int, int32_t j) { starts[j] = levels.Start(i + j, seed); });
      for (int32_t j = 0; j < count; ++j) {
        Try(starts[j]);
        offer(starts[j]);
      }
    }
    return best;
  }

  // Of the makespan; 0 if no feasible placement is known.
  double MeanUnitShare(const SearchSpace& space) const {
    if (!result_.score.feasible() || result_.score.makespan_ns == 0) return 0;
    return space.MeanLoadNs() / static_cast<double>(result_.score.makespan_ns);
  }

  void Anneal(const SearchSpace& space, double work, double temperature, Placement* placement,
              std::function<void(const Placement&, const Score&)> on_best) {
    Annealing annealing(space, &team_, options_.seed ^ static_cast<uint64_t>(++anneals_) << 32,
                        options_.parts.annealing);
    annealing.Run({static_cast<int64_t>(work), temperature, temperature * kCooling},
                  {[this](int32_t wanted) { return Take(wanted); }, std::move(on_best)}, placement);
  }

  const Problem& problem_;
  const SearchOptions& options_;
  SearchClock clock_;
  WorkerTeam team_;
  SearchSpace space_;
  std::unique_ptr<PlacementScorer> scorer_;
  SearchResult result_;
  std::vector<Operator> operators_;
  int64_t turns_ = 0, anneals_ = 0, tried_at_ = 0, cycles_ = 0;
};

}  // namespace

SearchResult LocalSearch(const Problem& problem, const SearchOptions& options) {
  CheckCandidates(problem);
  for (const std::vector<int32_t>& start : options.starts) CheckPlacement(problem, start);
  if (problem.num_ops() == 0) {
    SearchResult result;
    result.score.missing_links = 0;
    result.is_optimal = true;
    return result;
  }
  return LocalSearcher(problem, options).Run();
}

}  // namespace hplacer
