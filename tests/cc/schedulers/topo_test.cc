#include "engine/schedulers/topo.h"

#include <doctest/doctest.h>

#include <vector>

#include "engine/problem/candidates.h"
#include "problem_builder.h"

namespace hplacer {
namespace {

using Placement = std::vector<int32_t>;

ProblemBuilder Devices(const std::vector<int64_t>& memory_bytes) {
  ProblemBuilder b;
  for (const int64_t bytes : memory_bytes) b.Device(1, bytes);
  return b;
}

TEST_CASE("devices are filled in topological order up to the cap") {
  ProblemBuilder b = Devices({1000, 1000, 1000});
  for (int i = 0; i < 6; ++i) b.Op(1, {}, 0, 10);
  b.Control(5, 0);
  // In order 1 2 3 4 5 0. The cap of each of two devices is 60 / 2 + 10.
  CHECK(PlaceTopo(b.Build(), {2, 1}) == Placement{1, 2, 2, 2, 2, 1});
}

TEST_CASE("outputs count, aliases do not, the largest temporary of a unit does") {
  ProblemBuilder b = Devices({1000, 1000});
  b.Op(1, {30}, 5);
  b.Op(1, {30}, 7);
  b.Edge(0, 0, 1);
  b.Alias(1, 0, 0);
  b.Colocate({0, 1});
  for (int i = 0; i < 3; ++i) b.Op(1, {37});
  b.Control(1, 2);
  // Every unit has 37 bytes; the cap is 4 * 37 / 2 + 37 = 111.
  CHECK(PlaceTopo(b.Build(), {0, 1}) == Placement{0, 0, 0, 0, 1});
}

TEST_CASE("shares are in proportion to memory") {
  ProblemBuilder b = Devices({100, 300});
  for (int i = 0; i < 8; ++i) b.Op(1, {}, 0, 10);
  // Caps: 80 / 4 + 10 and 60 + 10.
  CHECK(PlaceTopo(b.Build(), {0, 1}) == Placement{0, 0, 0, 1, 1, 1, 1, 1});
}

TEST_CASE("a unit that may not run where the filling is does not move it on") {
  ProblemBuilder b = Devices({100, 100, 100});
  b.Op(1, {}, 0, 10);
  b.Op(1, {}, 0, 10);
  b.Allow({2});
  b.Op(1, {}, 0, 10);
  b.Allow({0});
  b.Op(1, {}, 0, 10);
  CHECK(PlaceTopo(b.Build(), {1, 2}) == Placement{1, 2, 0, 1});
}

TEST_CASE("what fits nowhere goes where the least is missing") {
  ProblemBuilder b = Devices({50, 70});
  b.Op(1, {}, 0, 100);
  CHECK(PlaceTopo(b.Build(), {0, 1}) == Placement{1});
}

TEST_CASE("a unit without any device is an error") {
  ProblemBuilder b = Devices({50});
  b.Op(1);
  b.Allow({});
  CHECK_THROWS_AS(PlaceTopo(b.Build(), {0}), InfeasibleError);
}

}  // namespace
}  // namespace hplacer
