#include "engine/schedulers/etf.h"

#include <doctest/doctest.h>

#include <vector>

#include "engine/problem/candidates.h"
#include "engine/simulator/simulator.h"
#include "problem_builder.h"

namespace hplacer {
namespace {

using Placement = std::vector<int32_t>;

ProblemBuilder TwoDevices(int64_t latency_ns, int64_t memory_bytes = 1'000'000) {
  ProblemBuilder b;
  b.Device(1, memory_bytes);
  b.Device(1, memory_bytes);
  b.Link(0, 1, "down", latency_ns);
  b.Link(1, 0, "up", latency_ns);
  return b;
}

TEST_CASE("independent ops fill the devices that are free first") {
  ProblemBuilder b = TwoDevices(10);
  b.Op(100);
  b.Op(30);
  b.Op(30);
  b.Op(30);
  // op0 on d0 until 100; op1, op2 and op3 on d1 from 0, 30 and 60.
  CHECK(PlaceEtf(b.Build()) == Placement{0, 1, 1, 1});
}

TEST_CASE("a chain stays where it is if a transfer costs more than waiting") {
  ProblemBuilder b = TwoDevices(1000);
  for (int i = 0; i < 4; ++i) b.Op(10, {1});
  for (int i = 0; i < 3; ++i) b.Edge(i, 0, i + 1);
  CHECK(PlaceEtf(b.Build()) == Placement{0, 0, 0, 0});
}

TEST_CASE("a fork is spread if the transfer is cheaper than waiting") {
  ProblemBuilder b = TwoDevices(5);
  b.Op(10, {1});
  b.Op(100);
  b.Op(100);
  b.Edge(0, 0, 1);
  b.Edge(0, 0, 2);
  const Problem problem = b.Build();
  const Placement placement = PlaceEtf(problem);
  CHECK(placement[1] != placement[2]);
  CHECK(Simulate(problem, placement).makespan_ns == 10 + (5 + 1) + 100);
}

TEST_CASE("the device is chosen by when the op would end, kernels and constraints permitting") {
  ProblemBuilder b = TwoDevices(0);
  b.spec.device_kinds = {"slow", "fast"};
  b.spec.device_kind = {0, 1};
  b.Op(0);
  b.Op(0);
  b.Op(0);
  b.Allow({0});
  b.spec.cost_ns = {50, 5, 50, kNoKernel, 50, 5};
  CHECK(PlaceEtf(b.Build()) == Placement{1, 0, 0});
}

TEST_CASE("a group is decided for all its ops, by the cost of all") {
  ProblemBuilder b = TwoDevices(0);
  b.spec.device_kinds = {"slow", "fast"};
  b.spec.device_kind = {0, 1};
  b.Op(0, {1});  // trivial: alone it would go anywhere
  b.Op(0);
  b.Op(0);
  b.Edge(0, 0, 1);
  b.spec.cost_ns = {1, 2, 500, 5, 10, 10};
  b.Colocate({0, 1});
  CHECK(PlaceEtf(b.Build()) == Placement{1, 1, 0});
}

TEST_CASE("a source goes where its consumer is") {
  ProblemBuilder b = TwoDevices(10);
  b.Op(0, {100}, 0, 100);  // two variables, all else equal
  b.Op(0, {100}, 0, 100);
  b.Op(50);
  b.Op(50);
  b.Edge(0, 0, 2);
  b.Edge(1, 0, 3);
  CHECK(PlaceEtf(b.Build()) == Placement{0, 1, 0, 1});
}

TEST_CASE("a device without room for a group's variables is avoided") {
  ProblemBuilder b = TwoDevices(10, 150);
  for (int i = 0; i < 2; ++i) {
    const int32_t variable = b.Op(0, {}, 0, 100);
    const int32_t reader = b.Op(10);
    b.Colocate({variable, reader});
    b.Control(variable, reader);
  }
  b.Control(1, 3);
  const Problem problem = b.Build();
  const Placement placement = PlaceEtf(problem);
  CHECK(placement == Placement{0, 0, 1, 1});
  CHECK(Simulate(problem, placement).feasible);
}

TEST_CASE("memory that is freed in the schedule can be used again") {
  ProblemBuilder b = TwoDevices(1000, 100);
  b.Op(10, {60});
  b.Op(10, {40});
  b.Op(10, {60});
  b.Edge(0, 0, 1);
  b.Edge(1, 0, 2);
  const Problem problem = b.Build();
  const Placement placement = PlaceEtf(problem);
  CHECK(placement == Placement{0, 0, 0});
  CHECK(Simulate(problem, placement).peak_bytes == std::vector<int64_t>{100, 0});
}

TEST_CASE("without room anywhere the device that overflows least is taken") {
  ProblemBuilder b = TwoDevices(10);
  b.spec.device_memory_bytes = {50, 70};
  b.Op(10, {}, 0, 100);
  CHECK(PlaceEtf(b.Build()) == Placement{1});
}

TEST_CASE("a device that cannot talk to a neighbour is avoided") {
  ProblemBuilder b;
  b.Device();
  b.Device();
  b.Device();
  b.Link(1, 2, "x");
  b.Op(10, {1});
  b.Op(10);
  b.Allow({2});
  b.Edge(0, 0, 1);
  b.Op(5);
  b.Control(2, 0);
  const Problem problem = b.Build();
  CHECK(Simulate(problem, PlaceEtf(problem)).feasible);
}

// op0 (pinned to d0) feeds op1 and op2; op3 is independent.
ProblemBuilder Fork() {
  ProblemBuilder b = TwoDevices(5);
  b.Op(10, {1});
  b.Allow({0});
  b.Op(20);
  b.Op(20);
  b.Edge(0, 0, 1);
  b.Edge(0, 0, 2);
  return b;
}

TEST_CASE("a favourite child is with its parent, before others") {
  const Problem problem = Fork().Build();
  CHECK(PlaceEtf(problem) == Placement{0, 0, 1});
  CHECK(PlaceSct(problem, {1, kNoFavourite, kNoFavourite}) == Placement{0, 0, 1});
  CHECK(PlaceSct(problem, {2, kNoFavourite, kNoFavourite}) == Placement{0, 1, 0});
}

TEST_CASE("a device is kept for a favourite child until others could start elsewhere") {
  ProblemBuilder b = TwoDevices(5);
  b.Op(10, {1});
  b.Allow({0});
  b.Op(14, {1});
  b.Allow({1});
  b.Op(20);
  b.Edge(0, 0, 2);
  b.Op(20);
  b.Edge(0, 0, 3);
  b.Edge(1, 0, 3);
  const Problem problem = b.Build();
  // op3 waits for op1 until 20. op2 could be on d0 at 10, or on d1 at 10 + 5 + 1.
  CHECK(PlaceEtf(problem)[2] == 0);
  CHECK(PlaceSct(problem, {3, kNoFavourite, kNoFavourite, kNoFavourite})[2] == 1);
}

TEST_CASE("a favourite child goes first on its parent's device") {
  ProblemBuilder b = TwoDevices(5);
  b.Op(10, {1});
  b.Allow({0});
  b.Op(45);
  b.Allow({1});
  b.Op(20);
  b.Edge(0, 0, 2);
  b.Op(20, {1});
  b.Edge(0, 0, 3);
  b.Op(20);
  b.Edge(3, 0, 4);
  const Problem problem = b.Build();
  // d0 has op2 and op3 to run from 10 to 50. op4 reads op3: if that is first, on d1 from 45.
  CHECK(PlaceEtf(problem) == Placement{0, 1, 0, 0, 0});
  const Placement favourites = {3, kNoFavourite, kNoFavourite, kNoFavourite, kNoFavourite};
  CHECK(PlaceSct(problem, favourites) == Placement{0, 1, 0, 0, 1});
}

TEST_CASE("a favourite child follows to where it ends as early as elsewhere") {
  ProblemBuilder b = TwoDevices(5);
  b.Op(10, {1});
  b.Allow({0});
  b.Op(10, {1});
  b.Allow({1});
  b.Op(20);
  b.Edge(0, 0, 2);
  b.Edge(1, 0, 2);
  const Problem problem = b.Build();
  // On both devices one of its inputs arrives at 10 + 5 + 1.
  CHECK(PlaceEtf(problem)[2] == 0);
  CHECK(PlaceSct(problem, {kNoFavourite, 2, kNoFavourite})[2] == 1);
}

TEST_CASE("a favourite child does not follow to where it is slower or does not fit") {
  ProblemBuilder slow = Fork();
  slow.spec.device_kinds = {"slow", "fast"};
  slow.spec.device_kind = {0, 1};
  slow.spec.cost_ns = {10, 10, 20, 20, 200, 20};
  CHECK(PlaceSct(slow.Build(), {2, kNoFavourite, kNoFavourite})[2] == 1);
  ProblemBuilder full = Fork();
  full.spec.device_memory_bytes = {50, 1'000'000};
  full.spec.persistent_bytes[2] = 100;
  CHECK(PlaceSct(full.Build(), {2, kNoFavourite, kNoFavourite})[2] == 1);
}

TEST_CASE("a unit without any device is an error that names it") {
  ProblemBuilder b = TwoDevices(0);
  b.Op(1);
  b.Allow({0});
  b.Op(1);
  b.Allow({1});
  b.Colocate({0, 1});
  CHECK_THROWS_WITH_AS(PlaceEtf(b.Build()),
                       "op 'op0' and the 1 others of colocation group 'g0' can run on none of the "
                       "devices 'd0' 'd1': allow a device that has a kernel for every one of them",
                       InfeasibleError);
}

}  // namespace
}  // namespace hplacer
