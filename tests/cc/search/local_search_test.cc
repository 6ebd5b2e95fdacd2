#include "engine/search/local_search.h"

#include <doctest/doctest.h>

#include <vector>

#include "engine/search/enumeration.h"
#include "engine/search/phase_partition.h"
#include "engine/search/search_levels.h"
#include "engine/simulator/critical_chain.h"
#include "engine/simulator/placed_tails.h"
#include "engine/simulator/placement_scorer.h"
#include "engine/simulator/simulator.h"
#include "random_problem.h"

namespace hplacer {
namespace {

using Placement = std::vector<int32_t>;

TEST_CASE("a scorer with a cutoff says what a full simulation says, or that it is not better") {
  int32_t given_up = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Problem problem = RandomProblem(seed, 40);
    const TailTables tables(problem);
    const auto scorer = MakePlacementScorer(problem, tables);
    for (uint64_t i = 0; i < 10; ++i) {
      const Placement placement = RandomPlacement(problem, i);
      const StepTrace trace = Simulate(problem, placement);
      Score cutoff;
      cutoff.missing_links = 0;
      cutoff.makespan_ns = trace.makespan_ns + static_cast<int64_t>(i) - 5;
      Score score;
      const bool is_better = scorer->Run(placement.data(), cutoff, &score, nullptr);
      REQUIRE(is_better == (trace.makespan_ns < cutoff.makespan_ns));
      if (is_better) REQUIRE(score.makespan_ns == trace.makespan_ns);
      given_up += scorer->work() < problem.num_ops();
    }
  }
  CHECK(given_up > 500);
}

TEST_CASE("a turn that ends after the step is no part of it") {
  // The send waits 1 ns at the most, and the turn that it would wait for lasts longer.
  ProblemBuilder b;
  for (int32_t device = 0; device < kDevices; ++device) b.Device();
  for (int32_t src = 0; src < kDevices; ++src) {
    for (int32_t dst = 0; dst < kDevices; ++dst) {
      if (src != dst) b.Link(src, dst, "x");
    }
  }
  b.spec.device_turn_ns.assign(kDevices, 3);
  b.spec.link_send_ns.assign(b.spec.link_src.size(), 1);
  for (int32_t op = 0; op < 6; ++op) b.Op(0);
  b.Control(3, 4);
  b.Control(3, 5);
  b.Control(0, 1);
  const Problem problem = b.Build();
  const TailTables tables(problem);
  const auto scorer = MakePlacementScorer(problem, tables);
  for (int32_t number = 0; number < 729; ++number) {
    Placement placement(6);
    for (int32_t op = 0, rest = number; op < 6; ++op, rest /= kDevices) {
      placement[op] = rest % kDevices;
    }
    const StepTrace trace = Simulate(problem, placement);
    REQUIRE(trace.feasible);
    for (int64_t cutoff_ns = 1; cutoff_ns < 8; ++cutoff_ns) {
      const Score cutoff{0, 0, cutoff_ns};
      Score score;
      const bool is_better = scorer->Run(placement.data(), cutoff, &score, nullptr);
      REQUIRE(is_better == (trace.makespan_ns < cutoff_ns));
      if (is_better) REQUIRE(score.makespan_ns == trace.makespan_ns);
    }
  }
}

TEST_CASE("the critical chain is contiguous in time and ends with the step") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Problem problem = RandomProblem(seed, 40);
    const TailTables tables(problem);
    const auto scorer = MakePlacementScorer(problem, tables);
    const Placement placement = RandomPlacement(problem, seed);
    Score score;
    Schedule schedule;
    REQUIRE(scorer->Run(placement.data(), Score(), &score, &schedule));
    const std::vector<int32_t> chain = FindCriticalChain(problem, placement.data(), schedule).ops;
    CHECK(schedule.finish_ns[chain.front()] == score.makespan_ns);
    CHECK(schedule.start_ns[chain.back()] == 0);
    for (size_t i = 1; i < chain.size(); ++i) {
      CHECK(schedule.finish_ns[chain[i]] <= schedule.start_ns[chain[i - 1]]);
    }
  }
}

TEST_CASE("annealing finds the optimum of small problems nearly always") {
  int32_t optimal = 0;
  constexpr int32_t kProblems = 100;
  for (uint64_t seed = 0; seed < kProblems; ++seed) {
    const Problem problem = RandomProblem(seed, 9);
    SearchOptions options;
    const SearchResult exact = LocalSearch(problem, options);
    REQUIRE(exact.is_optimal);
    options.max_enumerated = 0;
    options.limits.max_evaluations = 5000;
    const SearchResult found = LocalSearch(problem, options);
    CHECK(!found.is_optimal);
    REQUIRE(found.score.makespan_ns >= exact.score.makespan_ns);
    CHECK(found.score.makespan_ns <= exact.score.makespan_ns * 1.15 + 1);
    optimal += found.score.makespan_ns == exact.score.makespan_ns;
  }
  CHECK(optimal >= kProblems * 95 / 100);
}

TEST_CASE("a search is the same for any number of threads") {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const Problem problem = RandomProblem(seed, 80, /*restricted=*/true);
    SearchOptions options;
    options.limits.max_evaluations = 3000;
    options.seed = seed;
    options.threads = 1;
    const SearchResult alone = LocalSearch(problem, options);
    for (int threads : {2, 4}) {
      options.threads = threads;
      const SearchResult together = LocalSearch(problem, options);
      CHECK(together.placement == alone.placement);
      CHECK(together.evaluations == alone.evaluations);
    }
  }
}

TEST_CASE("a partition by phases keeps two parallel chains apart") {
  ProblemBuilder b;
  for (int32_t d = 0; d < 2; ++d) b.Device();
  b.Link(0, 1, "x");
  b.Link(1, 0, "y");
  for (int32_t op = 0; op < 40; ++op) {
    b.Op(100, {50});
    if (op >= 2) b.Edge(op - 2, 0, op);
  }
  const Problem problem = b.Build();
  const SearchLevels levels(SearchSpace(problem), 0);
  REQUIRE(levels.size() > 0);
  std::vector<PartitionLevel> hierarchy;
  for (size_t i = levels.size(); i-- > 0;) {
    hierarchy.push_back({&levels[i].space(), &levels[i].cluster()});
  }
  const Placement placement = PartitionByPhases(hierarchy, {4, 1.0, 0});
  // The optimum is 2000; two halves one after the other, which cut no more, take 4000.
  CHECK(Simulate(problem, placement).makespan_ns <= 2400);
}

}  // namespace
}  // namespace hplacer
