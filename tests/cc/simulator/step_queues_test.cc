#include "engine/simulator/step_queues.h"

#include <doctest/doctest.h>

#include <limits>
#include <utility>
#include <vector>

namespace hplacer {
namespace {

using Ints = std::vector<int32_t>;

Ints DrainAll(ArrivalQueue<int32_t>* queue) {
  Ints keys;
  while (!queue->empty()) keys.push_back(queue->Pop());
  return keys;
}

TEST_CASE("an index set is drained in ascending order, across words") {
  IndexSet set;
  set.Reset(200);
  for (int32_t i : {150, 3, 64, 63, 199, 3, 5}) set.Add(i);
  set.Remove(5);
  Ints visited;
  set.Drain([&](int32_t i) { visited.push_back(i); });
  CHECK(visited == Ints{3, 63, 64, 150, 199});
  set.Drain([&](int32_t i) { visited.push_back(i); });
  CHECK(visited.size() == 5);
}

TEST_CASE("a queue without times keeps the order of arrival") {
  Fifo queue;
  for (const int32_t item : {5, 4, 3}) queue.Push(item);
  CHECK(queue.Front() == 5);
  CHECK(queue.Pop() == 5);
  queue.Push(2);
  CHECK(queue.size() == 3);
  for (const int32_t expected : {4, 3, 2}) CHECK(queue.Pop() == expected);
  CHECK(queue.empty());
}

TEST_CASE("arrivals are ordered by time, then key") {
  ArrivalQueue<int32_t> queue;
  for (int32_t key : {7, 2, 9}) queue.Push(0, key);
  queue.Seal();
  CHECK(queue.Pop() == 2);
  for (int32_t key : {4, 1}) queue.Push(5, key);
  queue.Seal();
  CHECK(DrainAll(&queue) == Ints{7, 9, 1, 4});
}

TEST_CASE("later rounds of the same time are merged into what still waits") {
  ArrivalQueue<int32_t> queue;
  queue.Push(0, 1);
  queue.Seal();
  for (int32_t key : {8, 4, 6}) queue.Push(3, key);
  queue.Seal();
  for (int32_t key : {9, 2, 5}) queue.Push(3, key);  // a second round at 3
  queue.Seal();
  CHECK(queue.Pop() == 1);
  CHECK(queue.Pop() == 2);
  CHECK(queue.Pop() == 4);
  queue.Push(3, 3);
  queue.Seal();
  CHECK(queue.Pop() == 3);
  queue.Push(4, 0);  // closes the batch of 3
  queue.Seal();
  CHECK(DrainAll(&queue) == Ints{5, 6, 8, 9, 0});
}

TEST_CASE("a batch that was emptied still takes arrivals of its time") {
  ArrivalQueue<int32_t> queue;
  queue.Push(1, 5);
  queue.Seal();
  CHECK(queue.Pop() == 5);
  queue.Push(1, 4);
  queue.Push(1, 3);
  queue.Seal();
  CHECK(DrainAll(&queue) == Ints{3, 4});
}

TEST_CASE_TEMPLATE("events come by time", Key, uint64_t, unsigned __int128) {
  EventQueue<Key> queue;
  queue.Reset(5);
  CHECK(queue.empty());
  const std::vector<std::pair<int64_t, int32_t>> events = {
      {40, 0}, {10, -1}, {30, 2}, {20, -7}, {50, 4}};
  for (const auto& [time_ns, event] : events) queue.Push(time_ns, event);
  CHECK(queue.time_ns() == 10);
  CHECK(queue.Pop() == -1);
  queue.Push(25, 11);
  Ints order;
  for (; !queue.empty();) order.push_back(queue.Pop());
  CHECK(order == Ints{-7, 11, 2, 0, 4});
  queue.Push(0, 1);
  queue.Reset(1);
  CHECK(queue.empty());
}

TEST_CASE("what fits a short key") {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  CHECK(EventQueue<uint64_t>::Fits(16, (int64_t{1} << 60) - 2));
  CHECK_FALSE(EventQueue<uint64_t>::Fits(17, (int64_t{1} << 60) - 2));
  CHECK_FALSE(EventQueue<uint64_t>::Fits(16, (int64_t{1} << 60) - 1));  // would look like none
  CHECK(EventQueue<unsigned __int128>::Fits(int64_t{1} << 40, kMax));
  EventQueue<unsigned __int128> queue;
  queue.Reset(2);
  queue.Push(kMax, 3);
  CHECK_FALSE(queue.empty());
  CHECK(queue.time_ns() == kMax);
  queue.Push(kMax - 1, 4);
  CHECK(queue.Pop() == 4);
  CHECK(queue.Pop() == 3);
}

}  // namespace
}  // namespace hplacer
