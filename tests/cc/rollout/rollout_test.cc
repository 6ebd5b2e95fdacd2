#include "engine/rollout/rollout.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/rollout/rollout_search.h"
#include "engine/search/local_search.h"
#include "engine/search/search_levels.h"
#include "engine/search/unit_clusters.h"
#include "engine/simulator/simulator.h"
#include "search/random_problem.h"

namespace hplacer {
namespace {

PlacementPolicy EarliestFinish() {
  PlacementPolicy policy;
  policy.weight[kWait] = policy.weight[kLate] = policy.weight[kWork] = 1;
  return policy;
}

PlacementPolicy Balanced(bool is_lazy) {
  PlacementPolicy policy = EarliestFinish();
  policy.weight[kApart] = policy.weight[kCrowding] = policy.weight[kFull] = 1;
  policy.is_lazy = is_lazy;
  return policy;
}

Items EachUnit(const Problem& problem) {
  std::vector<int32_t> own(problem.num_units());
  std::iota(own.begin(), own.end(), 0);
  Grouping members = GroupByLabel(own, problem.num_units());
  return {std::move(own), std::move(members)};
}

std::vector<int32_t> Expand(const Problem& problem, const std::vector<int32_t>& unit_device) {
  std::vector<int32_t> placement;
  for (const int32_t unit : problem.units()) placement.push_back(unit_device[unit]);
  return placement;
}

RolloutOptions Options(int64_t evaluations) {
  RolloutOptions options;
  options.policies = {EarliestFinish(), Balanced(false), Balanced(true)};
  for (int32_t kind = 0; kind < static_cast<int32_t>(ItemKind::kNumKinds); ++kind) {
    for (int32_t policy = 0; policy < 3; ++policy) {
      options.chains.push_back({policy, static_cast<ItemKind>(kind)});
    }
  }
  options.limits.max_evaluations = evaluations;
  return options;
}

TEST_CASE("a rollout puts every unit on a candidate, and fixed ones where they were") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Problem problem = RandomProblem(seed, 60, true);
    const SearchSpace space(problem);
    const RolloutSpace rollout_space(space, {});
    Rollout rollout(rollout_space);
    const Items items = EachUnit(problem);
    const std::vector<int32_t> before = UnitDevices(problem, RandomPlacement(problem, seed));
    std::vector<uint8_t> is_free(problem.num_units());
    for (int32_t unit = 0; unit < problem.num_units(); ++unit) is_free[unit] = unit % 3 == 0;
    for (const bool is_lazy : {false, true}) {
      for (const Rollout::Begin& begin :
           {Rollout::Begin{}, Rollout::Begin{&before}, Rollout::Begin{&before, &is_free}}) {
        const std::vector<int32_t>& after = rollout.Run(items, Balanced(is_lazy), begin);
        for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
          REQUIRE(problem.IsCandidate(unit, after[unit]));
          if (begin.is_free != nullptr && !is_free[unit]) REQUIRE(after[unit] == before[unit]);
        }
      }
    }
  }
}

TEST_CASE("the step that a rollout foresees is close to the simulated one") {
  double error = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Problem problem = RandomProblem(seed, 200);
    const SearchSpace space(problem);
    const RolloutSpace rollout_space(space, {});
    Rollout rollout(rollout_space);
    const std::vector<int32_t> unit_device = rollout.Run(EachUnit(problem), EarliestFinish(), {});
    const StepTrace trace = Simulate(problem, Expand(problem, unit_device));
    const std::vector<int64_t>& finish_ns = rollout.finish_ns();
    const auto foreseen = *std::max_element(finish_ns.begin(), finish_ns.end());
    error += std::abs(static_cast<double>(foreseen) / trace.makespan_ns - 1) / 100;
  }
  CHECK(error < 0.05);
}

TEST_CASE("units of an item stay together") {
  const Problem problem = RandomProblem(3, 200);
  const SearchSpace space(problem);
  const RolloutSpace rollout_space(space, {});
  Rollout rollout(rollout_space);
  const std::vector<int32_t> label = ClusterUnits(problem, {20}, 8).front();
  const Items items{label, GroupByLabel(label, 1 + *std::max_element(label.begin(), label.end()))};
  const std::vector<int32_t>& device = rollout.Run(items, Balanced(false), {});
  for (size_t unit = 0; unit < label.size(); ++unit) {
    CHECK(device[unit] == device[items.members.items[items.members.ptr[label[unit]]]]);
  }
}

TEST_CASE("small problems are solved nearly to the optimum") {
  double ratio = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Problem problem = RandomProblem(seed, 9);
    const SearchResult exact = LocalSearch(problem, {});
    REQUIRE(exact.is_optimal);
    const SearchResult found = RolloutSearch(problem, Options(1000));
    REQUIRE(found.score.makespan_ns >= exact.score.makespan_ns);
    ratio += static_cast<double>(found.score.makespan_ns) / exact.score.makespan_ns / 100;
  }
  CHECK(ratio < 1.01);
}

TEST_CASE("passes, clusters and sweeps find what one pass over the units does not") {
  double one_pass = 0, all = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Problem problem = RandomProblem(seed, 150);
    RolloutOptions options = Options(400);
    all += RolloutSearch(problem, options).score.makespan_ns;
    options.passes = 1;
    options.chains.resize(3);  // those of units
    options.sweeps = false;
    one_pass += RolloutSearch(problem, options).score.makespan_ns;
  }
  CHECK(all < 0.97 * one_pass);
}

TEST_CASE("the answer depends on the number of evaluations, not on that of threads") {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Problem problem = RandomProblem(seed, 100, true);
    RolloutOptions options = Options(150);
    const SearchResult alone = RolloutSearch(problem, options);
    options.threads = 3;
    const SearchResult together = RolloutSearch(problem, options);
    CHECK(alone.placement == together.placement);
    CHECK(alone.evaluations == 150);
    CHECK(together.evaluations == 150);
  }
}

TEST_CASE("what does not fit one memory is made to fit two") {
  for (int64_t share = 55; share <= 90; share += 5) {
    ProblemBuilder b;
    for (int32_t d = 0; d < 2; ++d) b.Device(1, 40 * share);
    b.Link(0, 1, "x", 1);
    b.Link(1, 0, "y", 1);
    for (int32_t op = 0; op < 40; ++op) {
      b.Op(10, {1}, 0, 100);
      if (op > 0) b.Edge(op - 1, 0, op);
    }
    const Problem problem = b.Build();
    const SearchResult found = RolloutSearch(problem, Options(200));
    CHECK(found.score.feasible());
    // A chain is cut once.
    CHECK(found.score.makespan_ns <= 40 * 10 + 2);
  }
}

TEST_CASE("a scope without a label for each unit is refused") {
  const Problem problem = RandomProblem(0, 10);
  RolloutOptions options = Options(10);
  options.scope = {0, 1};
  CHECK_THROWS_AS(RolloutSearch(problem, options), ProblemError);
}

}  // namespace
}  // namespace hplacer
