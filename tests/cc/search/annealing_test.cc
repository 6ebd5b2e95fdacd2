#include "engine/search/annealing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "engine/simulator/simulator.h"
#include "random_problem.h"

namespace hplacer {
namespace {

using Placement = std::vector<int32_t>;

constexpr AnnealingSchedule kSchedule = {20'000, 0.01, 0.0001};

struct Outcome {
  Placement placement;
  Score score;
  std::vector<Score> best;  // as they were told
  int32_t evaluations = 0;
};

Outcome Anneal(const Problem& problem, uint64_t seed, int threads, int32_t max_evaluations) {
  const SearchSpace space(problem);
  WorkerTeam team(threads);
  Outcome outcome;
  outcome.placement = RandomPlacement(problem, seed);
  const auto take = [&](int32_t wanted) {
    const int32_t taken = std::min(wanted, max_evaluations - outcome.evaluations);
    outcome.evaluations += taken;
    return taken;
  };
  const auto tell = [&](const Placement&, const Score& score) { outcome.best.push_back(score); };
  outcome.score = Annealing(space, &team, seed).Run(kSchedule, {take, tell}, &outcome.placement);
  return outcome;
}

TEST_CASE("annealing returns the score of its placement, which is allowed and no worse") {
  int32_t improved = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Problem problem = RandomProblem(seed, 60, /*restricted=*/true);
    const int64_t begin_ns = Simulate(problem, RandomPlacement(problem, seed)).makespan_ns;
    const Outcome outcome = Anneal(problem, seed, 1, 2000);
    const StepTrace trace = Simulate(problem, outcome.placement);
    CHECK(trace.feasible);  // also: on candidates, units whole
    CHECK(trace.makespan_ns == outcome.score.makespan_ns);
    CHECK(trace.makespan_ns <= begin_ns);
    improved += trace.makespan_ns < begin_ns;
    CHECK(std::is_sorted(outcome.best.rbegin(), outcome.best.rend()));
    if (!outcome.best.empty()) CHECK(!(outcome.score < outcome.best.back()));
  }
  CHECK(improved >= 18);
}

TEST_CASE("annealing is the same for any number of threads") {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Problem problem = RandomProblem(seed, 80, /*restricted=*/true);
    const Outcome alone = Anneal(problem, seed, 1, 1000);
    for (int threads : {2, 4}) {
      const Outcome together = Anneal(problem, seed, threads, 1000);
      CHECK(together.placement == alone.placement);
      CHECK(together.score.makespan_ns == alone.score.makespan_ns);
      CHECK(together.evaluations == alone.evaluations);
      CHECK(together.best.size() == alone.best.size());
    }
  }
}

TEST_CASE("annealing ends where its limits say") {
  const Problem problem = RandomProblem(2, 60);
  const Outcome none = Anneal(problem, 2, 2, 0);
  CHECK(none.placement == RandomPlacement(problem, 2));
  CHECK(none.score.makespan_ns == Simulate(problem, none.placement).makespan_ns);
  CHECK(none.best.empty());
  CHECK(Anneal(problem, 2, 2, 37).evaluations == 37);
  // Without a limit of evaluations that of the simulated ops: each round counts some.
  const int32_t rounds = Anneal(problem, 2, 2, 1'000'000).evaluations / Annealing::kRoundSize;
  CHECK(rounds > 0);
  CHECK(rounds <= kSchedule.work / (problem.num_ops() / 16));
}

}  // namespace
}  // namespace hplacer
