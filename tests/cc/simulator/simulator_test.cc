#include "engine/simulator/simulator.h"

#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <vector>

#include "problem_builder.h"
#include "simulator/run.h"

namespace hplacer {
namespace {

using Ns = std::vector<int64_t>;
using Bytes = std::vector<int64_t>;

// `count` devices, every pair linked by a channel of its own, 1 byte per ns.
ProblemBuilder Devices(int count, int64_t latency_ns = 0, int32_t slots = 1) {
  ProblemBuilder b;
  for (int d = 0; d < count; ++d) b.Device(slots);
  for (int s = 0; s < count; ++s) {
    for (int d = 0; d < count; ++d) {
      if (s != d) b.Link(s, d, std::to_string(s) + "-" + std::to_string(d), latency_ns);
    }
  }
  return b;
}

TEST_CASE("nothing to do takes no time") {
  const StepTrace trace = Run(Devices(1), {});
  CHECK(trace.feasible);
  CHECK(trace.makespan_ns == 0);
  CHECK(trace.peak_bytes == Bytes{0});
}

TEST_CASE("a chain across devices: costs, latency and bytes add up") {
  ProblemBuilder b = Devices(2, 10);
  b.Op(100, {7});
  b.Op(50, {3});
  b.Op(20);
  b.Edge(0, 0, 1);
  b.Edge(1, 0, 2);
  const StepTrace trace = Run(b, {0, 1, 0});
  CHECK(trace.start_ns == Ns{0, 100 + 10 + 7, 117 + 50 + 10 + 3});
  CHECK(trace.finish_ns == Ns{100, 167, 200});
  CHECK(trace.makespan_ns == 100 + (10 + 7) + 50 + (10 + 3) + 20);
  REQUIRE(trace.transfers.size() == 2);
  CHECK(trace.transfers[1].src_op == 1);
  CHECK(trace.transfers[1].issue_ns == 167);
  CHECK(trace.transfers[1].finish_ns == 180);
  CHECK(trace.transfers[1].bytes == 3);
}

TEST_CASE("a tensor is sent once to a device, however many consumers it has there") {
  ProblemBuilder b = Devices(2, 10);
  b.Op(100, {5});
  b.Op(20);
  b.Op(30);
  b.Edge(0, 0, 1);
  b.Edge(0, 0, 2);
  const StepTrace trace = Run(b, {0, 1, 1});
  CHECK(trace.transfers.size() == 1);
  CHECK(trace.makespan_ns == 100 + 15 + 20 + 30);
}

TEST_CASE("a shared channel carries one transfer at a time, by issue, op, output, device") {
  ProblemBuilder b;
  for (int d = 0; d < 3; ++d) b.Device();
  b.Link(0, 1, "bus", 10);
  b.Link(0, 2, "bus", 10);
  b.Op(100, {4, 6});
  b.Op(1);
  b.Op(1);
  b.Edge(0, 0, 2);
  b.Edge(0, 1, 1);
  b.Edge(0, 0, 1);
  const StepTrace trace = Run(b, {0, 1, 2});
  REQUIRE(trace.transfers.size() == 3);
  // (output 0, device 1), (output 0, device 2), (output 1, device 1).
  CHECK(trace.transfers[0].finish_ns == 100 + 14);
  CHECK(trace.transfers[1].finish_ns == 114 + 14);
  CHECK(trace.transfers[2].finish_ns == 128 + 16);
  CHECK(trace.start_ns == Ns{0, 144, 128});
}

TEST_CASE("slots run that many ops at once, in the order (ready, id)") {
  ProblemBuilder b;
  b.Device(2);
  b.Op(50);
  b.Op(30);
  b.Op(40);
  b.Op(10);
  const StepTrace trace = Run(b, {0, 0, 0, 0});
  CHECK(trace.start_ns == Ns{0, 0, 30, 50});
  CHECK(trace.makespan_ns == 30 + 40);
}

TEST_CASE("a queue is ordered by when an op became ready, not by its id") {
  ProblemBuilder b = Devices(2, 10);
  b.Op(20);
  b.Op(100);  // holds device 1 until 100
  b.Op(1);    // ready at 20 + 20 + 10
  b.Op(1);    // ready at 20 + 10
  b.Op(20);
  b.Control(0, 3);
  b.Control(4, 2);
  const StepTrace trace = Run(b, {0, 1, 1, 1, 0});
  CHECK(trace.start_ns[3] == 100);
  CHECK(trace.start_ns[2] == 101);
}

TEST_CASE("a control edge to another device is a signal that lasts the latency") {
  ProblemBuilder b = Devices(2, 10);
  b.Op(100, {5});
  b.Op(20);
  b.Op(30);
  b.Control(0, 1);
  b.Control(0, 2);
  const StepTrace trace = Run(b, {0, 1, 1});
  REQUIRE(trace.transfers.size() == 1);
  CHECK(trace.transfers[0].output == kSignal);
  CHECK(trace.transfers[0].bytes == 0);
  CHECK(trace.makespan_ns == 100 + 10 + 20 + 30);
  CHECK(trace.peak_bytes == Bytes{5, 0});
}

TEST_CASE("a control edge along data waits for the last tensor sent to that device") {
  ProblemBuilder b = Devices(2, 10, 2);
  b.Op(100, {5, 8});
  b.Op(1);
  b.Op(1);
  b.Op(1);
  b.Edge(0, 0, 1);
  b.Edge(0, 1, 2);
  b.Control(0, 3);
  const StepTrace trace = Run(b, {0, 1, 1, 1});
  CHECK(trace.transfers.size() == 2);
  CHECK(trace.start_ns == Ns{0, 100 + 15, 115 + 18, 133});
}

TEST_CASE("zero costs: what a round creates belongs to a later round at the same time") {
  ProblemBuilder b;
  b.Device(1);
  b.Op(0);
  b.Op(5);
  b.Op(0);
  b.Control(0, 2);
  // Round 1 starts op0 (op1 waits); round 2 finishes it, and op1 is before op2: both are ready at
  // 0. Op 2 runs after op 1.
  const StepTrace trace = Run(b, {0, 0, 0});
  CHECK(trace.start_ns == Ns{0, 0, 5});
  CHECK(trace.finish_ns == Ns{0, 5, 5});
}

TEST_CASE("zero latency and zero bytes: a transfer ends when it starts, a round later") {
  ProblemBuilder b = Devices(2);
  b.Op(10, {0});
  b.Op(7);
  b.Op(9);
  b.Edge(0, 0, 1);
  b.Op(10);
  b.Control(3, 2);
  // Op 3 finishes on device 1 at 10 and makes op 2 start in that round; the tensor arrives there
  // at 10 too, but a round later, and op 1 queues behind.
  const StepTrace trace = Run(b, {0, 1, 1, 1});
  CHECK(trace.start_ns == Ns{0, 19, 10, 0});
  CHECK(trace.transfers[0].finish_ns == 10);
}

TEST_CASE("memory: outputs live from their op's start to the finish of their last reader") {
  ProblemBuilder b;
  b.Device();
  b.Op(1, {10, 100});  // output 1 has no reader: freed at once
  b.Op(1, {20}, 5);
  b.Op(1, {40});
  b.Edge(0, 0, 1);
  b.Edge(1, 0, 2);
  // op0: 110. op1: 10 + 5 + 20 = 35. op2: 20 + 40 = 60.
  CHECK(Run(b, {0, 0, 0}).peak_bytes == Bytes{110});
  b.spec.output_bytes[1] = 0;
  CHECK(Run(b, {0, 0, 0}).peak_bytes == Bytes{60});
  b.spec.temp_bytes[1] = 31;
  CHECK(Run(b, {0, 0, 0}).peak_bytes == Bytes{10 + 31 + 20});
}

TEST_CASE("memory: persistent bytes are held all the step") {
  ProblemBuilder b;
  b.Device();
  b.Op(1, {4}, 0, 1000);
  b.Op(1, {}, 2);
  CHECK(Run(b, {0, 0}).peak_bytes == Bytes{1000 + 4});
}

TEST_CASE("memory: a copy is allocated when its transfer starts, the source freed when it ends") {
  ProblemBuilder b = Devices(2, 10);
  b.Op(1, {8});
  b.Op(1);
  b.Op(5, {100});  // device 0, from 1 to 6, while the transfer lasts until 1 + 18
  b.Op(5, {60});   // device 0, from 19 on
  b.Edge(0, 0, 1);
  b.Edge(1, 0, 3);
  b.spec.output_ptr = {0, 1, 2, 3, 4};
  b.spec.output_bytes = {8, 0, 100, 60};
  b.spec.output_alias_src.assign(4, kNoAlias);
  b.spec.output_alias_output.assign(4, 0);
  const StepTrace trace = Run(b, {0, 1, 0, 0});
  CHECK(trace.start_ns == Ns{0, 19, 1, 19 + 1 + 10});
  CHECK(trace.peak_bytes == Bytes{8 + 100, 8});
}

TEST_CASE("memory: an alias owns nothing and prolongs its root, through aliases of aliases") {
  ProblemBuilder b;
  b.Device();
  b.Op(1, {64});
  b.Op(1, {64});
  b.Op(1, {64});
  b.Op(1, {1});
  b.Alias(1, 0, 0);
  b.Alias(2, 0, 1);
  b.Edge(0, 0, 1);
  b.Edge(1, 0, 2);
  b.Edge(2, 0, 3);
  CHECK(Run(b, {0, 0, 0, 0}).peak_bytes == Bytes{64 + 1});
  // Without the second alias op2 owns 64 more while the root is read through op1's output.
  b.spec.output_alias_src[2] = kNoAlias;
  CHECK(Run(b, {0, 0, 0, 0}).peak_bytes == Bytes{64 + 64});
}

TEST_CASE("memory: an alias of a received tensor holds the copy, and is sent on in full") {
  ProblemBuilder b = Devices(2);
  b.Op(1, {64});
  b.Op(1, {50});
  b.Op(1, {7});
  b.Op(1, {9});
  b.Alias(1, 0, 0);
  b.Edge(0, 0, 1);
  b.Edge(1, 0, 2);
  b.Edge(1, 0, 3);
  // Device 1: copy 64; op3 adds 9 while the copy is still read through the alias.
  // Device 0: 64, then the copy of the alias, 50, with op2's 7.
  const StepTrace trace = Run(b, {0, 1, 0, 1});
  CHECK(trace.peak_bytes == Bytes{64, 64 + 9});
  CHECK(trace.makespan_ns == 1 + 64 + 1 + 50 + 1);
}

TEST_CASE("memory: an alias of persistent memory has no buffer, its copy has") {
  ProblemBuilder b = Devices(2);
  b.Op(1, {30}, 0, 30);
  b.Op(1, {30});
  b.Op(1, {1});
  b.Op(1);
  b.spec.output_alias_src[0] = kPersistentAlias;
  b.Alias(1, 0, 0);
  b.Edge(0, 0, 1);
  b.Edge(1, 0, 2);
  b.Edge(0, 0, 3);
  CHECK(Run(b, {0, 0, 0, 0}).peak_bytes == Bytes{30 + 1, 0});
  CHECK(Run(b, {0, 0, 0, 1}).peak_bytes == Bytes{30 + 1, 30});
}

TEST_CASE("memory: an op that reads two aliases of one buffer ends both reads") {
  ProblemBuilder b;
  b.Device();
  b.Op(1, {64, 0});
  b.Op(1, {64, 64});
  b.Op(1);
  b.Op(1, {65});
  b.Alias(1, 0, 0);
  b.Alias(1, 1, 0);
  b.Edge(0, 0, 1);
  b.Edge(1, 0, 2);
  b.Edge(1, 1, 2);
  b.Control(2, 3);
  CHECK(Run(b, {0, 0, 0, 0}).peak_bytes == Bytes{65});
}

TEST_CASE("times up to 2^63 - 1 are exact") {
  constexpr int64_t kHuge = int64_t{1} << 61;
  ProblemBuilder b = Devices(2, 10, 2);
  b.Op(kHuge, {5});
  b.Op(kHuge + 3);
  b.Op(kHuge + 1);
  b.Edge(0, 0, 1);
  const StepTrace trace = Run(b, {0, 1, 0});
  CHECK(trace.start_ns == Ns{0, kHuge + 15, 0});
  CHECK(trace.makespan_ns == 2 * kHuge + 18);
  ProblemBuilder longest = Devices(1);
  longest.Op(std::numeric_limits<int64_t>::max(), {});
  CHECK(Run(longest, {0}).makespan_ns == std::numeric_limits<int64_t>::max());
}

TEST_CASE("one thread's simulations of different problems do not disturb each other") {
  ProblemBuilder small = Devices(1);
  small.Op(3);
  ProblemBuilder large = Devices(3, 10, 2);
  for (int i = 0; i < 9; ++i) large.Op(100, {7});
  for (int i = 3; i < 9; ++i) large.Edge(i - 3, 0, i);
  const std::vector<int32_t> placement = {0, 1, 2, 1, 2, 0, 2, 0, 1};
  const StepTrace first = Run(large, placement);
  // Three waves of 100, and between them 10 + 7.
  CHECK(first.makespan_ns == 3 * 100 + 2 * 17);
  CHECK(Run(small, {0}).makespan_ns == 3);
  CHECK(Run(large, placement).finish_ns == first.finish_ns);
}

TEST_CASE("a missing kernel or link leaves no trace") {
  ProblemBuilder b;
  b.Device();
  b.Device();
  b.Link(0, 1, "x");
  b.Op(1, {1});
  b.Op(1);
  b.Edge(0, 0, 1);
  CHECK(Run(b, {0, 1}).feasible);
  const StepTrace unlinked = Run(b, {1, 0});
  CHECK_FALSE(unlinked.has_trace);
  CHECK_FALSE(unlinked.feasible);
  CHECK(unlinked.start_ns.empty());
  CHECK(unlinked.infeasible_because.size() == 1);
  b.spec.cost_ns[1] = kNoKernel;
  const StepTrace unrunnable = Run(b, {0, 0});
  CHECK_FALSE(unrunnable.has_trace);
  CHECK(unrunnable.infeasible_because ==
        std::vector<std::string>{
            "op 'op1' is on device 'd0' of kind 'kind', which has no kernel for it"});
}

TEST_CASE("a violated constraint keeps the trace") {
  ProblemBuilder b = Devices(2);
  b.Op(5);
  b.Allow({1});
  b.Op(7);
  b.Op(9);
  b.Colocate({1, 2});
  const StepTrace trace = Run(b, {0, 0, 1});
  CHECK_FALSE(trace.feasible);
  CHECK(trace.makespan_ns == 5 + 7);
  CHECK(trace.infeasible_because ==
        std::vector<std::string>{
            "op 'op0' is on device 'd0', which is not among its allowed devices",
            "colocation group 'g0' is split: op 'op1' is on device 'd0' but op 'op2' is on device "
            "'d1'"});
  CHECK(Run(b, {1, 0, 0}).feasible);
}

TEST_CASE("too little memory is told with the bytes that are missing") {
  ProblemBuilder b;
  b.Device(1, 99);
  b.Op(1, {100});
  const StepTrace trace = Run(b, {0});
  CHECK(trace.has_trace);
  CHECK(trace.infeasible_because ==
        std::vector<std::string>{
            "device 'd0' needs 100 bytes at its peak but has 99: 1 bytes are missing"});
}

TEST_CASE("a batch equals single steps for any number of threads") {
  ProblemBuilder b = Devices(2, 10);
  b.Op(100, {7}, 1, 2);
  b.Op(50, {3});
  b.Op(20);
  b.Edge(0, 0, 1);
  b.Edge(1, 0, 2);
  const Problem problem = b.Build();
  const std::vector<int32_t> placements = {0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 1};
  for (int threads : {1, 4}) {
    std::array<int64_t, 5> makespan_ns;
    std::array<bool, 5> feasible;
    std::array<int64_t, 10> peak_bytes;
    SimulateBatch(problem, placements.data(), 5, threads, makespan_ns.data(), feasible.data(),
                  peak_bytes.data());
    for (size_t row = 0; row < 5; ++row) {
      const auto begin = placements.begin() + static_cast<int64_t>(row) * 3;
      const StepTrace trace = Simulate(problem, {begin, begin + 3});
      CHECK(makespan_ns[row] == trace.makespan_ns);
      CHECK(feasible[row] == trace.feasible);
      CHECK(Bytes{peak_bytes[row * 2], peak_bytes[row * 2 + 1]} == trace.peak_bytes);
    }
  }
}

}  // namespace
}  // namespace hplacer
