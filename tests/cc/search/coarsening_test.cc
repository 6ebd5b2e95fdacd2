#include "engine/search/coarsening.h"

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "engine/simulator/simulator.h"
#include "random_problem.h"

namespace hplacer {
namespace {

TEST_CASE("a coarse problem has all the work, and no more ops run at once than in the fine one") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Problem problem = RandomProblem(seed, 200);
    Coarsening coarsening(problem, seed);
    REQUIRE(coarsening.Shrink(20, 1000));
    const Problem coarse = coarsening.Contract();  // refuses a cycle
    CHECK(coarse.num_ops() == coarsening.num_clusters());
    CHECK(coarse.num_ops() < 100);
    const auto& fine_ns = problem.spec().cost_ns;
    const auto& coarse_ns = coarse.spec().cost_ns;
    CHECK(std::accumulate(fine_ns.begin(), fine_ns.end(), int64_t{0}) ==
          std::accumulate(coarse_ns.begin(), coarse_ns.end(), int64_t{0}));
    for (int64_t ns : coarse_ns) CHECK(ns <= 1000);
    // On one device of one slot nothing but the order differs.
    const std::vector<int32_t> on_one(problem.num_ops(), 0), coarse_on_one(coarse.num_ops(), 0);
    if (problem.spec().device_slots[0] == 1) {
      CHECK(Simulate(problem, on_one).makespan_ns == Simulate(coarse, coarse_on_one).makespan_ns);
    }
  }
}

TEST_CASE("a cluster may run where its ops may, and units stay whole") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Problem problem = RandomProblem(seed, 100, /*restricted=*/true);
    Coarsening coarsening(problem, seed);
    CHECK(coarsening.Shrink(10, 1000));
    const Problem coarse = coarsening.Contract();
    const std::vector<int32_t>& cluster = coarsening.cluster();
    std::vector<int32_t> coarse_unit(problem.num_units(), -1);
    for (int32_t op = 0; op < problem.num_ops(); ++op) {
      const int32_t unit = problem.units()[op];
      CHECK(Candidates(coarse, coarse.units()[cluster[op]]) == Candidates(problem, unit));
      if (coarse_unit[unit] < 0) coarse_unit[unit] = coarse.units()[cluster[op]];
      CHECK(coarse_unit[unit] == coarse.units()[cluster[op]]);
    }
  }
}

TEST_CASE("coarsening keeps persistent memory, and what is read in another cluster") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    ProblemSpec spec = RandomProblem(seed, 100).spec();
    for (size_t op = 0; op < spec.persistent_bytes.size(); ++op) spec.persistent_bytes[op] = op;
    const Problem problem = Problem::Build(spec);
    Coarsening coarsening(problem, seed);
    REQUIRE(coarsening.Shrink(15, 1000));
    const Problem coarse = coarsening.Contract();
    std::vector<int64_t> persistent_bytes(coarse.num_ops()), left_bytes(coarse.num_ops());
    for (int32_t op = 0; op < problem.num_ops(); ++op) {
      const int32_t cluster = coarsening.cluster()[op];
      persistent_bytes[cluster] += op;
      const int32_t tensor = problem.FirstTensor(op);  // each op has one
      bool leaves = false;
      for (int32_t e = problem.consumer_ptr()[tensor]; e < problem.consumer_ptr()[tensor + 1];
           ++e) {
        leaves |= coarsening.cluster()[problem.consumers()[e]] != cluster;
      }
      if (leaves) left_bytes[cluster] += spec.output_bytes[tensor];
    }
    CHECK(coarse.spec().persistent_bytes == persistent_bytes);
    for (int32_t c = 0; c < coarse.num_ops(); ++c) {
      const auto begin = coarse.spec().output_bytes.begin();
      CHECK(std::accumulate(begin + coarse.FirstTensor(c), begin + coarse.FirstTensor(c + 1),
                            int64_t{0}) == left_bytes[c]);
    }
  }
}

TEST_CASE("coarsening depends on its seed alone, stops at its target and goes on from there") {
  const Problem problem = RandomProblem(3, 200);
  Coarsening coarsening(problem, 7), again(problem, 7);
  REQUIRE(coarsening.Shrink(60, 10'000));
  again.Shrink(60, 10'000);
  CHECK(coarsening.cluster() == again.cluster());
  const std::vector<int32_t> before = coarsening.cluster();
  CHECK(!coarsening.Shrink(coarsening.num_clusters(), 10'000));
  CHECK(coarsening.cluster() == before);
  REQUIRE(coarsening.Shrink(10, 10'000));
  std::vector<int32_t> coarser(before.size(), -1);  // by cluster of before
  for (size_t op = 0; op < before.size(); ++op) {
    int32_t& seen = coarser[before[op]];
    if (seen < 0) seen = coarsening.cluster()[op];
    CHECK(seen == coarsening.cluster()[op]);
  }
}

}  // namespace
}  // namespace hplacer
