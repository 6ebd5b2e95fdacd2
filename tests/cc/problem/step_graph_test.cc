#include "engine/problem/step_graph.h"

#include <doctest/doctest.h>

#include <vector>

#include "engine/simulator/simulator.h"
#include "problem_builder.h"

namespace hplacer {
namespace {

using Ns = std::vector<int64_t>;

ProblemBuilder Devices(int count) {
  ProblemBuilder b;
  for (int d = 0; d < count; ++d) b.Device();
  for (int s = 0; s < count; ++s) {
    for (int d = 0; d < count; ++d) {
      if (s != d) b.Link(s, d, std::to_string(s) + "-" + std::to_string(d), 10);
    }
  }
  return b;
}

// Ops 0 and 1 before each of 2, 3, 4; op 4 also after 5, which has two successors of its own.
ProblemBuilder TwoByThree() {
  ProblemBuilder b = Devices(2);
  for (int64_t cost : {100, 40, 1, 2, 4, 8}) b.Op(cost, {});
  for (int32_t src : {0, 1}) {
    for (int32_t dst : {2, 3, 4}) b.Control(src, dst);
  }
  b.Control(5, 4);
  b.Control(5, 3);
  return b;
}

TEST_CASE("ops with the same control successors form a barrier, which counts as one input") {
  const Problem problem = TwoByThree().Build();
  const StepGraph& graph = problem.step_graph();
  REQUIRE(graph.barriers.size() == 1);
  const StepGraph::Control& control = graph.controls[graph.barriers[0]];
  CHECK(control.num_sources == 2);
  CHECK(control.end - control.begin == 3);
  CHECK(graph.ops[0].control == graph.ops[1].control);
  CHECK(graph.ops[5].control != graph.ops[0].control);
  CHECK(graph.ops[2].control == kNoControl);
  CHECK(graph.in_degree == std::vector<int32_t>{0, 0, 1, 2, 2, 0});
  CHECK(graph.sources == std::vector<int32_t>{0, 1, 5});
}

TEST_CASE("one successor in common is a barrier") {
  ProblemBuilder b = Devices(1);
  for (int i = 0; i < 3; ++i) b.Op(1);
  b.Control(0, 2);
  b.Control(1, 2);
  const Problem problem = b.Build();
  CHECK(problem.step_graph().barriers.size() == 1);
  CHECK(problem.step_graph().in_degree == std::vector<int32_t>{0, 0, 1});
}

TEST_CASE("a barrier opens on each device when the last of its sources has been heard there") {
  // Device 0: op 0 until 100, op 1 until 140, op 5 until 148; then 2 (ready at 140), 3 (at 148).
  // Device 1: 1 signals for 0, too. The signals of 1 and 5 share a channel, and arrive at 150 and
  // 160.
  const StepTrace trace = Simulate(TwoByThree().Build(), {0, 0, 0, 0, 1, 0});
  CHECK(trace.start_ns == Ns{0, 100, 148, 149, 160, 140});
  CHECK(trace.transfers.size() == 2);
  // Sources on two devices: op 1 ends at 40 on device 1, its signal reaches device 0 at 50, op 0's
  // and op 5's, sent at 100 and 108, reach device 1 at 110 and 120.
  const StepTrace split = Simulate(TwoByThree().Build(), {0, 1, 0, 0, 1, 0});
  CHECK(split.start_ns == Ns{0, 0, 108, 109, 120, 100});
}

TEST_CASE("a source of a barrier that sends data there sends no signal") {
  ProblemBuilder b = Devices(2);
  b.Op(100, {5});
  b.Op(40);
  for (int i = 0; i < 3; ++i) b.Op(1);
  for (int32_t src : {0, 1}) {
    for (int32_t dst : {2, 3}) b.Control(src, dst);
  }
  b.Edge(0, 0, 4);
  // Op 0's tensor reaches device 1 at 100 + 10 + 5, op 1's signal at 150.
  const StepTrace trace = Simulate(b.Build(), {0, 0, 1, 1, 1});
  REQUIRE(trace.transfers.size() == 2);
  CHECK(trace.transfers[0].output == 0);
  CHECK(trace.transfers[1].output == kSignal);
  CHECK(trace.start_ns == Ns{0, 100, 150, 151, 115});
}

TEST_CASE("records: what an op allocates at its start") {
  ProblemBuilder b = Devices(1);
  b.Op(1, {30, 7}, 5, 1000);
  b.Op(1, {30, 4}, 2);
  b.Edge(0, 0, 1);
  b.Alias(1, 0, 0);
  const Problem problem = b.Build();
  const StepGraph& graph = problem.step_graph();
  CHECK(graph.ops[0].start_bytes == 5 + 30 + 7);
  CHECK(graph.ops[1].start_bytes == 2 + 4);
  CHECK(graph.tensors[2].alias == 0);
  CHECK(graph.tensors[3].alias == kNoAlias);
  CHECK(graph.persistent == std::vector<std::pair<int32_t, int64_t>>{{0, 1000}});
}

}  // namespace
}  // namespace hplacer
