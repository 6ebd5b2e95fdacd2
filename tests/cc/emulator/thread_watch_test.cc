#include "emulator/thread_watch.h"

#include <doctest/doctest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hplacer::emulator {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long threads that poll sleep. Under the thread sanitizer a look takes ten times as long.
#ifdef __SANITIZE_THREAD__
constexpr std::chrono::microseconds kPolling(1000);
#else
constexpr std::chrono::microseconds kPolling(50);
#endif

// Looks until one finds the process quiescent, for so long at most.
bool IsQuiescentWithin(ThreadWatch* watch, milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  while (steady_clock::now() < end) {
    if (watch->IsQuiescent()) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return false;
}

// A thread that is there when this is made, and lasts until it is destroyed.
class Companion {
 public:
  template <class Function>
  explicit Companion(Function act) : thread_([this, act] { act(is_over_); }) {}
  ~Companion() {
    is_over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

TEST_CASE("a process whose threads wait for each other is quiescent") {
  ThreadWatch watch;
  REQUIRE(watch.IsSupported());
  std::promise<void> end;
  std::thread waiting([&] { end.get_future().wait(); });
  CHECK(IsQuiescentWithin(&watch, milliseconds(5000)));
  end.set_value();
  waiting.join();
  CHECK(IsQuiescentWithin(&watch, milliseconds(5000)));
}

TEST_CASE("while a thread runs the process is not quiescent") {
  ThreadWatch watch;
  Companion running([](const std::atomic<bool>& is_over) {
    pthread_setname_np(pthread_self(), "busy");
    while (!is_over) {
    }
  });
  CHECK_FALSE(IsQuiescentWithin(&watch, milliseconds(100)));
  CHECK(watch.Blocker().find(" (busy) runs") != std::string::npos);
}

TEST_CASE("a thread that wakes up now and then has looked once it sleeps again") {
  ThreadWatch watch;
  Companion looking([](const std::atomic<bool>& is_over) {
    ThreadWatch::Touch();
    while (!is_over) std::this_thread::sleep_for(milliseconds(1));
  });
  CHECK(IsQuiescentWithin(&watch, milliseconds(5000)));
}

TEST_CASE("of threads that sleep long, those that never touched a device are not waited for") {
  for (const bool touches : {false, true}) {
    ThreadWatch watch;
    Companion sleeping([touches](const std::atomic<bool>&) {
      if (touches) ThreadWatch::Touch();
      std::this_thread::sleep_for(milliseconds(400));
    });
    CHECK(IsQuiescentWithin(&watch, milliseconds(200)) == !touches);
    if (touches) CHECK(watch.Blocker().find(" sleeps") != std::string::npos);
  }
}

TEST_CASE("of threads that wait for input, those that never touched a device are not waited for") {
  for (const bool touches : {false, true}) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    ThreadWatch watch;
    std::thread reading([&] {
      if (touches) ThreadWatch::Touch();
      char byte;
      CHECK(read(ends[0], &byte, 1) == 1);
    });
    CHECK(IsQuiescentWithin(&watch, milliseconds(200)) == !touches);
    if (touches) CHECK(watch.Blocker().find(" waits for input") != std::string::npos);
    CHECK(write(ends[1], "x", 1) == 1);
    reading.join();
    close(ends[0]);
    close(ends[1]);
  }
}

TEST_CASE("a thread that only sleeps and wakes up is not waited for any longer") {
  ThreadWatch watch;
  Companion idle([](const std::atomic<bool>& is_over) {
    ThreadWatch::Touch();
    while (!is_over) std::this_thread::sleep_for(milliseconds(50));
  });
  for (int i = 0; i < 3; ++i) {  // three times it is waited for, in vain
    CHECK(IsQuiescentWithin(&watch, milliseconds(5000)));
    watch.Restart();
  }
  const auto start = steady_clock::now();
  for (int i = 0; i < 5; ++i) {
    CHECK(IsQuiescentWithin(&watch, milliseconds(5000)));
    watch.Restart();
  }
  CHECK(steady_clock::now() - start < milliseconds(5 * 50));
}

TEST_CASE("however long it sleeps, a thread that runs a kernel is waited for, others are not") {
  for (const bool computes : {false, true}) {
    ThreadWatch watch;
    Companion sleeping([computes](const std::atomic<bool>&) {
      ThreadWatch::Touch();
      if (computes) ThreadWatch::BeginComputing();
      std::this_thread::sleep_for(milliseconds(800));
      if (computes) ThreadWatch::EndComputing();
    });
    CHECK(IsQuiescentWithin(&watch, milliseconds(700)) == !computes);
    if (computes) continue;
    watch.Restart();  // the same sleep is not waited for again
    CHECK(IsQuiescentWithin(&watch, milliseconds(50)));
  }
}

TEST_CASE("a thread that waits for another one with a long time limit is not waited for") {
  ThreadWatch watch;
  std::mutex mutex;
  std::condition_variable woken;
  bool is_over = false;
  std::thread waiting([&] {
    ThreadWatch::Touch();
    ThreadWatch::BeginComputing();
    std::unique_lock<std::mutex> lock(mutex);
    CHECK(woken.wait_for(lock, std::chrono::seconds(60), [&] { return is_over; }));
    ThreadWatch::EndComputing();
  });
  CHECK(IsQuiescentWithin(&watch, milliseconds(300)));
  {
    std::lock_guard<std::mutex> lock(mutex);
    is_over = true;
  }
  woken.notify_one();
  waiting.join();
}

TEST_CASE("threads that poll, out of step with each other, do not hide that the others wait") {
  std::atomic<bool> is_over{false};
  std::vector<std::thread> polling;
  for (int i = 0; i < 4; ++i) {
    polling.emplace_back([&] {
      ThreadWatch::Touch();
      while (!is_over) std::this_thread::sleep_for(kPolling);
    });
  }
  std::promise<void> end;
  std::shared_future<void> ended = end.get_future().share();
  std::vector<std::thread> waiting;
  for (int i = 0; i < 50; ++i) waiting.emplace_back([ended] { ended.wait(); });
  ThreadWatch watch;
  for (int i = 0; i < 20; ++i) {
    CHECK(IsQuiescentWithin(&watch, milliseconds(5000)));
    watch.Restart();
  }
  end.set_value();
  is_over = true;
  for (std::thread& thread : waiting) thread.join();
  for (std::thread& thread : polling) thread.join();
}

TEST_CASE("while threads wake each other in turn the process is never quiescent") {
  constexpr int kThreads = 8;
  std::mutex mutex;
  std::condition_variable woken[kThreads];
  int turn = 0;
  bool is_over = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      std::unique_lock<std::mutex> lock(mutex);
      while (!is_over) {
        woken[i].wait(lock, [&] { return turn == i || is_over; });
        turn = (turn + 1) % kThreads;
        woken[turn].notify_one();
      }
    });
  }
  ThreadWatch watch;
  CHECK_FALSE(IsQuiescentWithin(&watch, milliseconds(300)));
  {
    std::lock_guard<std::mutex> lock(mutex);
    is_over = true;
  }
  for (std::condition_variable& each : woken) each.notify_one();
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("threads that come and go are seen") {
  ThreadWatch watch;
  for (int i = 0; i < 20; ++i) {
    {
      Companion running([](const std::atomic<bool>& is_over) {
        while (!is_over) {
        }
      });
      CHECK_FALSE(watch.IsQuiescent());
    }
    CHECK(IsQuiescentWithin(&watch, milliseconds(5000)));
  }
}

}  // namespace
}  // namespace hplacer::emulator
