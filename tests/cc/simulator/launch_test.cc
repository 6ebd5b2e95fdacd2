// Ops that the host launches ahead: schedules by hand.

#include <doctest/doctest.h>

#include <vector>

#include "engine/simulator/critical_chain.h"
#include "engine/simulator/simulator.h"
#include "problem_builder.h"
#include "simulator/run.h"

namespace hplacer {
namespace {

using Ns = std::vector<int64_t>;

constexpr int64_t kLaunchNs = 6, kLatencyNs = 4;
constexpr int64_t kCopyNs = kLatencyNs + 1;  // of a byte

// Device 1 launches ops, device 0 if it has a time for that. Each direction has a channel.
ProblemBuilder TwoDevices(int64_t first_launch_ns, int64_t bytes_per_s) {
  ProblemBuilder b;
  b.Device();
  b.Device();
  b.Link(0, 1, "down", kLatencyNs, bytes_per_s);
  b.Link(1, 0, "up", kLatencyNs, bytes_per_s);
  b.spec.device_launch_ns = {first_launch_ns, kLaunchNs};
  return b;
}

ProblemBuilder HostAndGpu() { return TwoDevices(0, 1'000'000'000'000); }
ProblemBuilder TwoGpus() { return TwoDevices(kLaunchNs, 1'000'000'000); }

ProblemBuilder Chain(const Ns& costs_ns) {
  ProblemBuilder b = HostAndGpu();
  for (size_t op = 0; op < costs_ns.size(); ++op) {
    b.Op(costs_ns[op], {1});
    if (op > 0) b.Edge(static_cast<int32_t>(op) - 1, 0, static_cast<int32_t>(op));
  }
  return b;
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
  CHECK(trace.start_ns == Ns{0, 10 + kCopyNs + kLaunchNs, 27});
}

TEST_CASE("a copy to the host waits for the op, not for its launch") {
  const StepTrace trace = Run(Chain({10, 5}), {1, 0});
  CHECK(trace.start_ns == Ns{6, 6 + 10 + kCopyNs});
}

TEST_CASE("what is free is not launched, and hands on what was launched before it") {
  const StepTrace trace = Run(Chain({10, 0, 10}), {1, 1, 1});
  CHECK(trace.start_ns == Ns{6, 16, 16});
  CHECK(Run(Chain({10, 0, 10, 0, 10}), {1, 1, 1, 1, 1}).start_ns == Ns{6, 16, 16, 26, 26});
}

TEST_CASE("a control edge is waited for until the launch of its op") {
  ProblemBuilder b = HostAndGpu();
  b.Op(10);
  b.Op(10);
  b.Control(0, 1);
  CHECK(Run(b, {1, 1}).start_ns == Ns{6, 16});
}

TEST_CASE("ops are launched in the order in which threads come upon them") {
  // 1 and 2 are there from the beginning; 3 is found when 0 is launched, in front of nobody.
  ProblemBuilder b = HostAndGpu();
  for (int i = 0; i < 4; ++i) b.Op(10, {0});
  b.Edge(0, 0, 3);
  CHECK(Run(b, {1, 1, 1, 1}).start_ns == Ns{6, 16, 26, 36});
}

// Chains of two, all of which are ready from the beginning.
ProblemBuilder Pairs(int32_t count) {
  ProblemBuilder b = HostAndGpu();
  for (int32_t op = 0; op < 2 * count; ++op) {
    b.Op(1, {0});
    if (op % 2 == 1) b.Edge(op - 1, 0, op);
  }
  return b;
}

TEST_CASE("what finds no thread waits until one has nothing to do any more") {
  ProblemBuilder b = Pairs(3);
  const std::vector<int32_t> placement(6, 1);
  CHECK(Run(b, placement).start_ns == Ns{6, 24, 12, 30, 18, 36});  // each in turn
  b.spec.inter_op_threads = 2;
  CHECK(Run(b, placement).start_ns == Ns{6, 18, 12, 24, 30, 36});
  b.spec.inter_op_threads = 1;
  CHECK(Run(b, placement).start_ns == Ns{6, 12, 18, 24, 30, 36});
}

TEST_CASE("which queue it waits in is drawn") {
  ProblemBuilder b = Pairs(10);
  b.spec.inter_op_threads = 2;
  const std::vector<int32_t> placement(20, 1);
  const Ns first = Run(b, placement).start_ns;
  CHECK(Run(b, placement).start_ns == first);
  int different = 0;
  for (b.spec.launch_seed = 1; b.spec.launch_seed < 9; ++b.spec.launch_seed) {
    different += Run(b, placement).start_ns != first;
  }
  CHECK(different > 0);
}

TEST_CASE("ops of the host have the threads that launch") {
  // Four reads on the host, in chains of two: what waits for a thread is in no order of numbers.
  ProblemBuilder b = Pairs(4);
  const std::vector<int32_t> on_host(8, 0);
  CHECK(Run(b, on_host).start_ns == Ns{0, 4, 1, 5, 2, 6, 3, 7});  // each in turn, of one slot
  b.spec.inter_op_threads = 1;
  const Ns alone = Run(b, on_host).start_ns;
  for (int32_t op = 0; op < 8; op += 2) CHECK(alone[op + 1] == alone[op] + 1);  // goes on
  // While the host's op has the thread, nothing is launched.
  ProblemBuilder one = HostAndGpu();
  one.Op(10);
  one.Op(10);
  CHECK(Run(one, {0, 1}).start_ns == Ns{0, 6});
  one.spec.inter_op_threads = 1;
  CHECK(Run(one, {0, 1}).start_ns == Ns{0, 16});
  one.spec.device_launch_ns = {0, 0};  // without launches there are no such threads
  CHECK(Run(one, {0, 1}).start_ns == Ns{0, 0});
}

TEST_CASE("of followers that take time a thread of the host keeps one") {
  // 1, 2 and 3 follow 0 on a host with two slots; free ones follow in its thread.
  ProblemBuilder b = HostAndGpu();
  b.spec.device_slots = {2, 1};
  b.Op(1, {0});
  for (const int64_t cost_ns : {10, 10, 10}) b.Op(cost_ns);
  for (const int op : {1, 2, 3}) b.Edge(0, 0, op);
  CHECK(Run(b, {0, 0, 0, 0}).start_ns == Ns{0, 1, 1, 11});
  b.spec.inter_op_threads = 1;  // 3, then the last that it gave away
  CHECK(Run(b, {0, 0, 0, 0}).start_ns == Ns{0, 21, 11, 1});
}

TEST_CASE("each task has threads of its own") {
  ProblemBuilder b = TwoGpus();
  for (int i = 0; i < 4; ++i) b.Op(1, {0});
  for (const int op : {0, 2}) b.Edge(op, 0, op + 1);
  b.spec.inter_op_threads = 1;
  CHECK(Run(b, {0, 0, 1, 1}).start_ns == Ns{6, 12, 18, 24});
  b.spec.device_names = {"/task:0/device:GPU:0", "/task:1/device:GPU:0"};
  CHECK(Run(b, {0, 0, 1, 1}).start_ns == Ns{6, 12, 6, 12});
}

TEST_CASE("what several read behind a transfer stays, and its thread goes on with them") {
  // Op 1 hands on op 0; 2, 3 and 4 read it, and what 2 makes is sent.
  for (const bool stays : {true, false}) {
    ProblemBuilder b = HostAndGpu();
    b.Op(1, {0});
    b.Op(0, {0});
    for (int i = 0; i < 3; ++i) b.Op(10, {0});
    b.Op(1);
    b.Edge(0, 0, 1);
    b.Alias(1, 0, 0);
    for (const int op : {2, 3, 4}) b.Edge(stays ? 1 : 0, 0, op);
    b.Edge(2, 0, 5);
    const StepTrace trace = Run(b, {0, 1, 1, 1, 1, 0});
    CHECK(trace.start_ns[2] == 7);
    // Behind 3 and 4; or by a thread of its own, when 2 is launched.
    CHECK(trace.transfers.back().sent_ns == (stays ? 37 : 17));
  }
}

TEST_CASE("what hands on stays if it is read elsewhere, or if there were more edges without it") {
  // Op 2 hands on op 0 and waits for 1, for which 6 waits, too; 3 and 4 read 2, and 5 may.
  const auto stays = [](bool has_third_reader, int32_t device_of_fourth) {
    ProblemBuilder b = HostAndGpu();
    for (int i = 0; i < 2; ++i) b.Op(10, {0});
    b.Op(0, {0});
    for (int i = 0; i < 4; ++i) b.Op(10);
    b.Edge(0, 0, 1);
    b.Edge(0, 0, 2);
    b.Alias(2, 0, 0);
    for (const int op : {2, 6}) b.Control(1, op);
    for (const int op : {3, 4}) b.Edge(2, 0, op);
    b.Edge(has_third_reader ? 2 : 1, 0, 5);
    // Those that read what stays are launched behind what was found together with it.
    const StepTrace trace = Run(b, {1, 1, 1, 1, device_of_fourth, 1, 1});
    return trace.start_ns[6] < trace.start_ns[3];
  };
  CHECK(!stays(false, 1));
  CHECK(stays(true, 1));
  CHECK(stays(false, 0));
}

TEST_CASE("a copy waits for all that was launched before it on the device that sends") {
  // Op 0 is done at 16; ops 1 and 2 are launched before its successor 3, which is elsewhere.
  ProblemBuilder b = HostAndGpu();
  b.Op(10, {0});
  b.Op(50);
  b.Op(1);
  b.Op(5);
  b.Edge(0, 0, 3);
  StepTrace trace = Run(b, {1, 1, 1, 0});
  CHECK(trace.transfers[0].sent_ns == 16);  // by the thread that launched it, at 6
  // A thread that finds two ops before it: the copy is issued when these are launched.
  ProblemBuilder two = HostAndGpu();
  two.Op(10, {0});
  two.Op(50, {0});
  two.Op(1);
  two.Op(5);
  two.Edge(0, 0, 1);
  two.Edge(0, 0, 3);
  trace = Run(two, {1, 1, 1, 0});
  CHECK(trace.transfers[0].issue_ns == 16);      // it could go from here on
  CHECK(trace.transfers[0].sent_ns == 18 + 50);  // 0 is launched by 6, 2 by 12, 1 by 18
}

TEST_CASE("a copy from the host waits for all that was launched before it where it goes") {
  ProblemBuilder b = HostAndGpu();
  b.Op(10, {8});
  b.Op(100);
  b.Op(5);
  b.Edge(0, 0, 2);
  const StepTrace trace = Run(b, {0, 1, 1});
  CHECK(trace.transfers[0].issue_ns == 10);
  CHECK(trace.transfers[0].sent_ns == 106);
  CHECK(trace.start_ns[2] == 106 + kCopyNs + kLaunchNs);
}

TEST_CASE("a copy between devices that launch waits for both, one of no bytes for its source") {
  for (const int64_t bytes : {3, 0}) {
    ProblemBuilder b = TwoGpus();
    b.Op(10, {bytes});
    b.Op(100);
    b.Op(5);
    b.Edge(0, 0, 2);
    const StepTrace trace = Run(b, {0, 1, 1});
    CHECK(trace.transfers[0].sent_ns == (bytes > 0 ? 106 : 16));
    CHECK(trace.transfers[0].finish_ns == (bytes > 0 ? 106 + kLatencyNs + bytes : 16));
  }
}

TEST_CASE("a signal is sent behind what the thread comes upon before its constant is there") {
  ProblemBuilder b = TwoGpus();
  b.Op(10, {1});
  b.Op(10, {3});
  b.Op(10);
  b.Op(1);
  b.Edge(0, 0, 1);
  b.Edge(1, 0, 2);
  b.Control(0, 3);
  // The tensor of 1 waits for 1, the signal of 0 for the tensor, which takes three times a byte.
  const int64_t sent_ns = 6 + 10 + 10 + kLatencyNs + 3;
  const StepTrace trace = Run(b, {0, 0, 1, 1});
  CHECK(trace.start_ns == Ns{6, 16, sent_ns + kLaunchNs, sent_ns + kLaunchNs + 10});
}

TEST_CASE("what only waits for an op comes behind what reads it") {
  ProblemBuilder b = HostAndGpu();
  b.Op(10, {1});
  for (int op = 1; op < 4; ++op) b.Op(1);
  b.Edge(0, 0, 2);
  b.Edge(0, 0, 3);
  b.Control(0, 1);
  CHECK(Run(b, {1, 1, 1, 1}).start_ns == Ns{6, 24, 16, 18});
}

TEST_CASE(
    "of constants that are the same a device has one, whose thread goes on with all readers") {
  // 1 and 2 wait for the host; 3 reads 1, 4 reads 3, and 5 reads 2.
  const auto start_ns = [](bool is_same, const std::vector<int32_t>& placement) {
    ProblemBuilder b = TwoGpus();
    b.Device();
    for (int32_t device : {0, 1}) {
      b.Link(2, device, "in", kLatencyNs);
      b.Link(device, 2, "out", kLatencyNs);
    }
    b.spec.device_launch_ns = {kLaunchNs, kLaunchNs, 0};
    b.spec.inter_op_threads = 1;
    b.Op(10);
    for (int op = 1; op < 3; ++op) b.Op(0, {1});
    for (int op = 3; op < 6; ++op) b.Op(100, {1});
    b.Control(0, 1);
    b.Control(0, 2);
    b.Edge(1, 0, 3);
    b.Edge(3, 0, 4);
    b.Edge(2, 0, 5);
    if (is_same) b.spec.same_as = {-1, -1, 1, -1, -1, -1};
    return Run(b, placement).start_ns;
  };
  CHECK(start_ns(false, {2, 0, 0, 0, 0, 0}) == Ns{0, 10, 216, 16, 116, 216});
  CHECK(start_ns(true, {2, 0, 0, 0, 0, 0}) == Ns{0, 10, 10, 16, 216, 116});
  const std::vector<int32_t> apart = {2, 0, 1, 0, 0, 1};  // each device has one
  CHECK(start_ns(false, apart) == start_ns(true, apart));
}

TEST_CASE("copies of one device to its like go one after the other, whatever the channel") {
  ProblemBuilder b = TwoGpus();
  b.Device();
  b.Link(0, 2, "other", kLatencyNs, 1'000'000'000);
  b.spec.device_launch_ns.push_back(kLaunchNs);
  b.Op(10, {100});
  b.Op(1);
  b.Op(1);
  b.Edge(0, 0, 1);
  b.Edge(0, 0, 2);
  const StepTrace trace = Run(b, {0, 1, 2});
  CHECK(trace.transfers[0].sent_ns == 16);
  CHECK(trace.transfers[1].sent_ns == 16 + kLatencyNs + 100);
}

TEST_CASE("memory follows the launches") {
  // The outputs of 0 and 1 are freed when their readers are launched, long before these run.
  ProblemBuilder b = HostAndGpu();
  b.Op(100, {10});
  b.Op(100, {10});
  b.Op(100, {10});
  b.Edge(0, 0, 1);
  b.Edge(1, 0, 2);
  CHECK(Run(b, {1, 1, 1}).peak_bytes[1] == 20);
  // What nobody reads is given up with the launch: the copy of op 0 comes while op 2 runs, and
  // finds the memory of its output free.
  ProblemBuilder copied = HostAndGpu();
  copied.Op(10, {7});
  copied.Op(5);
  copied.Op(100, {9});
  copied.Edge(0, 0, 1);
  CHECK(Run(copied, {0, 1, 1}).peak_bytes[1] == 9);
}

TEST_CASE("who launches has one slot, and cores of its own") {
  ProblemBuilder b = HostAndGpu();
  b.spec.device_slots = {1, 2};
  CHECK_THROWS_AS(b.Build(), ProblemError);
  b.spec.device_slots = {1, 1};
  b.spec.device_cores = {"c", "c"};
  CHECK_THROWS_AS(b.Build(), ProblemError);
}

TEST_CASE("nothing is launched before the device starts") {
  ProblemBuilder b = Chain({5});
  b.spec.device_start_ns = {0, 50};
  CHECK(Run(b, {1}).start_ns == Ns{56});
}

TEST_CASE("nothing of a step that ends for want of a link comes up in the next one") {
  ProblemBuilder unlinked;
  unlinked.Device();
  unlinked.Device();
  unlinked.spec.device_launch_ns = {kLaunchNs, kLaunchNs};
  unlinked.Op(1, {1});
  for (int32_t reader = 1; reader <= 100; ++reader) {
    unlinked.Op(1);
    unlinked.Edge(0, 0, reader);
  }
  std::vector<int32_t> placement(101, 0);
  placement[100] = 1;  // the readers before it are found ready
  ProblemBuilder next;
  next.Device();
  next.Op(3);
  CHECK_FALSE(Run(unlinked, placement).has_trace);
  CHECK(Run(next, {0}).makespan_ns == 3);
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
