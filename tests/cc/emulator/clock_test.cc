#include "emulator/clock.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hplacer::emulator {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A clock is never destroyed. Those of other tests have nothing ahead and wait, as their threads
// do.
Clock& NewClock(double limit_s = 30) {
  auto* clock = new Clock;
  clock->SetLimit(limit_s);
  return *clock;
}

MarkPtr AddKernel(Clock* clock, Stream* stream, int64_t duration_ns) {
  return clock->WithStreams([&](Streams& streams) {
    streams.AddKernel(stream, duration_ns, nullptr);
    return streams.AddMark(stream, true);
  });
}

Stream* NewStream(Clock* clock) {
  return clock->WithStreams([](Streams& streams) { return streams.Add(0); });
}

// What threads did, in order.
class Log {
 public:
  void Add(const std::string& line) {
    std::lock_guard<std::mutex> lock(mutex_);
    lines_.push_back(line);
  }
  std::vector<std::string> lines() {
    std::lock_guard<std::mutex> lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// Threads that all begin when the last of them is there: until then the main thread runs, and time
// stands still.
void RunTogether(const std::vector<std::function<void()>>& all) {
  std::vector<std::thread> threads;
  for (const auto& one : all) threads.emplace_back(one);
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("threads are woken at their times") {
  Clock& clock = NewClock();
  Log log;
  std::vector<std::function<void()>> all;
  for (const int64_t time_ns : {30, 10, 20}) {
    all.push_back([&clock, &log, time_ns] {
      CHECK(clock.SleepUntil(time_ns));
      CHECK(clock.now_ns() == time_ns);
      log.Add(std::to_string(time_ns));
    });
  }
  RunTogether(all);
  CHECK(log.lines() == std::vector<std::string>{"10", "20", "30"});
  CHECK(clock.stopped().empty());
  CHECK(clock.SleepUntil(30));  // has passed
}

TEST_CASE("threads that wait for one moment are woken in the order in which they began to wait") {
  Clock& clock = NewClock();
  Log log;
  Stream *one = NewStream(&clock), *other = NewStream(&clock);
  const MarkPtr marks[] = {AddKernel(&clock, one, 100), AddKernel(&clock, other, 100)};
  std::vector<std::function<void()>> all;
  for (const int64_t arrival_ns : {6, 2, 5, 1, 4, 3}) {
    all.push_back([&, arrival_ns] {
      CHECK(clock.SleepUntil(arrival_ns));
      // Every third waits for the time, the others for one of two marks that are done then.
      const int64_t kind = arrival_ns % 3;
      CHECK((kind == 0 ? clock.SleepUntil(100) : clock.WaitFor(marks[kind - 1])));
      CHECK(clock.now_ns() == 100);
      log.Add(std::to_string(arrival_ns));
    });
  }
  RunTogether(all);
  CHECK(log.lines() == std::vector<std::string>{"1", "2", "3", "4", "5", "6"});
}

TEST_CASE("a thread that was woken acts before the next one of that moment") {
  Clock& clock = NewClock();
  Log log;
  std::vector<std::function<void()>> all;
  for (const int64_t arrival_ns : {1, 2}) {
    all.push_back([&, arrival_ns] {
      CHECK(clock.SleepUntil(arrival_ns));
      CHECK(clock.SleepUntil(10));
      log.Add(std::to_string(arrival_ns) + " begins");
      for (int i = 0; i < 3; ++i) {  // works, and sleeps for real while it does
        std::this_thread::sleep_for(milliseconds(2));
        clock.WithStreams([](Streams&) {});
      }
      log.Add(std::to_string(arrival_ns) + " ends");
      CHECK(clock.SleepUntil(20));
    });
  }
  RunTogether(all);
  CHECK(log.lines() == std::vector<std::string>{"1 begins", "1 ends", "2 begins", "2 ends"});
}

TEST_CASE("a thread that waits for a mark goes on when the mark is done") {
  Clock& clock = NewClock();
  Stream* stream = NewStream(&clock);
  const MarkPtr first = AddKernel(&clock, stream, 10), second = AddKernel(&clock, stream, 5);
  CHECK(clock.WaitFor(nullptr));
  CHECK(clock.now_ns() == 0);
  CHECK(clock.WaitFor(second));
  CHECK(clock.now_ns() == 15);
  CHECK(first->done_ns == 10);
  CHECK(clock.WaitFor(first));
  CHECK(clock.now_ns() == 15);
}

TEST_CASE("a thread that sleeps for real after it has touched a device holds the clock") {
  Clock& clock = NewClock();
  Log log;
  RunTogether({
      [&] {
        CHECK(clock.SleepUntil(100));
        log.Add("100");
      },
      [&] {
        ThreadWatch::Touch();
        std::this_thread::sleep_for(milliseconds(50));
        CHECK(clock.now_ns() == 0);
        CHECK(clock.SleepUntil(50));
        log.Add("50");
        std::this_thread::sleep_for(milliseconds(50));
        CHECK(clock.now_ns() == 50);
      },
  });
  CHECK(log.lines() == std::vector<std::string>{"50", "100"});
}

TEST_CASE("a thread that works holds the clock, whether it has touched a device or not") {
  Clock& clock = NewClock();
  Log log;
  RunTogether({
      [&] {
        CHECK(clock.SleepUntil(100));
        log.Add("100");
      },
      [&] {
        const auto end = steady_clock::now() + milliseconds(50);
        while (steady_clock::now() < end) {
        }
        CHECK(clock.SleepUntil(50));
        log.Add("50");
      },
  });
  CHECK(log.lines() == std::vector<std::string>{"50", "100"});
}

TEST_CASE("a thread that never touched a device and sleeps long does not hold the clock") {
  Clock& clock = NewClock();
  std::atomic<bool> is_over{false};
  std::mutex mutex;
  std::condition_variable may_end;
  RunTogether({
      [&] {  // a sleep that nothing ends
        std::this_thread::sleep_for(milliseconds(300));
        CHECK(is_over);
      },
      [&] {  // a wait with a time limit
        std::unique_lock<std::mutex> lock(mutex);
        CHECK(may_end.wait_for(lock, std::chrono::seconds(60), [&] { return is_over.load(); }));
      },
      [&] {
        for (int64_t time_ns = 1; time_ns < 20; ++time_ns) CHECK(clock.SleepUntil(time_ns));
        std::lock_guard<std::mutex> lock(mutex);
        is_over = true;
        may_end.notify_one();
      },
  });
}

TEST_CASE("a thread that looks again and again sees each event at its time") {
  Clock& clock = NewClock();
  Stream *one = NewStream(&clock), *other = NewStream(&clock);
  std::vector<MarkPtr> marks;
  for (int i = 0; i < 10; ++i) {
    marks.push_back(AddKernel(&clock, one, 10));
    AddKernel(&clock, other, 7);
  }
  std::vector<int64_t> seen;
  RunTogether({
      [&] {  // as TensorFlow's thread does that waits for events
        for (const MarkPtr& mark : marks) {
          while (!clock.WithPolling([&](const Streams&) { return mark->is_done(); })) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
          }
          seen.push_back(clock.now_ns());
        }
      },
  });
  CHECK(seen == std::vector<int64_t>{10, 20, 30, 40, 50, 60, 70, 80, 90, 100});
}

TEST_CASE("callbacks of streams run at their times, before time moves on") {
  Clock& clock = NewClock();
  Stream *one = NewStream(&clock), *other = NewStream(&clock);
  AddKernel(&clock, one, 10);
  int64_t called_ns = -1;
  clock.WithStreams([&](Streams& streams) {
    streams.AddCallback(one, [&] {
      std::this_thread::sleep_for(milliseconds(30));
      called_ns = clock.now_ns();
    });
  });
  const MarkPtr behind = AddKernel(&clock, one, 5), beside = AddKernel(&clock, other, 11);
  CHECK(clock.WaitFor(behind));
  CHECK(called_ns == 10);
  CHECK(behind->done_ns == 15);
  CHECK(beside->done_ns == 11);
}

TEST_CASE("a thread that waits for a mark right behind a callback goes on when that has run") {
  Clock& clock = NewClock();
  Stream* stream = NewStream(&clock);
  const MarkPtr mark = clock.WithStreams([&](Streams& streams) {
    streams.AddKernel(stream, 10, nullptr);
    streams.AddCallback(stream, [] { std::this_thread::sleep_for(milliseconds(30)); });
    return streams.AddMark(stream, true);
  });
  CHECK(clock.WaitFor(mark));
  CHECK(clock.now_ns() == 10);
}

TEST_CASE("a thread that never rests stops the clock, and is named") {
  Clock& clock = NewClock(/*limit_s=*/0.2);
  std::atomic<bool> is_over{false};
  const MarkPtr mark = AddKernel(&clock, NewStream(&clock), 10);
  RunTogether({
      [&] {
        pthread_setname_np(pthread_self(), "restless");
        while (!is_over) {
        }
      },
      [&] {
        CHECK_FALSE(clock.SleepUntil(5));
        CHECK_FALSE(clock.WaitFor(mark));
        is_over = true;
      },
  });
  CHECK(clock.stopped().find("virtual time stood still for 0.2 s, as thread ") == 0);
  CHECK(clock.stopped().find(" (restless) runs and could still act;") != std::string::npos);
  CHECK_FALSE(clock.SleepUntil(5));
}

TEST_CASE("after the clock has stopped nothing waits: what streams have is done") {
  Clock& clock = NewClock(/*limit_s=*/0.2);
  std::atomic<bool> is_over{false};
  Stream* stream = NewStream(&clock);
  std::atomic<int> num_called{0};
  const auto add_callback = [&] {
    clock.WithStreams([&](Streams& streams) {
      streams.AddKernel(stream, 10, nullptr);
      streams.AddCallback(stream, [&] { ++num_called; });
    });
  };
  add_callback();
  RunTogether({
      [&] {
        while (!is_over) {
        }
      },
      [&] {
        CHECK_FALSE(clock.SleepUntil(5));
        is_over = true;
      },
  });
  add_callback();
  const auto end = steady_clock::now() + std::chrono::seconds(10);
  while (num_called < 2 && steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
  CHECK(num_called == 2);
}

TEST_CASE("while a kernel computes the limit is ten times as long") {
  Clock& clock = NewClock(/*limit_s=*/0.2);
  RunTogether({
      [&] {
        clock.BeginComputing();
        const auto end = steady_clock::now() + milliseconds(500);
        while (steady_clock::now() < end) {
        }
        clock.EndComputing();
      },
      [&] { CHECK(clock.SleepUntil(5)); },
  });
  CHECK(clock.stopped().empty());
}

}  // namespace
}  // namespace hplacer::emulator
