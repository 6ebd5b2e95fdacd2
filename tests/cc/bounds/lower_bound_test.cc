#include "engine/bounds/lower_bound.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/bounds/ellipsoid.h"
#include "problem_builder.h"

namespace hplacer {
namespace {

constexpr int64_t kInstant = 1'000'000'000'000'000'000;  // bytes_per_s

// Two devices of one slot; a transfer takes `latency_ns` and one nanosecond per byte.
ProblemBuilder TwoDevices(int64_t latency_ns, int64_t bytes_per_s = 1'000'000'000) {
  ProblemBuilder b;
  b.Device();
  b.Device();
  b.Link(0, 1, "down", latency_ns, bytes_per_s);
  b.Link(1, 0, "up", latency_ns, bytes_per_s);
  return b;
}

// d0 is a "slow", d1 a "fast".
ProblemBuilder SlowAndFast(int64_t latency_ns, int64_t fast_memory_bytes = 1'000'000) {
  ProblemBuilder b = TwoDevices(latency_ns, kInstant);
  b.spec.device_kinds = {"slow", "fast"};
  b.spec.device_kind = {0, 1};
  b.spec.device_memory_bytes[1] = fast_memory_bytes;
  return b;
}

void CheckBound(const ProblemBuilder& b, int64_t ns, const std::string& term) {
  const LowerBound bound = BoundStep(b.Build());
  CHECK(bound.infeasible_because.empty());
  REQUIRE(!bound.terms.empty());
  CHECK(bound.terms[0].ns == ns);
  CHECK(bound.terms[0].name == term);
}

void CheckInfeasible(const ProblemBuilder& b, const std::string& sentence) {
  const LowerBound bound = BoundStep(b.Build());
  CHECK(bound.terms.empty());
  CHECK(bound.infeasible_because == std::vector<std::string>{sentence});
}

TEST_CASE("no ops take no time") { CheckBound(TwoDevices(0), 0, "no ops"); }

TEST_CASE("a chain takes its ops on their best kinds and the transfers between these") {
  ProblemBuilder b = SlowAndFast(7);
  b.Op(0, {1});
  b.Op(0);
  b.Edge(0, 0, 1);
  SUBCASE("switching pays") {
    b.spec.cost_ns = {10, 100, 100, 10};
    CheckBound(b, 10 + (7 + 1) + 10, "critical path through op0");
  }
  SUBCASE("staying pays") {
    b.spec.cost_ns = {10, 100, 13, 10};
    CheckBound(b, 10 + 13, "critical path through op0");
  }
}

TEST_CASE("an unavoidable transfer takes its link, and tensors to one op take turns") {
  ProblemBuilder b = TwoDevices(10);
  b.Op(100, {5, 7, 900});
  b.Allow({0});
  b.Op(50);
  b.Allow({1});
  SUBCASE("signal") {
    b.Control(0, 1);
    CheckBound(b, 100 + 10 + 50, "critical path through op0");
  }
  SUBCASE("two tensors") {
    b.Edge(0, 0, 1);
    b.Edge(0, 1, 1);
    b.Control(0, 1);
    CheckBound(b, 100 + (10 + 5) + (10 + 7) + 50, "critical path through op0");
  }
}

ProblemBuilder Diamond(int64_t latency_ns) {
  ProblemBuilder b = TwoDevices(latency_ns);
  b.Op(10, {1});
  b.Op(100, {1});
  b.Op(100, {1});
  b.Op(10);
  b.Edge(0, 0, 1);
  b.Edge(0, 0, 2);
  b.Edge(1, 0, 3);
  b.Edge(2, 0, 3);
  return b;
}

TEST_CASE("the branches of a diamond run one after the other or one of them elsewhere") {
  CheckBound(Diamond(500), 10 + 100 + 100 + 10, "critical path through op0");
  // Away is cheaper: a branch arrives 10 + 100 + (5 + 1) after the start at the earliest.
  CheckBound(Diamond(5), 10 + 100 + (5 + 1) + 10, "critical path through op0");
}

TEST_CASE("slots run branches at once") {
  ProblemBuilder b = Diamond(500);
  b.spec.device_slots = {2, 2};
  CheckBound(b, 10 + 100 + 10, "critical path through op0");
}

TEST_CASE("a colocation group runs on one device") {
  ProblemBuilder b = TwoDevices(0);
  b.Op(50);
  b.Op(50);
  b.Colocate({0, 1});
  CheckBound(b, 50 + 50, "load of the unit of op 'op0' of colocation group 'g0'");
}

TEST_CASE("the load is shared by all slots, rounded up") {
  ProblemBuilder b;
  b.Device(/*slots=*/2);
  for (int i = 0; i < 3; ++i) b.Op(5);
  CheckBound(b, 8, "load of kind");
}

TEST_CASE("the load is split over kinds at the best ratio") {
  ProblemBuilder b = SlowAndFast(0);
  for (int i = 0; i < 4; ++i) b.Op(0);
  b.spec.cost_ns = {30, 10, 30, 10, 30, 10, 30, 10};
  // 3 of 4 on the fast device: 3 * 10 = 1 * 30.
  CheckBound(b, 30, "load of slow and fast");
}

TEST_CASE("units confined to some devices load these") {
  ProblemBuilder b = TwoDevices(0);
  for (int i = 0; i < 4; ++i) {
    b.Op(10);
    b.Allow({1});
  }
  b.Op(1);
  CheckBound(b, 40, "load of d1");
}

TEST_CASE("what comes before and after the load is added") {
  ProblemBuilder b = TwoDevices(0, kInstant);
  b.Op(100);
  for (int i = 1; i <= 4; ++i) {
    b.Op(50);
    b.Control(0, i);
  }
  b.Op(70);
  for (int i = 1; i <= 4; ++i) b.Control(i, 5);
  CheckBound(b, 100 + 4 * 50 / 2 + 70, "load of kind");
}

TEST_CASE("scarce memory of the fast kind forces load on the slow one") {
  ProblemBuilder b = SlowAndFast(0, /*fast_memory_bytes=*/10);
  for (int i = 0; i < 4; ++i) b.Op(0, {}, 0, 5);
  b.spec.cost_ns = {100, 1, 100, 1, 100, 1, 100, 1};
  CheckBound(b, 2 * 100, "memory of fast forces load on slow");
}

TEST_CASE("a device without room for an op is none of its devices") {
  ProblemBuilder b = SlowAndFast(0, /*fast_memory_bytes=*/10);
  b.Op(0, {4}, 0, 3);
  b.spec.cost_ns = {100, 1};
  SUBCASE("it fits") {
    b.spec.temp_bytes[0] = 3;
    CheckBound(b, 1, "critical path through op0");
  }
  SUBCASE("one byte is missing") {
    b.spec.temp_bytes[0] = 4;
    CheckBound(b, 100, "critical path through op0");
  }
  SUBCASE("an alias takes none") {
    b.spec.temp_bytes[0] = 7;
    b.spec.output_alias_src[0] = kPersistentAlias;
    CheckBound(b, 1, "critical path through op0");
  }
}

TEST_CASE("infeasible problems say why") {
  ProblemBuilder b = TwoDevices(0);
  SUBCASE("no device") {
    b.Op(1);
    b.Allow({0});
    b.Op(1);
    b.Allow({1});
    b.Colocate({0, 1});
    CheckInfeasible(b,
                    "op 'op0' of colocation group 'g0' has no device: allow one with a kernel for "
                    "all its ops");
  }
  SUBCASE("no room for one") {
    b.Op(1, {600'000}, 0, 400'001);
    CheckInfeasible(b,
                    "op 'op0' needs at least 1000001 bytes, more than the memory of any device "
                    "that it may be on");
  }
  SUBCASE("no room for all") {
    for (int i = 0; i < 3; ++i) b.Op(1, {}, 0, 700'000);
    CheckInfeasible(b,
                    "ops that may only be on kind have 2100000 persistent bytes, but there are "
                    "2000000 bytes of memory");
  }
  SUBCASE("no link") {
    b.Device();
    b.Op(1, {1});
    b.Allow({2});
    b.Op(1);
    b.Allow({0, 1});
    b.Edge(0, 0, 1);
    CheckInfeasible(b,
                    "op 'op0' can be on no device to which links lead from all its inputs and "
                    "from which they lead to all its consumers");
  }
}

TEST_CASE("the ellipsoid method finds the peak of a roof") {
  // min(x, 3 - x, y + 1, 5 - 2y) over x, y >= 0: 1.5 at x = 1.5 and any y in 0.5..1.75.
  const auto roof = [](const std::vector<double>& p) -> OracleAnswer {
    if (p[0] < 0.0) return {false, 0.0, {1.0, 0.0}};
    if (p[1] < 0.0) return {false, 0.0, {0.0, 1.0}};
    OracleAnswer best{true, p[0], {1.0, 0.0}};
    if (3.0 - p[0] < best.value) best = {true, 3.0 - p[0], {-1.0, 0.0}};
    if (p[1] + 1.0 < best.value) best = {true, p[1] + 1.0, {0.0, 1.0}};
    if (5.0 - 2.0 * p[1] < best.value) best = {true, 5.0 - 2.0 * p[1], {0.0, -2.0}};
    return best;
  };
  const std::vector<double> peak = MaximizeConcave(roof, {4.0, 4.0}, {10.0, 10.0}, 500);
  CHECK(roof(peak).value == doctest::Approx(1.5).epsilon(1e-6));
  const auto line = [](const std::vector<double>& p) -> OracleAnswer {
    return p[0] < 2.0 ? OracleAnswer{true, p[0], {1.0}} : OracleAnswer{true, 4.0 - p[0], {-1.0}};
  };
  CHECK(MaximizeConcave(line, {0.5}, {8.0}, 100)[0] == doctest::Approx(2.0).epsilon(1e-6));
}

}  // namespace
}  // namespace hplacer
