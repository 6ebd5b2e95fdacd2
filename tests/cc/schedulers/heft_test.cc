#include "engine/schedulers/heft.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/problem/candidates.h"
#include "engine/simulator/simulator.h"
#include "problem_builder.h"

namespace hplacer {
namespace {

using Placement = std::vector<int32_t>;

void LinkAll(ProblemBuilder* b, int32_t num_devices) {
  for (int32_t src = 0; src < num_devices; ++src) {
    for (int32_t dst = 0; dst < num_devices; ++dst) {
      if (src != dst) b->Link(src, dst, std::to_string(src) + std::to_string(dst));
    }
  }
}

TEST_CASE("the op on the longest path goes first") {
  ProblemBuilder b;
  b.Device();
  b.Device();
  LinkAll(&b, 2);
  b.spec.device_kinds = {"fast", "slow"};
  b.spec.device_kind = {0, 1};
  b.Op(0);
  b.Allow({0});
  for (int i = 0; i < 3; ++i) b.Op(0);
  b.Control(0, 1);
  b.Control(0, 2);
  b.Control(2, 3);
  b.spec.cost_ns = {0, 0, 10, 30, 10, 30, 100, 300};
  // Ranks: op2 220, op3 200, op1 20. op2 and op3 run on d0 until 110, op1 on d1 until 30.
  const Problem problem = b.Build();
  CHECK(PlaceHeft(problem) == Placement{0, 1, 0, 0});
  CHECK(Simulate(problem, PlaceHeft(problem)).makespan_ns == 110);
}

TEST_CASE("an op fills the gap before one that waits for its input") {
  ProblemBuilder b;
  for (int i = 0; i < 3; ++i) b.Device();
  LinkAll(&b, 3);
  const int32_t root = b.Op(0);
  b.Allow({2});
  const int32_t producer = b.Op(20, {30});
  b.Allow({0});
  const int32_t consumer = b.Op(100);
  b.Allow({1});
  const int32_t filler = b.Op(50);
  b.Allow({0, 1});
  b.Edge(producer, 0, consumer);
  b.Control(root, producer);
  b.Control(root, filler);
  // Ranks: root and producer 150, consumer 100, filler 50. d0 is busy until 20 and d1 from 50 to
  // 150, so that the filler would end at 70 on d0 and ends at 50 on d1, in the gap.
  CHECK(PlaceHeft(b.Build())[filler] == 1);
  b.spec.cost_ns[filler] = 51;
  CHECK(PlaceHeft(b.Build())[filler] == 0);
}

TEST_CASE("a device without room is avoided") {
  ProblemBuilder b;
  b.Device(1, 100);
  b.Device(1, 1000);
  LinkAll(&b, 2);
  b.spec.device_kinds = {"fast", "slow"};
  b.spec.device_kind = {0, 1};
  b.Op(0, {}, 0, 80);
  b.Op(0, {}, 0, 80);
  b.spec.cost_ns = {10, 50, 5, 20};
  // op0 has the higher rank and takes the fast device.
  const Problem problem = b.Build();
  CHECK(PlaceHeft(problem) == Placement{0, 1});
  CHECK(Simulate(problem, Placement{0, 1}).feasible);
}

TEST_CASE("a unit without any device is an error") {
  ProblemBuilder b;
  b.Device();
  b.Op(1);
  b.Allow({});
  CHECK_THROWS_AS(PlaceHeft(b.Build()), InfeasibleError);
}

}  // namespace
}  // namespace hplacer
