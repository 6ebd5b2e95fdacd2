#include "engine/local_search.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>

#include "engine/annealing.h"
#include "engine/candidates.h"
#include "engine/coarsening.h"
#include "engine/enumeration.h"
#include "engine/etf.h"
#include "engine/heft.h"
#include "engine/phase_partition.h"
#include "engine/search_space.h"
#include "engine/topo.h"
#include "engine/worker_team.h"

namespace hplacer {
namespace {

using Placement = std::vector<int32_t>;

constexpr int64_t kMaxEnumerated = 60'000;
constexpr double kProgressInterval = 0.02;  // seconds

double Env(const char* name, double value) {
  const char* text = getenv(name);
  return text ? atof(text) : value;
}

// Which limits a search has met.
class SearchClock {
 public:
  explicit SearchClock(const SearchOptions& options)
      : options_(options), begin_(std::chrono::steady_clock::now()) {}

  int64_t evaluations() const { return evaluations_; }
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  bool IsOver() const { return is_over_; }
  bool WasEndedByTime() const { return ended_by_time_; }

  // The evaluations that may be made now, at most `wanted`.
  int32_t Take(int32_t wanted, const Score& best) {
    if (is_over_) return 0;
    const double now = Seconds();
    if (options_.on_progress && now >= reported_at_ + kProgressInterval) {
      reported_at_ = now;
      Report(best);
    }
    if (now >= options_.seconds) ended_by_time_ = true;
    const int64_t left = std::min(options_.max_evaluations - evaluations_,
                                  options_.patience - (evaluations_ - improved_at_));
    is_over_ = ended_by_time_ || left <= 0;
    if (is_over_) return 0;
    const auto taken = static_cast<int32_t>(std::min<int64_t>(wanted, left));
    evaluations_ += taken;
    return taken;
  }
  // Tells how far the search has come, unless it was told already.
  void Report(const Score& best) {
    if (!options_.on_progress || reported_ == evaluations_) return;
    reported_ = evaluations_;
    if (!options_.on_progress({evaluations_, best})) ended_by_time_ = true;
  }
  void OnImproved() { improved_at_ = evaluations_; }

 private:
  const SearchOptions& options_;
  const std::chrono::steady_clock::time_point begin_;
  int64_t evaluations_ = 0, improved_at_ = 0, reported_ = -1;
  double reported_at_ = -kProgressInterval;
  bool ended_by_time_ = false, is_over_ = false;
};

// One level of a cycle.
struct Level {
  Level(Problem coarse, Placement cluster_of_op)
      : problem(std::move(coarse)), space(problem), cluster(std::move(cluster_of_op)) {}

  Problem problem;
  SearchSpace space;
  Placement cluster;  // [n] of the ops of the finest problem
};

class Search {
 public:
  Search(const Problem& problem, const SearchOptions& options)
      : problem_(problem),
        options_(options),
        clock_(options),
        team_(std::max(1, options.threads)),
        space_(problem),
        scorer_(MakePlacementScorer(problem, space_.tables())) {}

  SearchResult Run() {
    TryStarts();
    if (CountPlacements(problem_, kMaxEnumerated) <= kMaxEnumerated) {
      result_.is_optimal = EnumeratePlacements(
          space_, &team_, [this](int32_t wanted) { return clock_.Take(wanted, result_.score); },
          &result_.placement, &result_.score);
    } else {
      for (int32_t cycle = 0; !clock_.IsOver(); ++cycle) RunCycle(cycle);
    }
    clock_.Report(result_.score);
    result_.evaluations = clock_.evaluations();
    result_.ended_by_time = clock_.WasEndedByTime();
    return std::move(result_);
  }

 private:
  void Offer(const Placement& placement) {
    Score score;
    if (!scorer_->Run(placement.data(), result_.score, &score, nullptr)) return;
    result_.score = score;
    result_.placement = placement;
    clock_.OnImproved();
  }

  void TryStart(const Placement& placement) {
    if (clock_.Take(1, result_.score) == 0 && !result_.placement.empty()) return;
    Offer(OnCandidates(placement));
  }

  // The placement with each unit on one of its candidates: what most of its ops want.
  Placement OnCandidates(const Placement& wanted) const {
    const int32_t m = problem_.num_devices();
    std::vector<int64_t> votes(static_cast<size_t>(problem_.num_units()) * m, 0);
    for (int32_t op = 0; op < problem_.num_ops(); ++op) {
      ++votes[static_cast<size_t>(problem_.units()[op]) * m + wanted[op]];
    }
    Placement result(problem_.num_ops());
    for (int32_t op = 0; op < problem_.num_ops(); ++op) {
      const int32_t unit = problem_.units()[op];
      int32_t best = problem_.candidates()[problem_.candidate_ptr()[unit]];
      for (int32_t i = problem_.candidate_ptr()[unit]; i < problem_.candidate_ptr()[unit + 1];
           ++i) {
        const int32_t device = problem_.candidates()[i];
        const int64_t* of_unit = &votes[static_cast<size_t>(unit) * m];
        if (of_unit[device] > of_unit[best]) best = device;
      }
      result[op] = best;
    }
    return result;
  }

  void TryStarts() {
    const int32_t m = problem_.num_devices();
    for (int32_t device = 0; device < m; ++device) {
      TryStart(Placement(problem_.num_ops(), device));
    }
    TryStart(PlaceHeft(problem_));
    TryStart(PlaceEtf(problem_));
    for (const Placement& start : options_.starts) TryStart(start);
  }

  void RunCycle(int32_t cycle) {
    const double t0 = cycle == 0 ? Env("HP_T0", 0.01) : Env("HP_T0B", 0.003);
    const double t1 = Env("HP_T1", 0.0002);
    const double quota = Env("HP_QUOTA", 2000) * problem_.num_ops() * std::pow(1.5, cycle);
    std::vector<int32_t> label;
    if (cycle > 0) {
      label.resize(problem_.num_units());
      for (int32_t op = 0; op < problem_.num_ops(); ++op) {
        label[problem_.units()[op]] = result_.placement[op];
      }
    }
    std::vector<std::unique_ptr<Level>> levels = MakeLevels(label, cycle);
    Placement current = result_.placement;
    if (cycle == 0 && !levels.empty()) {
      const Level& coarsest = *levels[std::min<size_t>(levels.size(), Env("HP_LEVELS", 2)) - 1];
      // The best list schedule of any level starts the coarsest.
      Score best;
      auto scorer = MakePlacementScorer(coarsest.problem, coarsest.space.tables());
      const auto offer = [&](const Placement& fine) {
        Score score;
        const Placement coarse = Restrict(coarsest, fine);
        if (getenv("HP_FID")) {
          scorer_->Run(fine.data(), Score(), &score, nullptr);
          fprintf(stderr, "FID %.4f", score.makespan_ns / 1e9);
          for (const auto& l : levels) {
            auto s2 = MakePlacementScorer(l->problem, l->space.tables());
            s2->Run(Restrict(*l, fine).data(), Score(), &score, nullptr);
            fprintf(stderr, " %.4f", score.makespan_ns / 1e9);
          }
          fprintf(stderr, "\n");
        }
        scorer->Run(coarse.data(), Score(), &score, nullptr);
        if (getenv("HP_STATS")) fprintf(stderr, "start coarse %.4f\n", score.makespan_ns / 1e9);
        if (score < best) {
          best = score;
          current = fine;
        }
      };
      offer(result_.placement);
      std::vector<PartitionLevel> hierarchy;
      for (size_t i = levels.size(); i-- > 0;)
        hierarchy.push_back({&levels[i]->space, &levels[i]->cluster});
      for (int32_t phases : {4, 16, 64}) {
        for (double cut : {0.1, 0.3, 1.0}) {
          const Placement fine = PartitionByPhases(hierarchy, {phases, cut, options_.seed});
          if (getenv("HP_STATS"))
            fprintf(stderr, "%6.2fs phases %d cut %.2f ", clock_.Seconds(), phases, cut);
          TryStart(fine);
          offer(fine);
        }
      }
      for (const auto& level : levels) {
        for (const Placement& placed : {PlaceHeft(level->problem), PlaceEtf(level->problem)}) {
          const Placement fine = Expand(*level, placed);
          TryStart(fine);
          offer(fine);
        }
      }
    }
    const size_t count = levels.size() + 1;
    double share = 0.5;
    for (size_t i = std::min<size_t>(levels.size(), Env("HP_LEVELS", 2));
         i-- > 0 && !clock_.IsOver();) {
      const Level& level = *levels[i];
      Placement coarse = Restrict(level, current);
      Anneal(level.space, {static_cast<int64_t>(quota * share), t0, t1}, cycle * 100 + i, &coarse);
      current = Expand(level, coarse);
      Offer(current);
      share *= 0.5;
    }
    (void)count;
    if (clock_.IsOver()) return;
    Annealing::Limits limits;
    limits.on_best = [&](const Placement& placement, const Score& score) {
      if (score < result_.score) {
        result_.score = score;
        result_.placement = placement;
        clock_.OnImproved();
      }
    };
    Anneal(space_, {static_cast<int64_t>(quota * share), t0 / 4, t1}, cycle * 100 + 99, &current,
           limits.on_best);
  }

  void Anneal(const SearchSpace& space, const AnnealingSchedule& schedule, uint64_t stream,
              Placement* placement,
              std::function<void(const Placement&, const Score&)> on_best = nullptr) {
    Annealing annealing(space, &team_, options_.seed * 1000003 + stream);
    const double begin = clock_.Seconds();
    const int64_t before = clock_.evaluations();
    const Score score = annealing.Run(
        schedule,
        {[this](int32_t wanted) { return clock_.Take(wanted, result_.score); }, std::move(on_best)},
        placement);
    if (getenv("HP_STATS")) {
      fprintf(stderr,
              "%6.2fs stream %lu ops %d: %.4f, %ld evals in %.2fs (%ld ns/work) best %.4f\n",
              clock_.Seconds(), stream, space.problem().num_ops(), score.makespan_ns / 1e9,
              clock_.evaluations() - before, clock_.Seconds() - begin,
              static_cast<long>((clock_.Seconds() - begin) * 1e9 / schedule.work),
              result_.score.makespan_ns / 1e9);
    }
  }

  std::vector<std::unique_ptr<Level>> MakeLevels(const std::vector<int32_t>& label, int32_t cycle) {
    std::vector<std::unique_ptr<Level>> levels;
    Coarsening coarsening(problem_, label, options_.seed * 7919 + cycle);
    int64_t total_ns = 0;
    for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
      int64_t least = std::numeric_limits<int64_t>::max();
      for (int32_t i = problem_.candidate_ptr()[unit]; i < problem_.candidate_ptr()[unit + 1];
           ++i) {
        least = std::min(least, space_.LoadNs(unit, problem_.candidates()[i]));
      }
      total_ns += least;
    }
    const int64_t max_work_ns = std::max<int64_t>(
        1, total_ns / problem_.num_devices() / static_cast<int64_t>(Env("HP_CAP", 1500)));
    for (int64_t cap_ns = max_work_ns, step = 0; step < 7; cap_ns *= 4, ++step) {
      const int32_t before = coarsening.num_clusters();
      if (before < Env("HP_LEAST", 20)) break;
      coarsening.Shrink(before / 10, cap_ns);
      if (coarsening.num_clusters() > before * 0.8) continue;
      levels.push_back(std::make_unique<Level>(coarsening.Contract(), coarsening.cluster()));
      if (getenv("HP_STATS")) {
        fprintf(stderr, "%6.2fs level %zu: %d ops, %d units\n", clock_.Seconds(), levels.size(),
                levels.back()->problem.num_ops(), levels.back()->problem.num_units());
      }
    }
    for (size_t i = 0; i < levels.size(); ++i) {
      for (size_t j = i + 1; j < levels.size(); ++j) {
        levels[i]->space.AddClusters(
            UnitClusters(levels[i]->problem, levels[i]->cluster, *levels[j]),
            levels[j]->problem.num_units());
      }
    }
    std::vector<int32_t> identity(problem_.num_ops());
    std::iota(identity.begin(), identity.end(), 0);
    space_.ClearClusters();
    for (const auto& level : levels) {
      space_.AddClusters(UnitClusters(problem_, identity, *level), level->problem.num_units());
    }
    return levels;
  }

  // The unit of `coarse` to which each unit of `fine` belongs.
  static std::vector<int32_t> UnitClusters(const Problem& fine, const Placement& fine_cluster,
                                           const Level& coarse) {
    std::vector<int32_t> result(fine.num_units());
    for (size_t op = 0; op < fine_cluster.size(); ++op) {
      result[fine.units()[fine_cluster[op]]] = coarse.problem.units()[coarse.cluster[op]];
    }
    return result;
  }

  // What most of the work of a coarse unit wants.
  Placement Restrict(const Level& level, const Placement& fine) const {
    const int32_t m = problem_.num_devices();
    const Problem& coarse = level.problem;
    std::vector<int64_t> votes(static_cast<size_t>(coarse.num_units()) * m, 0);
    for (int32_t op = 0; op < problem_.num_ops(); ++op) {
      const int32_t unit = coarse.units()[level.cluster[op]];
      votes[static_cast<size_t>(unit) * m + fine[op]] += 1 + problem_.CostNs(op, fine[op]);
    }
    Placement result(coarse.num_ops());
    for (int32_t c = 0; c < coarse.num_ops(); ++c) {
      const int64_t* of_unit = &votes[static_cast<size_t>(coarse.units()[c]) * m];
      result[c] = static_cast<int32_t>(std::max_element(of_unit, of_unit + m) - of_unit);
    }
    return result;
  }

  Placement Expand(const Level& level, const Placement& coarse) const {
    Placement fine(problem_.num_ops());
    for (int32_t op = 0; op < problem_.num_ops(); ++op) fine[op] = coarse[level.cluster[op]];
    return fine;
  }

  const Problem& problem_;
  const SearchOptions& options_;
  SearchClock clock_;
  WorkerTeam team_;
  SearchSpace space_;
  std::unique_ptr<PlacementScorer> scorer_;
  SearchResult result_;
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
  return Search(problem, options).Run();
}

}  // namespace hplacer
