#include "engine/search/memory_repair.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "engine/simulator/simulator.h"
#include "random_problem.h"

namespace hplacer {
namespace {

using Placement = std::vector<int32_t>;

TEST_CASE("memory is repaired by exchanging units") {
  ProblemBuilder b;
  b.Device(1, 100);
  b.Device(1, 100);
  b.Link(0, 1, "x");
  b.Link(1, 0, "y");
  for (int64_t bytes : {60, 60, 40, 40}) b.Op(1, {}, 0, bytes);
  const Problem problem = b.Build();
  const TailTables tables(problem);
  const auto scorer = MakePlacementScorer(problem, tables);
  int32_t evaluations = 0;
  const Placement repaired = RepairMemory(problem, scorer.get(), 0, {0, 0, 1, 1}, &evaluations);
  CHECK(Simulate(problem, repaired).feasible);
  CHECK(evaluations == 2);
}

// A random problem whose units hold memory, on devices of `bytes` each.
Problem TightProblem(uint64_t seed, int64_t bytes) {
  ProblemSpec spec = RandomProblem(seed, 40, /*restricted=*/true).spec();
  RandomStream random(seed, 2, 2);
  for (int64_t& held : spec.persistent_bytes) held = random.Below(100);
  for (int64_t& memory : spec.device_memory_bytes) memory = bytes;
  return Problem::Build(spec);
}

TEST_CASE("a repaired placement is allowed, no worse, and of the evaluations that were counted") {
  int32_t repaired_ones = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Problem problem = TightProblem(seed, 1100);  // of about 2000 bytes in all
    const TailTables tables(problem);
    const auto scorer = MakePlacementScorer(problem, tables);
    const Placement start = RandomPlacement(problem, seed);
    Score before, after;
    REQUIRE(scorer->Run(start.data(), Score(), &before, nullptr));
    int32_t evaluations = 0;
    const Placement found = RepairMemory(problem, scorer.get(), seed, start, &evaluations);
    REQUIRE(scorer->Run(found.data(), Score(), &after, nullptr));
    CHECK(!(before < after));
    CHECK(after.feasible() == Simulate(problem, found).feasible);
    CHECK(evaluations >= 1);
    if (before.feasible()) CHECK((found == start && evaluations == 1));
    if (!before.feasible() && after.feasible()) ++repaired_ones;
    std::vector<int32_t> device(problem.num_units(), -1);
    for (int32_t op = 0; op < problem.num_ops(); ++op) {
      const int32_t unit = problem.units()[op];
      CHECK(problem.IsCandidate(unit, found[op]));
      if (device[unit] < 0) device[unit] = found[op];
      CHECK(device[unit] == found[op]);
    }
    int32_t again = 0;
    CHECK(RepairMemory(problem, scorer.get(), seed, start, &again) == found);
    CHECK(again == evaluations);
  }
  CHECK(repaired_ones > 5);
}

TEST_CASE("what no placement fits is given up after a few evaluations") {
  const Problem problem = TightProblem(1, 10);
  const TailTables tables(problem);
  const auto scorer = MakePlacementScorer(problem, tables);
  int32_t evaluations = 0;
  const Placement found =
      RepairMemory(problem, scorer.get(), 0, RandomPlacement(problem, 0), &evaluations);
  CHECK(!Simulate(problem, found).feasible);
  CHECK(evaluations <= 8);
}

}  // namespace
}  // namespace hplacer
