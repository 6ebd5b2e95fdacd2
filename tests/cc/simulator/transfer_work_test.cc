// Transfers that are work for their ends, and devices that start later: schedules by hand.

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "engine/simulator/simulator.h"
#include "problem_builder.h"
#include "simulator/run.h"

namespace hplacer {
namespace {

using Ns = std::vector<int64_t>;

constexpr int64_t kSendNs = 3, kReceiveNs = 2, kLatencyNs = 4;
constexpr int64_t kAlone = kSendNs + kLatencyNs + kReceiveNs;

// Two devices; a transfer from one to the other takes kAlone, without regard to its bytes.
ProblemBuilder Hosts(int64_t turn_ns, int32_t slots = 1) {
  ProblemBuilder b;
  b.Device(slots);
  b.Device(slots);
  b.Link(0, 1, "there", kLatencyNs, 1'000'000'000'000);
  b.Link(1, 0, "back", kLatencyNs, 1'000'000'000'000);
  b.spec.link_send_ns = {kSendNs, kSendNs};
  b.spec.link_receive_ns = {kReceiveNs, kReceiveNs};
  b.spec.device_turn_ns = {turn_ns, turn_ns};
  return b;
}

// Op 0 sends to op 1, and its device has op 2 to run, of 100 ns.
ProblemBuilder Busy(int64_t turn_ns, int32_t slots = 1) {
  ProblemBuilder b = Hosts(turn_ns, slots);
  b.Op(10, {0});
  b.Op(5);
  b.Op(100);
  b.Edge(0, 0, 1);
  b.Control(0, 2);
  return b;
}

TEST_CASE("a transfer between idle devices is sent, carried and received") {
  ProblemBuilder b = Hosts(0);
  b.Op(10, {0});
  b.Op(5);
  b.Edge(0, 0, 1);
  const StepTrace trace = Run(b, {0, 1});
  CHECK(trace.makespan_ns == 10 + kAlone + 5);
  REQUIRE(trace.transfers.size() == 1);
  const Transfer& sent = trace.transfers[0];
  CHECK(sent.issue_ns == 10);
  CHECK(sent.sent_ns == 10 + kSendNs);
  CHECK(sent.start_ns == 10 + kSendNs);
  CHECK(sent.carried_ns == 10 + kSendNs + kLatencyNs);
  CHECK(sent.finish_ns == 10 + kAlone);
}

TEST_CASE("work takes longer after ops, the first one only, and no more than a quarter of them") {
  ProblemBuilder b = Hosts(100);
  b.spec.device_cold_ns = {7, 1};
  b.Op(12, {0, 0});
  b.Op(5);
  b.Op(8);
  b.Edge(0, 0, 1);
  b.Edge(0, 1, 2);
  const StepTrace trace = Run(b, {0, 1, 1});
  REQUIRE(trace.transfers.size() == 2);
  const Transfer &first = trace.transfers[0], &second = trace.transfers[1];
  CHECK(first.sent_ns == 12 + kSendNs + 12 / 4);
  CHECK(second.sent_ns == first.sent_ns + kSendNs);
  CHECK(first.finish_ns == first.sent_ns + kLatencyNs + kReceiveNs);  // no op has run there
  // It waits for op 1, which fills the caches.
  CHECK(second.carried_ns == first.carried_ns + kLatencyNs);
  CHECK(second.finish_ns == first.finish_ns + 5 + kReceiveNs + 1);
}

TEST_CASE("a busy device sends when it runs out of ops") {
  const StepTrace trace = Run(Busy(1000), {0, 1, 0});
  CHECK(trace.finish_ns == Ns{10, 110 + kAlone + 5, 110});
}

TEST_CASE("a busy device sends when its turn is over, and then goes on with its op") {
  const StepTrace trace = Run(Busy(20), {0, 1, 0});
  CHECK(trace.start_ns == Ns{0, 30 + kAlone, 10});
  CHECK(trace.finish_ns == Ns{10, 30 + kAlone + 5, 110 + kSendNs});
}

TEST_CASE("each op that runs or is ready has a turn, as far as there are threads") {
  const auto sent_ns = [](int32_t threads, int32_t slots) {
    ProblemBuilder b = Hosts(20, slots);
    b.spec.inter_op_threads = threads;
    b.Op(10, {0});
    b.Op(5);
    b.Edge(0, 0, 1);
    for (int32_t op = 2; op < 5; ++op) {
      b.Op(100);
      b.Control(0, op);
    }
    return Run(b, {0, 1, 0, 0, 0}).transfers[0].sent_ns;
  };
  CHECK(sent_ns(16, 1) == 10 + 3 * 20 + kSendNs);
  CHECK(sent_ns(2, 1) == 10 + 2 * 20 + kSendNs);
  CHECK(sent_ns(16, 2) == 10 + 3 * 20 / 2 + kSendNs);
  CHECK(sent_ns(1, 2) == 10 + 20 + kSendNs);
}

TEST_CASE("without turns, what is to be sent goes before ops that are ready") {
  const StepTrace trace = Run(Busy(0), {0, 1, 0});
  CHECK(trace.start_ns == Ns{0, 10 + kAlone, 10 + kSendNs});
}

TEST_CASE("a free slot sends at once") {
  const StepTrace trace = Run(Busy(1000, 2), {0, 1, 0});
  CHECK(trace.finish_ns == Ns{10, 10 + kAlone + 5, 110});
}

TEST_CASE("a busy device receives when its turn is over") {
  ProblemBuilder b = Hosts(20);
  b.Op(10, {0});
  b.Op(5);
  b.Op(100);
  b.Edge(0, 0, 1);
  const StepTrace trace = Run(b, {0, 1, 1});
  const int64_t received_ns = 10 + kSendNs + kLatencyNs + 20 + kReceiveNs;
  CHECK(trace.transfers[0].finish_ns == received_ns);
  CHECK(trace.finish_ns == Ns{10, 100 + kReceiveNs + 5, 100 + kReceiveNs});
}

TEST_CASE("when the first is due, all that waits is") {
  ProblemBuilder b = Hosts(20);
  b.Op(10, {0});
  b.Op(15, {0});
  b.Op(100);
  b.Op(1);
  b.Edge(0, 0, 3);
  b.Edge(1, 0, 3);
  b.Control(0, 1);
  b.Control(1, 2);
  const StepTrace trace = Run(b, {0, 0, 0, 1});
  REQUIRE(trace.transfers.size() == 2);
  CHECK(trace.transfers[0].sent_ns == 10 + 20 + kSendNs);
  CHECK(trace.transfers[1].sent_ns == 10 + 20 + 2 * kSendNs);
  CHECK(trace.finish_ns[2] == 25 + 100 + 2 * kSendNs);
}

TEST_CASE("work interrupts the op that started first") {
  ProblemBuilder b = Hosts(20, 2);
  b.Op(10, {0});  // op 2 runs beside it from 0, op 3 after it from 10
  b.Op(5);
  b.Op(100);
  b.Op(100);
  b.Edge(0, 0, 1);
  b.Control(0, 3);
  const StepTrace trace = Run(b, {0, 1, 0, 0});
  CHECK(trace.transfers[0].sent_ns == 30 + kSendNs);
  CHECK(trace.finish_ns[2] == 100 + kSendNs);
  CHECK(trace.finish_ns[3] == 110);
}

TEST_CASE("the bytes of a tensor are work at either end") {
  ProblemBuilder b = Hosts(0);
  b.spec.link_send_bytes_per_s = {500'000'000, 0};     // 2 ns per byte
  b.spec.link_receive_bytes_per_s = {250'000'000, 0};  // 4
  b.Op(10, {10});
  b.Op(5);
  b.Edge(0, 0, 1);
  CHECK(Run(b, {0, 1}).makespan_ns == 10 + kAlone + 1 + 20 + 40 + 5);
  CHECK(Run(b, {1, 0}).makespan_ns == 10 + kAlone + 1 + 5);
}

TEST_CASE("the source is held until the channel is done, its copy from the channel's start") {
  ProblemBuilder b = Hosts(1000);
  b.Op(10, {7});
  b.Op(5);
  b.Edge(0, 0, 1);
  CHECK(Run(b, {0, 1}).peak_bytes == Ns{7, 7});
}

TEST_CASE("no op starts on a device before the device does") {
  ProblemBuilder b = Hosts(0);
  b.spec.device_start_ns = {50, 200};
  b.Op(10, {0});
  b.Op(5);
  b.Op(1);
  b.Edge(0, 0, 1);
  const StepTrace trace = Run(b, {0, 1, 1});
  CHECK(trace.start_ns == Ns{50, 200, 205});
  CHECK(Run(b, {0, 0, 0}).makespan_ns == 50 + 10 + 5 + 1);
}

TEST_CASE("a turn that no step lives to see is the end of the ops") {
  const StepTrace trace = Run(Busy(std::numeric_limits<int64_t>::max()), {0, 1, 0});
  CHECK(trace.finish_ns == Ns{10, 110 + kAlone + 5, 110});
}

}  // namespace
}  // namespace hplacer
