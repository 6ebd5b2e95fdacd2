#include "engine/simulator/schedule_slack.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "../search/random_problem.h"
#include "two_ways.h"

namespace hplacer {
namespace {

Schedule ScheduleOf(const Problem& problem, const std::vector<int32_t>& placement) {
  Score score;
  Schedule schedule;
  MakePlacementScorer(problem, TailTables(problem))
      ->Run(placement.data(), Score(), &score, &schedule);
  return schedule;
}

std::vector<int64_t> LateStarts(const Problem& problem, const std::vector<int32_t>& placement) {
  ScheduleSlack slack;
  slack.Compute(problem, placement.data(), ScheduleOf(problem, placement));
  return slack.late_start_ns();
}

TEST_CASE("slack is what transfers and the next op of the device leave") {
  TwoWays step;
  const int32_t here = step.here, there = step.there;
  step.b.Control(step.first, step.b.Op(7));
  // `first` to 100, `long_way` to 150, `last` to 180; `short_way` from 120 to 130, back at 135.
  // The fifth op gets the signal of `first` with its tensor, runs after `short_way` and nobody
  // waits for it.
  const Problem problem = step.b.Build();
  CHECK(LateStarts(problem, {here, here, there, here, there}) ==
        std::vector<int64_t>{0, 100, 135, 150, 173});
}

TEST_CASE("an op starts no later than it may, and one that ends the step at once") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Problem problem = RandomProblem(seed, 80, /*restricted=*/true);
    const std::vector<int32_t> placement = RandomPlacement(problem, seed);
    const Schedule schedule = ScheduleOf(problem, placement);
    ScheduleSlack slack;
    slack.Compute(problem, placement.data(), schedule);
    for (int32_t op = 0; op < problem.num_ops(); ++op) {
      CHECK(slack.late_start_ns()[op] >= schedule.start_ns[op]);
    }
    const auto last = std::max_element(schedule.finish_ns.begin(), schedule.finish_ns.end());
    const auto op = static_cast<int32_t>(last - schedule.finish_ns.begin());
    CHECK(slack.late_start_ns()[op] == schedule.start_ns[op]);
    CHECK(std::is_sorted(
        slack.pool_ops().begin(), slack.pool_ops().begin() + slack.pool_ptr()[1],
        [&](int32_t a, int32_t b) { return schedule.start_ns[a] < schedule.start_ns[b]; }));
  }
}

TEST_CASE("without a schedule there is no slack") {
  const Problem problem = RandomProblem(1, 10);
  ScheduleSlack slack;
  slack.Compute(problem, RandomPlacement(problem, 1).data(), Schedule());
  CHECK(slack.empty());
}

}  // namespace
}  // namespace hplacer
