#include "engine/simulator/placement_scorer.h"

#include <algorithm>

#include "engine/simulator/infeasibility.h"
#include "engine/simulator/step_simulation.h"
#include "engine/simulator/worker_team.h"

namespace hplacer {
namespace {

int64_t MissingBytes(const Problem& problem, const std::vector<int64_t>& peak_bytes) {
  int64_t missing = 0;
  for (int32_t device = 0; device < problem.num_devices(); ++device) {
    missing +=
        std::max<int64_t>(0, peak_bytes[device] - problem.spec().device_memory_bytes[device]);
  }
  return missing;
}

template <typename EventKey>
class Scorer : public PlacementScorer {
 public:
  Scorer(const Problem& problem, const TailTables& tables)
      : problem_(problem), tails_(problem, tables) {}

  bool Run(const int32_t* placement, const Score& cutoff, Score* score,
           Schedule* schedule) override {
    work_ = 0;
    *score = Score();
    if (!tails_.Compute(placement)) {
      score->missing_links = CountMissingLinks(problem_, placement);
      if (schedule != nullptr) *schedule = Schedule();
      return *score < cutoff;
    }
    score->missing_links = 0;
    bool has_trace;
    if (cutoff.feasible()) {
      if (tails_.path_ns() >= cutoff.makespan_ns) return false;
      const StepCutoff limit{cutoff.makespan_ns, tails_.tail_ns().data(), tails_.load_ns().data()};
      has_trace = simulation_.Run(problem_, placement, &limit);
    } else {
      has_trace = simulation_.Run(problem_, placement);
    }
    work_ = simulation_.num_started();
    if (!has_trace) return false;
    score->missing_bytes = MissingBytes(problem_, simulation_.peak_bytes());
    score->makespan_ns = simulation_.makespan_ns();
    if (!(*score < cutoff)) return false;
    if (schedule != nullptr) {
      simulation_.CopyTimes(&schedule->start_ns, &schedule->finish_ns);
      schedule->transfers = simulation_.Transfers();
      simulation_.CopyOrder(&schedule->order);
    }
    return true;
  }

  const std::vector<int64_t>& peak_bytes() const override { return simulation_.peak_bytes(); }

 private:
  const Problem& problem_;
  PlacedTails tails_;
  StepSimulation<EventKey, false> simulation_;
};

}  // namespace

std::unique_ptr<PlacementScorer> MakePlacementScorer(const Problem& problem,
                                                     const TailTables& tables) {
  if (StepSimulation<ShortEventKey, false>::Fits(problem)) {
    return std::make_unique<Scorer<ShortEventKey>>(problem, tables);
  }
  return std::make_unique<Scorer<LongEventKey>>(problem, tables);
}

void SimulateBelow(const Problem& problem, const int32_t* placements, int64_t count,
                   int64_t cutoff_ns, int threads, int64_t* makespan_ns) {
  const int64_t n = problem.num_ops();
  for (int64_t row = 0; row < count; ++row) CheckPlacement(problem, placements + row * n, n);
  const TailTables tables(problem);
  WorkerTeam team(threads);
  std::vector<std::unique_ptr<PlacementScorer>> scorers;
  for (int i = 0; i < team.size(); ++i) scorers.push_back(MakePlacementScorer(problem, tables));
  Score cutoff;
  cutoff.missing_links = 0;
  cutoff.makespan_ns = cutoff_ns;
  team.ForEach(static_cast<int32_t>(count), [&](int worker, int32_t row) {
    const int32_t* placement = placements + row * n;
    Score score;
    const bool is_below = HonoursConstraints(problem, placement) &&
                          scorers[worker]->Run(placement, cutoff, &score, nullptr);
    makespan_ns[row] = is_below ? score.makespan_ns : -1;
  });
}

}  // namespace hplacer
