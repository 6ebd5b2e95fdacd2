// Which thread of a host begins with what.

#include "engine/simulator/host_threads.h"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

namespace hplacer {
namespace {

constexpr int32_t kNone = HostThreads::kNoThread;

// The thread and the op of each task that is taken up.
std::vector<std::pair<int32_t, int32_t>> Taken(HostThreads* threads) {
  std::vector<std::pair<int32_t, int32_t>> taken;
  threads->TakeWaiting(
      [&](int32_t thread, const HostThreads::Task& task) { taken.emplace_back(thread, task.op); });
  return taken;
}

TEST_CASE("threads begin until there are no more of them on the host") {
  HostThreads threads;
  threads.Reset(2, 2, 0);
  CHECK(threads.Begin(0, {10, false}, kNone) == 0);
  CHECK(threads.Begin(1, {11, false}, kNone) == 1);
  CHECK(threads.Begin(0, {12, false}, kNone) == 2);
  CHECK(threads.Begin(0, {13, false}, kNone) == kNone);
  CHECK(threads.Begin(1, {14, false}, kNone) == 3);  // the other host has one left
  CHECK(Taken(&threads).empty());
  threads.End(1);
  CHECK(Taken(&threads).empty());  // of the other host
  threads.End(2);
  CHECK(Taken(&threads) == std::vector<std::pair<int32_t, int32_t>>{{2, 13}});
  threads.End(2);
  CHECK(threads.Begin(0, {15, false}, kNone) == 2);  // again
}

TEST_CASE("a thread takes first what it found last") {
  HostThreads threads;
  threads.Reset(1, 1, 0);
  CHECK(threads.Begin(0, {0, false}, kNone) == 0);
  for (const int32_t op : {1, 2, 3}) CHECK(threads.Begin(0, {op, false}, 0) == kNone);
  std::vector<int32_t> order;
  for (int i = 0; i < 3; ++i) {
    threads.End(0);
    order.push_back(Taken(&threads).at(0).second);
  }
  CHECK(order == std::vector<int32_t>{3, 2, 1});
}

TEST_CASE("what nobody's thread found is taken in the order in which it came, of one queue") {
  HostThreads threads;
  threads.Reset(1, 1, 0);
  CHECK(threads.Begin(0, {0, true}, kNone) == 0);
  for (const int32_t op : {1, 2}) CHECK(threads.Begin(0, {op, true}, kNone) == kNone);
  threads.End(0);
  threads.TakeWaiting([](int32_t, const HostThreads::Task& task) {
    CHECK(task.op == 1);
    CHECK(task.is_new);
  });
}

TEST_CASE("a thread without tasks of its own takes the last of another") {
  HostThreads threads;
  threads.Reset(1, 2, 0);
  CHECK(threads.Begin(0, {0, false}, kNone) == 0);
  CHECK(threads.Begin(0, {1, false}, kNone) == 1);
  for (const int32_t op : {2, 3, 4}) CHECK(threads.Begin(0, {op, false}, 0) == kNone);
  threads.End(1);
  CHECK(Taken(&threads) == std::vector<std::pair<int32_t, int32_t>>{{1, 2}});
  threads.End(0);
  CHECK(Taken(&threads) == std::vector<std::pair<int32_t, int32_t>>{{0, 4}});
}

TEST_CASE("queues are drawn by the seed, and a reset forgets what waited") {
  const auto order = [](HostThreads* threads, uint64_t seed) {
    threads->Reset(1, 4, seed);
    for (int32_t op = 0; op < 20; ++op) threads->Begin(0, {op, false}, kNone);
    std::vector<int32_t> found;
    for (int i = 0; i < 8; ++i) {
      threads->End(i % 4);
      for (const auto& [thread, op] : Taken(threads)) found.push_back(op);
    }
    return found;
  };
  HostThreads threads, others;
  const std::vector<int32_t> first = order(&threads, 1);
  CHECK(first.size() == 8);
  CHECK(order(&threads, 1) == first);
  CHECK(order(&others, 1) == first);
  CHECK(order(&threads, 2) != first);
}

}  // namespace
}  // namespace hplacer
