#include "engine/simulator/placement_scorer.h"

#include <limits>

#include "engine/simulator/infeasibility.h"
#include "engine/simulator/step_simulation.h"

namespace hplacer {
namespace {

template <typename EventKey>
class Scorer : public PlacementScorer {
 public:
  Scorer(const Problem& problem, const TailTables& tables, int32_t launch_orders)
      : problem_(problem), launch_orders_(launch_orders), tails_(problem, tables) {}

  bool Run(const int32_t* placement, const Score& cutoff, Score* score,
           Schedule* schedule) override {
    work_ = 0;
    *score = Score();
    if (!tails_.Compute(placement)) {
      score->missing_links = CountMissingLinks(problem_, placement);
      if (schedule != nullptr) *schedule = Schedule();
      return *score < cutoff;
    }
    if (cutoff.feasible() && tails_.path_ns() >= cutoff.makespan_ns) return false;
    const StepCutoff limit{cutoff.makespan_ns, tails_.tail_ns().data(), tails_.load_ns().data()};
    for (int64_t order = 0; order < launch_orders_; ++order) {
      const bool has_trace =
          simulation_.Run(problem_, placement, cutoff.feasible() ? &limit : nullptr, order);
      work_ += simulation_.num_started();
      if (!has_trace) return false;
      const Score found = {0, MissingBytes(problem_, simulation_.peak_bytes().data()),
                           simulation_.makespan_ns()};
      const bool is_worst = order == 0 || *score < found;
      if (is_worst) *score = found;
      if (!(*score < cutoff)) return false;
      if (is_worst && schedule != nullptr) CopySchedule(schedule);
      if (!simulation_.has_drawn()) break;  // all orders are the same
    }
    return true;
  }

  const std::vector<int64_t>& peak_bytes() const override { return simulation_.peak_bytes(); }

 private:
  void CopySchedule(Schedule* schedule) const {
    simulation_.CopyTimes(&schedule->start_ns, &schedule->finish_ns);
    schedule->transfers = simulation_.Transfers();
    simulation_.CopyOrder(&schedule->order);
  }

  const Problem& problem_;
  const int32_t launch_orders_;
  PlacedTails tails_;
  StepSimulation<EventKey, false> simulation_;
};

}  // namespace

std::unique_ptr<PlacementScorer> MakePlacementScorer(const Problem& problem,
                                                     const TailTables& tables,
                                                     int32_t launch_orders) {
  if (StepSimulation<ShortEventKey, false>::Fits(problem)) {
    return std::make_unique<Scorer<ShortEventKey>>(problem, tables, launch_orders);
  }
  return std::make_unique<Scorer<LongEventKey>>(problem, tables, launch_orders);
}

}  // namespace hplacer
