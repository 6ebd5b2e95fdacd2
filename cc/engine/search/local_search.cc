#include "engine/search/local_search.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "engine/problem/candidates.h"
#include "engine/schedulers/etf.h"
#include "engine/schedulers/heft.h"
#include "engine/search/annealing.h"
#include "engine/search/enumeration.h"
#include "engine/search/joined_units.h"
#include "engine/search/memory_repair.h"
#include "engine/search/random_stream.h"
#include "engine/search/search_levels.h"
#include "engine/search/search_space.h"
#include "engine/search/unit_clusters.h"
#include "engine/simulator/worker_team.h"

namespace hplacer {
namespace {

using Placement = std::vector<int32_t>;

constexpr int32_t kRepairs = 4, kStartsAtOnce = 4;
constexpr int64_t kTryInterval = 256;  // evaluations of a coarse level
// Levels whose clusters are small enough for a coarse step to last nearly as long as a fine one.
constexpr size_t kAnnealedLevels = 2;
// Of the clusters that are units at first.
constexpr int32_t kClustersPerDevice[] = {8, 4, 2, 1};
constexpr int32_t kClusters = 1000, kLeastUnitsPerCluster = 3;
// In simulated ops: of the first cycle of each member, and of the later ones.
constexpr double kFirstWorkPerOp = 400, kLeastFirstWork = 10'000;
constexpr double kWorkPerOp = 1000, kLeastWork = 10'000, kWorkGrowth = 1.2;
// Of generations.
constexpr double kBestShare = 0.7, kCrossedShare = 0.7;
constexpr int32_t kPatience = 3;  // after so many that brought nothing, a new member comes
// Shares of the makespan; at least the mean unit to begin with.
constexpr double kBeginTemperature = 0.002, kFinestBeginTemperature = 0.0005;
constexpr double kCooling = 0.01;

class Search {
 public:
  Search(const Problem& problem, const SearchOptions& options)
      : problem_(problem),
        options_(options),
        clock_(options.limits),
        team_(std::max(1, options.threads)),
        space_(problem),
        scorer_(MakePlacementScorer(problem, space_.tables())) {}

  SearchResult Run() {
    TryStarts();
    if (CountPlacements(problem_, options_.max_enumerated) <= options_.max_enumerated) {
      result_.is_optimal = EnumeratePlacements(
          space_, &team_, [this](int32_t wanted) { return Take(wanted); }, &result_.placement,
          &result_.score);
    } else {
      Populate();
      while (!clock_.IsOver()) Breed();
    }
    clock_.Report(result_.score);
    result_.evaluations = clock_.evaluations();
    result_.ended_by_time = clock_.WasEndedByTime();
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

  // A placement that is improved on its own.
  struct Member {
    Placement placement;
    Score score;
  };

  double WorkOf(double per_op, double least) const {
    return std::max(per_op * problem_.num_ops(), least);
  }

  void Populate() {
    const int32_t clusters = std::min(kClusters, problem_.num_units() / kLeastUnitsPerCluster);
    labels_.resize(std::size(kClustersPerDevice));
    team_.ForEach(static_cast<int32_t>(labels_.size()), [&](int, int32_t i) {
      // Loners last: annealing of real clusters takes so long on large graphs with many constants,
      // such as NMT, that units come too late.
      labels_[i] = ClusterUnits(problem_, {std::max(1, clusters)}, kClustersPerDevice[i],
                                /*loners_last=*/true)
                       .front();
    });
    labels_.erase(std::unique(labels_.begin(), labels_.end()), labels_.end());
    labels_.insert(labels_.end(), options_.clusterings.begin(), options_.clusterings.end());
    for (size_t i = 0; i <= labels_.size() && !clock_.IsOver(); ++i) population_.push_back(Begin());
    ForgetClusterings();
    work_ = WorkOf(kWorkPerOp, kLeastWork);
  }

  // The caller's clusterings, which come last, would only cost moves unless they led to the best
  // member.
  void ForgetClusterings() {
    const size_t first = labels_.size() - options_.clusterings.size();
    for (size_t i = labels_.size(); i-- > first;) {
      const bool is_best =
          i + 1 < population_.size() &&
          std::none_of(population_.begin(), population_.end(), [&](const Member& member) {
            return member.score < population_[i + 1].score;
          });
      if (!is_best) labels_.erase(labels_.begin() + i);
    }
  }

  // From a start of its own: in turn of the problem itself and of each of its clusterings.
  Member Begin() {
    Member member{result_.placement, Score()};
    const size_t turn = begun_++ % (labels_.size() + 1);
    const double work = WorkOf(kFirstWorkPerOp, kLeastFirstWork);
    if (turn == 0) {
      RunCycle(work, {}, &space_, &member);
    } else {
      const Problem joined = JoinUnits(problem_, labels_[turn - 1]);
      SearchSpace space(joined);
      RunCycle(work, {}, &space, &member);
    }
    return member;
  }

  // Improves a member, mostly the best. What neither it nor another one has cut stays together.
  void Breed() {
    RandomStream random(options_.seed, 1, ++generation_);
    std::stable_sort(population_.begin(), population_.end(),
                     [](const Member& a, const Member& b) { return a.score < b.score; });
    const auto size = static_cast<int64_t>(population_.size());
    const int32_t self = random.Uniform() < kBestShare ? 0 : random.Below((size + 1) / 2);
    Member& member = population_[self];
    std::vector<int32_t> label = UnitDevices(problem_, member.placement);
    if (size > 1 && random.Uniform() < kCrossedShare) {
      int32_t other = random.Below(size - 1);
      other += other >= self;
      const std::vector<int32_t> devices = UnitDevices(problem_, population_[other].placement);
      for (size_t unit = 0; unit < label.size(); ++unit) {
        label[unit] = label[unit] * problem_.num_devices() + devices[unit];
      }
    }
    const Score before = member.score;
    RunCycle(work_, label, &space_, &member);
    work_ *= kWorkGrowth;
    barren_ = member.score < before ? 0 : barren_ + 1;
    if (barren_ < kPatience || clock_.IsOver()) return;
    barren_ = 0;
    population_.back() = Begin();
  }

  // Anneals two levels of a coarsening, then the problem. Without labels from the best of many
  // starts, else from the member's placement.
  void RunCycle(double work, const std::vector<int32_t>& label, SearchSpace* space,
                Member* member) {
    const uint64_t seed = options_.seed + static_cast<uint64_t>(cycles_++) * 1009;
    SearchLevels levels(*space, label, seed);
    levels.GiveClustersTo(space);
    if (space == &space_) {
      for (const auto& clusters : labels_) {
        space->AddClusters(clusters, 1 + *std::max_element(clusters.begin(), clusters.end()));
      }
    }
    Placement current = OnCandidates(space->problem(), member->placement);
    if (label.empty()) current = BestStartOn(levels, seed, current, space == &space_);
    double share = 0.5;
    for (size_t i = std::min(kAnnealedLevels, levels.size()); i-- > 0 && !clock_.IsOver();) {
      const SearchLevel& level = levels[i];
      Placement coarse = level.Restrict(current);
      Anneal(level.space(), work * share, kBeginTemperature, &coarse,
             [&](const Placement& better, const Score&) {
               if (clock_.evaluations() >= tried_at_ + kTryInterval) Try(level.Expand(better));
             });
      current = level.Expand(coarse);
      Try(current);
      share /= 2;
    }
    if (clock_.IsOver()) return;
    const Score score = Anneal(
        *space, work * share, kFinestBeginTemperature, &current,
        [this](const Placement& placement, const Score& better) { Keep(placement, better); });
    if (score < member->score) *member = {std::move(current), score};
  }

  // The fastest on the first annealed level: partitions, list schedules of the levels, and, if
  // `offers_best`, `best`. Members that all begin near one good placement find nothing else.
  Placement BestStartOn(const SearchLevels& levels, uint64_t seed, Placement best,
                        bool offers_best) {
    if (levels.size() == 0) return best;
    const SearchLevel& judge = levels[std::min(kAnnealedLevels, levels.size()) - 1];
    const auto scorer = MakePlacementScorer(judge.problem(), judge.space().tables());
    Score best_score;
    const auto offer = [&](const Placement& fine) {
      Score score;
      if (!scorer->Run(judge.Restrict(fine).data(), best_score, &score, nullptr)) return;
      best_score = score;
      best = fine;
    };
    if (offers_best) offer(best);
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

  Score Anneal(const SearchSpace& space, double work, double temperature, Placement* placement,
               std::function<void(const Placement&, const Score&)> on_best) {
    if (result_.score.feasible() && result_.score.makespan_ns > 0) {
      temperature = std::max(temperature,
                             space.MeanLoadNs() / static_cast<double>(result_.score.makespan_ns));
    }
    Annealing annealing(space, &team_, options_.seed ^ static_cast<uint64_t>(++anneals_) << 32);
    return annealing.Run({static_cast<int64_t>(work), temperature, temperature * kCooling},
                         {[this](int32_t wanted) { return Take(wanted); }, std::move(on_best)},
                         placement);
  }

  const Problem& problem_;
  const SearchOptions& options_;
  SearchClock clock_;
  WorkerTeam team_;
  SearchSpace space_;
  std::unique_ptr<PlacementScorer> scorer_;
  SearchResult result_;
  std::vector<std::vector<int32_t>> labels_;  // clusters of units
  std::vector<Member> population_;
  double work_ = 0;
  int64_t anneals_ = 0, tried_at_ = 0, cycles_ = 0, begun_ = 0, generation_ = 0, barren_ = 0;
};

}  // namespace

SearchResult LocalSearch(const Problem& problem, const SearchOptions& options) {
  CheckCandidates(problem);
  for (const std::vector<int32_t>& start : options.starts) CheckPlacement(problem, start);
  for (const std::vector<int32_t>& label : options.clusterings) CheckClustering(problem, label);
  if (problem.num_ops() == 0) {
    SearchResult result;
    result.score.missing_links = 0;
    result.is_optimal = true;
    return result;
  }
  return Search(problem, options).Run();
}

}  // namespace hplacer
