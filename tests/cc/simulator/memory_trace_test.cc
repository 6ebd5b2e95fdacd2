#include "engine/simulator/memory_trace.h"

#include <doctest/doctest.h>

#include <tuple>
#include <vector>

#include "problem_builder.h"

namespace hplacer {
namespace {

using Row = std::tuple<int64_t, int32_t, int64_t>;                 // time, device, held
using Holder = std::tuple<int32_t, MemoryKind, int32_t, int64_t>;  // op, kind, output, bytes
constexpr MemoryKind kPersistent = MemoryKind::kPersistent;
constexpr MemoryKind kTemp = MemoryKind::kTemp;
constexpr MemoryKind kOutput = MemoryKind::kOutput;
constexpr MemoryKind kCopy = MemoryKind::kCopy;

std::vector<Row> Timeline(const ProblemBuilder& b, const std::vector<int32_t>& placement) {
  std::vector<Row> rows;
  for (const HeldBytes& held : MemoryTimeline(b.Build(), placement)) {
    rows.emplace_back(held.time_ns, held.device, held.bytes);
  }
  return rows;
}

std::vector<Holder> Holders(const ProblemBuilder& b, const std::vector<int32_t>& placement,
                            int32_t device) {
  std::vector<Holder> rows;
  for (const MemoryHolder& holder : PeakHolders(b.Build(), placement, device)) {
    rows.emplace_back(holder.use.op, holder.use.kind, holder.use.output, holder.bytes);
  }
  return rows;
}

// a on device 0 (persistent 1000, temp 5, outputs 8 and 2) is read by b on device 1, which has
// persistent 100 and output 4 without a reader. 1 byte per ns, latency 10.
ProblemBuilder TwoOps() {
  ProblemBuilder b;
  b.Device();
  b.Device();
  b.Link(0, 1, "x", 10);
  b.Op(50, {8, 2}, 5, 1000);
  b.Op(20, {4}, 0, 100);
  b.Edge(0, 0, 1);
  return b;
}

TEST_CASE("a timeline has every allocation and free, in order") {
  CHECK(Timeline(TwoOps(), {0, 1}) == std::vector<Row>{
                                          {0, 0, 1000},
                                          {0, 1, 100},
                                          {0, 0, 1005},       // a's temp
                                          {0, 0, 1013},       // its output 0
                                          {0, 0, 1015},       // its output 1
                                          {50, 0, 1010},      // temp freed
                                          {50, 0, 1008},      // output 1 has no reader
                                          {50, 1, 108},       // the copy, for 10 + 8 ns
                                          {68, 0, 1000},      // sent
                                          {68, 1, 112},       // b's output
                                          {68 + 20, 1, 108},  // which has no reader
                                          {68 + 20, 1, 100},  // the copy is read
                                      });
}

TEST_CASE("several persistent ops of a device are one allocation") {
  ProblemBuilder b;
  b.Device();
  b.Op(1, {}, 0, 30);
  b.Op(1, {}, 0, 12);
  CHECK(Timeline(b, {0, 0}) == std::vector<Row>{{0, 0, 42}});
}

TEST_CASE("events of one time: ops by id, then transfers by source") {
  ProblemBuilder b;
  b.Device(2);
  b.Device();
  b.Link(0, 1, "down");
  b.Op(30, {}, 1);  // 0: ends at 30
  b.Op(10, {20});   // 1: ends at 10, its transfer at 30
  b.Op(20, {}, 2);  // 2: from 10 on, ends at 30
  b.Op(5);          // 3: reads 1 on device 1
  b.Edge(1, 0, 3);
  CHECK(Timeline(b, {0, 0, 0, 1}) == std::vector<Row>{
                                         {0, 0, 1},
                                         {0, 0, 21},
                                         {10, 1, 20},
                                         {10, 0, 23},
                                         {30, 0, 22},  // op 0's temp
                                         {30, 0, 20},  // op 2's temp
                                         {30, 0, 0},   // op 1's output, sent
                                         {35, 1, 0},
                                     });
}

TEST_CASE("holders at the peak, largest first") {
  CHECK(Holders(TwoOps(), {0, 1}, 0) ==
        std::vector<Holder>{
            {0, kPersistent, 0, 1000}, {0, kOutput, 0, 8}, {0, kTemp, 0, 5}, {0, kOutput, 1, 2}});
  CHECK(Holders(TwoOps(), {0, 1}, 1) ==
        std::vector<Holder>{{1, kPersistent, 0, 100}, {0, kCopy, 0, 8}, {1, kOutput, 0, 4}});
}

TEST_CASE("the first of two equal peaks counts") {
  ProblemBuilder b;
  b.Device();
  b.Op(1, {}, 7);
  b.Op(1, {}, 7);
  CHECK(Holders(b, {0, 0}, 0) == std::vector<Holder>{{0, kTemp, 0, 7}});
}

TEST_CASE("an alias holds its root's memory") {
  ProblemBuilder b;
  b.Device();
  b.Op(1, {64});
  b.Op(1, {64});
  b.Op(1, {1});
  b.Alias(1, 0, 0);
  b.Edge(0, 0, 1);
  b.Edge(1, 0, 2);
  CHECK(Holders(b, {0, 0, 0}, 0) == std::vector<Holder>{{0, kOutput, 0, 64}, {2, kOutput, 0, 1}});
}

TEST_CASE("no trace, no memory; malformed input is refused") {
  CHECK(Timeline(TwoOps(), {1, 0}).empty());  // no link
  CHECK(Holders(TwoOps(), {1, 0}, 0).empty());
  CHECK_THROWS_AS(Timeline(TwoOps(), {0}), ProblemError);
  CHECK_THROWS_WITH_AS(Holders(TwoOps(), {0, 1}, 2), "device: 2 is out of range, there are 2",
                       ProblemError);
}

}  // namespace
}  // namespace hplacer
