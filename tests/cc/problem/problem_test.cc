#include "engine/problem/problem.h"

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "problem_builder.h"

namespace hplacer {
namespace {

using Ints = std::vector<int32_t>;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Two linked devices, op0 -> op1, op0 -> op2 by both kinds of edge.
ProblemBuilder Fork() {
  ProblemBuilder b;
  b.Device();
  b.Device();
  b.Link(0, 1, "down", 5);
  b.Link(1, 0, "up", 5);
  b.Op(100, {10, 20});
  b.Op(30, {10});
  b.Op(40);
  b.Edge(0, 1, 2);
  b.Edge(0, 0, 1);
  b.Edge(0, 1, 2);
  b.Control(0, 2);
  b.Control(0, 2);
  return b;
}

// The message of the error that building the changed fork raises.
std::string Refusal(const std::function<void(ProblemBuilder*)>& change) {
  ProblemBuilder b = Fork();
  change(&b);
  try {
    b.Build();
  } catch (const ProblemError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("edges are sorted and distinct, both ways") {
  const Problem problem = Fork().Build();
  CHECK(problem.spec().edges == Ints{0, 0, 1, 0, 1, 2});
  CHECK(problem.spec().control_edges == Ints{0, 2});
  CHECK(problem.tensor_op() == Ints{0, 0, 1});
  CHECK(problem.consumer_ptr() == Ints{0, 1, 2, 2});
  CHECK(problem.consumers() == Ints{1, 2});
  CHECK(problem.edge_tensor() == Ints{0, 1});
  CHECK(problem.read_ptr() == Ints{0, 0, 1, 2});
  CHECK(problem.read_edges() == Ints{0, 1});
  CHECK(problem.control_in_ptr() == Ints{0, 0, 0, 1});
  CHECK(problem.control_in() == Ints{0});
  CHECK(problem.in_degree() == Ints{0, 1, 2});
}

TEST_CASE("channels are numbered in the order in which links first name them") {
  ProblemBuilder b;
  for (int i = 0; i < 3; ++i) b.Device();
  b.Link(2, 0, "z");
  b.Link(0, 1, "a");
  b.Link(1, 0, "z");
  const Problem problem = b.Build();
  CHECK(problem.channel_names() == std::vector<std::string>{"z", "a"});
  CHECK(problem.link_channel() == Ints{0, 1, 0});
  CHECK(problem.Link(1, 0) == 2);
  CHECK(problem.Link(2, 1) == -1);
}

TEST_CASE("devices with the same cores are a pool, numbered by its first device") {
  ProblemBuilder b;
  for (int i = 0; i < 5; ++i) b.Device(i == 1 ? 2 : 4);
  CHECK(b.Build().device_pool() == Ints{0, 1, 2, 3, 4});
  CHECK(b.Build().spec().device_cores == std::vector<std::string>(5));
  b.spec.device_cores = {"x", "", "y", "x", "y"};
  const Problem problem = b.Build();
  CHECK(problem.device_pool() == Ints{0, 1, 2, 0, 2});
  CHECK(problem.pool_slots() == Ints{4, 2, 4});
  b.spec.device_cores[1] = "x";
  CHECK_THROWS_WITH_AS(
      b.Build(), "devices[1].slots: is 2, but 'd0', which has the same cores, has 4", ProblemError);
}

TEST_CASE("a transfer lasts its latency and its bytes, rounded up") {
  ProblemBuilder b;
  b.Device();
  b.Device();
  b.Link(0, 1, "x", 7, 3'000'000'000);
  b.Link(1, 0, "y", 0, 4'000'000'000'000'000'000);
  const Problem problem = b.Build();
  CHECK(problem.TransferNs(0, 0) == 7);
  CHECK(problem.TransferNs(0, 1) == 7 + 1);
  CHECK(problem.TransferNs(0, 4) == 7 + 2);
  // 4e18 bytes at 4e18 bytes/s last a second; the product needs 128 bits.
  CHECK(problem.TransferNs(1, 4'000'000'000'000'000'000) == 1'000'000'000);
}

TEST_CASE("units are groups and lone ops, with the devices common to all of theirs") {
  ProblemBuilder b;
  for (int i = 0; i < 3; ++i) b.Device();
  b.Op(1);
  b.Allow({2, 0, 2});
  b.Op(1);
  b.Op(1);
  b.Allow({0, 1});
  b.Colocate({0, 2});
  const Problem problem = b.Build();
  CHECK(problem.units() == Ints{0, 1, 0});
  CHECK(problem.unit_op_ptr() == Ints{0, 2, 3});
  CHECK(problem.unit_ops() == Ints{0, 2, 1});
  CHECK(problem.candidate_ptr() == Ints{0, 1, 4});
  CHECK(problem.candidates() == Ints{0, 0, 1, 2});
  CHECK(problem.spec().allowed_device == Ints{0, 2, 0, 1});
}

TEST_CASE("an op that can run nowhere is legal") {
  CHECK(Refusal([](auto* b) { b->spec.cost_ns[1] = kNoKernel; }) == "");
  CHECK(Refusal([](auto* b) { b->Allow({}); }) == "");
}

TEST_CASE("refusals start with the path of the field") {
  CHECK(Refusal([](auto* b) { b->spec.device_slots[1] = 0; }) ==
        "devices[1].slots: must be at least 1, got 0");
  CHECK(Refusal([](auto* b) { b->spec.device_memory_bytes[0] = -1; }) ==
        "devices[0].memory_bytes: must be at least 0, got -1");
  CHECK(Refusal([](auto* b) { b->spec.device_kind[0] = 1; }) ==
        "devices[0].kind: device kind 1 is out of range, there are 1");
  CHECK(Refusal([](auto* b) { b->spec.device_names[1] = "d0"; }) ==
        "devices[1].name: the name 'd0' is given twice");
  CHECK(Refusal([](auto* b) { b->spec.link_src[1] = 2; }) ==
        "links[1].src: device 2 is out of range, there are 2");
  CHECK(Refusal([](auto* b) { b->spec.link_bytes_per_s[0] = 0; }) ==
        "links[0].bytes_per_s: must be at least 1, got 0");
  CHECK(Refusal([](auto* b) { b->Link(0, 1, "again"); }) ==
        "links[2]: a link from 'd0' to 'd1' is given twice");
  CHECK(Refusal([](auto* b) { b->Link(1, 1, "loop"); }) == "links[2]: joins device 'd1' to itself");
  CHECK(Refusal([](auto* b) { b->spec.op_names[2] = "op0"; }) ==
        "ops[2].name: the name 'op0' is given twice");
  CHECK(Refusal([](auto* b) { b->spec.cost_ns[1] = -2; }) ==
        "ops[1].cost_ns: must be at least 0, got -2");
  CHECK(Refusal([](auto* b) { b->spec.output_bytes[1] = -1; }) ==
        "ops[0].output_bytes: must be at least 0, got -1");
  CHECK(Refusal([](auto* b) { b->Allow({2}); }) ==
        "ops[2].allowed_devices: device 2 is out of range, there are 2");
  for (const std::vector<int32_t>& same_as : {Ints{-1, 1, -1}, Ints{-1, 2, -1}, Ints{-1, 0, 1}}) {
    CHECK(Refusal([&](auto* b) { b->spec.same_as = same_as; }).find("expected an earlier op") !=
          std::string::npos);
  }
  CHECK(Refusal([](auto* b) { b->spec.same_as = {-1, -1, -2}; }) ==
        "ops[2].same_as: op -2 is out of range, there are 3");
  CHECK(Refusal([](auto* b) { b->spec.default_device = {0, 1, 2}; }) ==
        "ops[2].default_device: device 2 is out of range, there are 2");
  CHECK(Refusal([](auto* b) { b->spec.default_device = {0}; }) ==
        "default_device: has 1 values, expected 3");
  CHECK(Refusal([](auto* b) { b->Edge(0, 2, 1); }) ==
        "edges[3]: output 2 is out of range, there are 2");
  CHECK(Refusal([](auto* b) { b->Edge(1, 0, 1); }) == "edges[3]: op 'op1' reads itself");
  CHECK(Refusal([](auto* b) { b->Control(1, 3); }) ==
        "control_edges[2]: destination op 3 is out of range, there are 3");
  CHECK(Refusal([](auto* b) { b->Control(1, 1); }) ==
        "control_edges[2]: op 'op1' waits for itself");
  CHECK(Refusal([](auto* b) { b->Alias(1, 0, 0, 1); }) ==
        "ops[1].output_alias: output 0 aliases [0, 1], which op 'op1' does not read");
  CHECK(Refusal([](auto* b) { b->spec.temp_bytes.pop_back(); }) ==
        "temp_bytes: has 2 values, expected 3");
}

TEST_CASE("a cycle is named with its ops, over both kinds of edge") {
  CHECK(Refusal([](auto* b) {
          b->Edge(1, 0, 2);
          b->Control(2, 1);
        }) == "edges: cycle 'op1' -> 'op2' -> 'op1'");
  CHECK(Refusal([](auto* b) {
          b->Control(1, 2);
          b->Control(2, 1);
        }) == "control_edges: cycle 'op1' -> 'op2' -> 'op1'");
}

TEST_CASE("times that could exceed 2^63 - 1 ns are refused") {
  // 100 + 30 + 40 ns, tensors of 10 and 20 bytes and one signal, each to one other device.
  const int64_t rest = 100 + 30 + (5 + 10) + (5 + 20) + 5;
  CHECK(Refusal([&](auto* b) { b->spec.cost_ns[2] = kMax - rest; }) == "");
  CHECK(Refusal([&](auto* b) { b->spec.cost_ns[2] = kMax - rest + 1; }) ==
        "ops: the sum of all times could exceed 2^63 - 1 ns");
}

TEST_CASE("sizes that could exceed 2^63 - 1 bytes are refused") {
  const int64_t rest = 10 + 20 + 10;
  CHECK(Refusal([&](auto* b) { b->spec.persistent_bytes[2] = kMax - rest; }) == "");
  CHECK(Refusal([&](auto* b) { b->spec.persistent_bytes[2] = kMax - rest + 1; }) ==
        "ops: the sum of all sizes could exceed 2^63 - 1 bytes");
}

TEST_CASE("a placement has one device in range per op") {
  const Problem problem = Fork().Build();
  CHECK_NOTHROW(CheckPlacement(problem, {0, 1, 0}));
  CHECK_THROWS_WITH_AS(CheckPlacement(problem, {0, 1}), "placement: has 2 devices for 3 ops",
                       ProblemError);
  CHECK_THROWS_WITH_AS(CheckPlacement(problem, {0, 1, 2}),
                       "placement[2]: device 2 is out of range, there are 2", ProblemError);
}

TEST_CASE("a long cycle is described in part") {
  const std::string message = Refusal([](ProblemBuilder* b) {
    for (int32_t op = 3; op < 1000; ++op) b->Op(1);
    for (int32_t op = 3; op < 999; ++op) b->Control(op, op + 1);
    b->Control(999, 3);
  });
  CHECK(message.find("control_edges: cycle 'op") == 0);
  CHECK(message.find("' -> (977 more) -> 'op") != std::string::npos);
  CHECK(message.size() < 500);
}

TEST_CASE("an alias among many reads is found") {
  ProblemBuilder b;
  b.Device();
  for (int32_t op = 0; op < 50; ++op) b.Op(1, {1, 1});
  const int32_t view = b.Op(1, {1, 1, 1});
  for (int32_t op = 0; op < 50; ++op) b.Edge(op, 1, view);
  b.Alias(view, 0, 49, 1);
  b.Alias(view, 2, 0, 1);
  const Problem problem = b.Build();
  CHECK(problem.alias_edge()[100] == 49);
  CHECK(problem.alias_edge()[101] == kNoAlias);
  CHECK(problem.alias_edge()[102] == 0);
  b.Alias(view, 1, 20, 2);  // the number of the next op's first output, which is no output of 20
  CHECK_THROWS_AS(b.Build(), ProblemError);
}

}  // namespace
}  // namespace hplacer
