// Ops that the host launches ahead: schedules by hand.

#include <doctest/doctest.h>

#include <vector>

#include "engine/simulator/critical_chain.h"
#include "engine/simulator/simulator.h"
#include "problem_builder.h"

namespace hplacer {
namespace {

using Ns = std::vector<int64_t>;

constexpr int64_t kLaunchNs = 6, kLatencyNs = 4;

// Device 0 is the host, device 1 launches ops.
ProblemBuilder HostAndGpu() {
  ProblemBuilder b;
  b.Device();
  b.Device();
  b.Link(0, 1, "down", kLatencyNs, 1'000'000'000'000);
  b.Link(1, 0, "up", kLatencyNs, 1'000'000'000'000);
  b.spec.device_launch_ns = {0, kLaunchNs};
  return b;
}

ProblemBuilder Chain(const Ns& costs_ns) {
  ProblemBuilder b = HostAndGpu();
  for (size_t op = 0; op < costs_ns.size(); ++op) {
    b.Op(costs_ns[op], {0});
    if (op > 0) b.Edge(static_cast<int32_t>(op) - 1, 0, static_cast<int32_t>(op));
  }
  return b;
}

StepTrace Run(const ProblemBuilder& b, const std::vector<int32_t>& placement) {
  return Simulate(b.Build(), placement);
}

TEST_CASE("a chain of short ops is bound by launches") {
  const StepTrace trace = Run(Chain({5, 5, 5}), {1, 1, 1});
  CHECK(trace.start_ns == Ns{6, 12, 18});
  CHECK(trace.finish_ns == Ns{11, 17, 23});
}

TEST_CASE("a chain of long ops is bound by the ops") {
  const StepTrace trace = Run(Chain({10, 10, 10}), {1, 1, 1});
  CHECK(trace.start_ns == Ns{6, 16, 26});
  CHECK(trace.makespan_ns == 36);
}

TEST_CASE("launches run ahead behind a long op, until they bind again") {
  const StepTrace trace = Run(Chain({20, 1, 1, 1, 1}), {1, 1, 1, 1, 1});
  // Launched by 6, 12, 18, 24 and 30.
  CHECK(trace.start_ns == Ns{6, 26, 27, 28, 30});
}

TEST_CASE("elsewhere nothing is launched") {
  CHECK(Run(Chain({5, 5, 5}), {0, 0, 0}).start_ns == Ns{0, 5, 10});
}

TEST_CASE("what comes from elsewhere has to be there before the launch") {
  const StepTrace trace = Run(Chain({10, 5, 5}), {0, 1, 1});
  CHECK(trace.start_ns == Ns{0, 10 + kLatencyNs + kLaunchNs, 26});
}

TEST_CASE("a copy to the host waits for the op, not for its launch") {
  const StepTrace trace = Run(Chain({10, 5}), {1, 0});
  CHECK(trace.start_ns == Ns{6, 6 + 10 + kLatencyNs});
}

TEST_CASE("what is free is not launched, and hands on what was launched before it") {
  const StepTrace trace = Run(Chain({10, 0, 10}), {1, 1, 1});
  CHECK(trace.start_ns == Ns{6, 16, 16});
}

TEST_CASE("a control edge is waited for before the launch") {
  ProblemBuilder b = HostAndGpu();
  b.Op(10);
  b.Op(10);
  b.Control(0, 1);
  CHECK(Run(b, {1, 1}).start_ns == Ns{6, 16 + kLaunchNs});
}

TEST_CASE("nothing is launched before the device starts") {
  ProblemBuilder b = Chain({5});
  b.spec.device_start_ns = {0, 50};
  CHECK(Run(b, {1}).start_ns == Ns{56});
}

TEST_CASE("the critical chain goes back through launches") {
  const Problem problem = Chain({5, 5, 5}).Build();
  const std::vector<int32_t> placement{1, 1, 1};
  const StepTrace trace = Simulate(problem, placement);
  const Schedule schedule{trace.start_ns, trace.finish_ns, trace.transfers, {0, 1, 2}};
  CHECK(FindCriticalChain(problem, placement.data(), schedule).ops ==
        std::vector<int32_t>{2, 1, 0});
}

}  // namespace
}  // namespace hplacer
