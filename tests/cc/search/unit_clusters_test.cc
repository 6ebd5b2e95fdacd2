#include "engine/search/unit_clusters.h"

#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <set>
#include <vector>

#include "engine/problem/topological_order.h"
#include "random_problem.h"

namespace hplacer {
namespace {

using Labels = std::vector<int32_t>;

void AddDevices(int32_t count, ProblemBuilder* b) {
  for (int32_t d = 0; d < count; ++d) b->Device();
  for (int32_t src = 0; src < count; ++src) {
    for (int32_t dst = 0; dst < count; ++dst) {
      if (src != dst) b->Link(src, dst, "bus");
    }
  }
}

int32_t CountClusters(const Labels& label) {
  return static_cast<int32_t>(std::set<int32_t>(label.begin(), label.end()).size());
}

TEST_CASE("clusters have one set of candidates, and pinned units one cluster per device") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Problem problem = RandomProblem(seed, 60, /*restricted=*/true);
    const std::vector<Labels> levels = ClusterUnits(problem, {30, 12, 1}, 2);
    std::set<std::vector<int32_t>> kinds;
    for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
      kinds.insert(Candidates(problem, unit));
    }
    for (const Labels& label : levels) {
      REQUIRE(static_cast<int32_t>(label.size()) == problem.num_units());
      std::map<int32_t, std::vector<int32_t>> of_cluster;
      std::map<std::vector<int32_t>, int32_t> of_pinned;
      for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
        const std::vector<int32_t> candidates = Candidates(problem, unit);
        CHECK(of_cluster.emplace(label[unit], candidates).first->second == candidates);
        if (candidates.size() > 1) continue;
        CHECK(of_pinned.emplace(candidates, label[unit]).first->second == label[unit]);
      }
    }
    // As few as the candidates allow.
    CHECK(CountClusters(levels[2]) == static_cast<int32_t>(kinds.size()));
  }
}

TEST_CASE("sizes are kept, and coarser clusters are unions of finer ones") {
  const std::vector<int32_t> sizes = {40, 20, 10, 5};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Problem problem = RandomProblem(seed, 80, /*restricted=*/true);
    const std::vector<Labels> levels = ClusterUnits(problem, sizes, 4);
    REQUIRE(levels.size() == sizes.size());
    CHECK(ClusterUnits(problem, sizes, 4) == levels);
    for (size_t i = 0; i < levels.size(); ++i) {
      CHECK(CountClusters(levels[i]) <= sizes[i]);
      if (i == 0) continue;
      std::map<int32_t, int32_t> coarser;
      for (size_t unit = 0; unit < levels[i].size(); ++unit) {
        const auto [found, is_new] = coarser.emplace(levels[i - 1][unit], levels[i][unit]);
        CHECK(found->second == levels[i][unit]);
      }
    }
  }
}

TEST_CASE("clusters are numbered by the mean position of their ops") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Problem problem = RandomProblem(seed, 60, /*restricted=*/true);
    const Labels label = ClusterUnits(problem, {15}, 2).front();
    const int32_t count = CountClusters(label);
    std::vector<double> sum(count), ops(count);
    const std::vector<int32_t> order = TopologicalOrder(problem);
    for (size_t i = 0; i < order.size(); ++i) {
      const int32_t cluster = label[problem.units()[order[i]]];
      REQUIRE(cluster < count);
      sum[cluster] += static_cast<double>(i);
      ops[cluster] += 1;
    }
    for (int32_t c = 1; c < count; ++c) CHECK(sum[c - 1] / ops[c - 1] <= sum[c] / ops[c]);
  }
}

TEST_CASE("the pair goes first whose separation costs most for the work of the smaller one") {
  ProblemBuilder b;
  AddDevices(2, &b);
  const int32_t a = b.Op(100, {1000}), heavy = b.Op(100, {10}), light = b.Op(1, {10});
  b.Edge(a, 0, heavy);      // 1000 ns for the 100 ns of either
  b.Edge(heavy, 0, light);  // 10 ns for the 1 ns of `light`
  b.Op(300);
  const Problem problem = b.Build();
  const std::vector<Labels> levels = ClusterUnits(problem, {3, 2}, 1);
  CHECK(levels[0] == Labels{0, 0, 1, 2});
  CHECK(levels[1] == Labels{0, 0, 0, 1});
}

TEST_CASE("units that exchange nothing with others do not make those one cluster") {
  constexpr int32_t kChain = 200, kLoners = 150;
  ProblemBuilder b;
  AddDevices(2, &b);
  int32_t last = b.Op(100, {10});
  for (int32_t i = 1; i < kChain; ++i) {
    const int32_t op = b.Op(100, {10});
    b.Edge(last, 0, op);
    last = op;
  }
  for (int32_t i = 0; i < kLoners; ++i) b.Op(1);
  const Problem problem = b.Build();
  const Labels label = ClusterUnits(problem, {100}, 4).front();
  CHECK(CountClusters(label) <= 100);
  std::map<int32_t, int32_t> chain_units;
  for (int32_t unit = 0; unit < kChain; ++unit) ++chain_units[label[unit]];
  for (const auto& [cluster, count] : chain_units) CHECK(count <= kChain / 8 + 1);
}

TEST_CASE("a hub of many consumers takes no longer than they are many") {
  constexpr int32_t kConsumers = 50'000;
  ProblemBuilder b;
  AddDevices(2, &b);
  const int32_t hub = b.Op(1, {1000});
  for (int32_t i = 0; i < kConsumers; ++i) b.Edge(hub, 0, b.Op(100 + i % 7, {1}));
  const Problem problem = b.Build();
  const auto begin = std::chrono::steady_clock::now();
  const Labels label = ClusterUnits(problem, {100}, 1).front();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  MESSAGE(elapsed.count(), " s");
  CHECK(CountClusters(label) <= 100);
  CHECK(elapsed.count() < 20);  // a fraction of a second, if time grows as E log E
}

}  // namespace
}  // namespace hplacer
