// Scores of a search beside the steps that the simulator tells.

#include "engine/simulator/placement_scorer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "problem_builder.h"
#include "simulator/run.h"

namespace hplacer {
namespace {

constexpr int32_t kFollowers = 12;

// More follow op 0 on the GPU than TensorFlow keeps in order. The last one is on the host.
ProblemBuilder Hub() {
  ProblemBuilder b;
  b.Device();
  b.Device();
  b.Link(0, 1, "down", 4, 1'000'000'000);
  b.Link(1, 0, "up", 4, 1'000'000'000);
  b.spec.device_launch_ns = {0, 5};
  b.Op(1, {0});
  for (int32_t i = 0; i < kFollowers; ++i) {
    b.Op(10 + i, {0});
    b.Edge(0, 0, 1 + i);
  }
  b.Op(100);
  b.Edge(0, 0, 1 + kFollowers);
  return b;
}

std::vector<int32_t> AllButLastOnGpu() {
  std::vector<int32_t> placement(kFollowers + 2, 1);
  placement.back() = 0;
  return placement;
}

// With the launch seeds from this one on.
std::vector<int64_t> StepsNs(ProblemBuilder* b, int64_t seed, int32_t count) {
  std::vector<int64_t> steps_ns;
  for (b->spec.launch_seed = seed; b->spec.launch_seed < seed + count; ++b->spec.launch_seed) {
    steps_ns.push_back(Simulate(b->Build(), AllButLastOnGpu(), 1).makespan_ns);
  }
  b->spec.launch_seed = seed;
  return steps_ns;
}

TEST_CASE("the worst of several orders of launches is the score") {
  ProblemBuilder b = Hub();
  int different = 0;
  for (const int64_t seed : {0, 7, 20}) {
    const std::vector<int64_t> steps_ns = StepsNs(&b, seed, kLaunchOrders);
    const int64_t worst_ns = *std::max_element(steps_ns.begin(), steps_ns.end());
    different += worst_ns != steps_ns[0];
    const Problem problem = b.Build();
    const TailTables tables(problem);
    const auto scorer = MakePlacementScorer(problem, tables);
    Score score;
    Schedule schedule;
    CHECK(scorer->Run(AllButLastOnGpu().data(), Score(), &score, &schedule));
    CHECK(score.makespan_ns == worst_ns);
    const StepTrace trace = Simulate(problem, AllButLastOnGpu());
    CHECK(trace.makespan_ns == worst_ns);
    CHECK(steps_ns[trace.launch_order] == worst_ns);
    CHECK(*std::max_element(schedule.finish_ns.begin(), schedule.finish_ns.end()) == worst_ns);
    Score cutoff = score;
    CHECK_FALSE(scorer->Run(AllButLastOnGpu().data(), cutoff, &score, nullptr));
    ++cutoff.makespan_ns;
    CHECK(scorer->Run(AllButLastOnGpu().data(), cutoff, &score, nullptr));
    CHECK(MakePlacementScorer(problem, tables, 1)
              ->Run(AllButLastOnGpu().data(), Score(), &score, nullptr));
    CHECK(score.makespan_ns == steps_ns[0]);
  }
  CHECK(different > 0);
}

TEST_CASE("where nothing is drawn, one order is simulated") {
  for (const int64_t launch_ns : {0, 5}) {
    ProblemBuilder b = Hub();
    b.spec.device_launch_ns = {0, launch_ns};
    const Problem problem = b.Build();
    const TailTables tables(problem);
    const auto scorer = MakePlacementScorer(problem, tables);
    Score score;
    CHECK(scorer->Run(AllButLastOnGpu().data(), Score(), &score, nullptr));
    CHECK(scorer->work() == (launch_ns > 0 ? kLaunchOrders : 1) * problem.num_ops());
  }
}

}  // namespace
}  // namespace hplacer
