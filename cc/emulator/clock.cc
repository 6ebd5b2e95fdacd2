#include "emulator/clock.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

namespace hplacer::emulator {
namespace {

constexpr int64_t kShortestPauseNs = 10'000, kLongestPauseNs = 200'000;
constexpr int kComputingFactor = 10;  // of the limit, while a kernel computes and soon after

int64_t RealNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

std::string Seconds(int64_t ns) {
  char text[32];
  snprintf(text, sizeof text, "%g s", static_cast<double>(ns) / 1e9);
  return text;
}

void Pause(int64_t ns) {
  const timespec time{0, ns};
  nanosleep(&time, nullptr);
}

}  // namespace

Clock& Clock::Get() {
  static auto* clock = new Clock;
  return *clock;
}

int64_t Clock::now_ns() {
  std::lock_guard<std::mutex> lock(mutex_);
  return streams_.now_ns();
}

std::string Clock::stopped() {
  std::lock_guard<std::mutex> lock(mutex_);
  return stopped_;
}

void Clock::BeginComputing() {
  ThreadWatch::BeginComputing();
  ++num_computing_;
}

void Clock::EndComputing() {
  ThreadWatch::EndComputing();
  computed_ns_ = RealNs();
  --num_computing_;
}

// What follows a kernel that computed for long has not had its time yet.
int64_t Clock::LimitNs() const {
  const bool has_computed = num_computing_ > 0 || RealNs() - computed_ns_ < limit_ns_;
  return has_computed ? kComputingFactor * limit_ns_ : limit_ns_;
}

// With the lock.
void Clock::NoteActivity() {
  ThreadWatch::Touch();
  ++activity_;
  if (!is_started_) {
    is_started_ = true;
    std::thread([this] { RunClock(); }).detach();
    std::thread([this] { RunCallbacks(); }).detach();
  }
  has_work_.notify_one();
  has_callback_.notify_one();
}

bool Clock::SleepUntil(int64_t time_ns) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!stopped_.empty()) return false;
  if (time_ns <= streams_.now_ns()) return true;
  Waiter waiter(num_waiters_++);
  sleepers_.emplace(time_ns, &waiter);
  Wait(&lock, &waiter);
  return stopped_.empty();
}

bool Clock::WaitFor(const MarkPtr& mark) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!stopped_.empty()) return false;
  if (mark == nullptr || mark->is_done()) return true;
  Waiter waiter(num_waiters_++);
  mark_waiters_.emplace(mark.get(), &waiter);
  Wait(&lock, &waiter);
  return stopped_.empty();
}

void Clock::Wait(std::unique_lock<std::mutex>* lock, Waiter* waiter) {
  NoteActivity();
  waiter->woken.wait(*lock, [waiter] { return waiter->is_woken; });
  ++activity_;
}

// With the lock.
bool Clock::HasSomethingAhead() const {
  return !to_wake_.empty() || !sleepers_.empty() || streams_.NextNs() != kNever;
}

// With the lock. A mark may be done without a step, too: behind a callback.
void Clock::TakeThoseWhoseMarkIsDone() {
  for (auto it = mark_waiters_.begin(); it != mark_waiters_.end();) {
    if (!it->first->is_done()) {
      ++it;
      continue;
    }
    to_wake_.push_back(it->second);
    it = mark_waiters_.erase(it);
  }
}

// With the lock, when the process is quiescent: wakes the next thread of this moment, or moves
// time.
void Clock::Step() {
  if (to_wake_.empty()) {
    // What the host cannot notice needs no stop: kernels end one after the other.
    const int64_t sleeper_ns = sleepers_.empty() ? kNever : sleepers_.begin()->first;
    int64_t next_ns;
    do {
      next_ns = std::min(streams_.NextNs(), sleeper_ns);
    } while (!streams_.AdvanceTo(next_ns) && next_ns < sleeper_ns && streams_.NextNs() != kNever);
    ++num_advances_;
    TakeThoseWhoseMarkIsDone();
    const auto end = sleepers_.upper_bound(next_ns);
    for (auto it = sleepers_.begin(); it != end; ++it) to_wake_.push_back(it->second);
    sleepers_.erase(sleepers_.begin(), end);
    std::sort(to_wake_.begin(), to_wake_.end(),
              [](const Waiter* one, const Waiter* other) { return one->order < other->order; });
    has_callback_.notify_one();
  }
  if (to_wake_.empty()) return;
  Waiter* waiter = to_wake_.front();
  to_wake_.pop_front();
  waiter->is_woken = true;
  waiter->woken.notify_one();
}

// With the lock.
void Clock::Stop(const std::string& why) {
  stopped_ = why;
  has_stopped_ = true;
  fprintf(stderr, "hplacer: emulated clock: %s\n", why.c_str());
  for (const auto& [time_ns, waiter] : sleepers_) to_wake_.push_back(waiter);
  for (const auto& [mark, waiter] : mark_waiters_) to_wake_.push_back(waiter);
  sleepers_.clear();
  mark_waiters_.clear();
  for (Waiter* waiter : std::exchange(to_wake_, {})) {
    waiter->is_woken = true;
    waiter->woken.notify_one();
  }
  EndAllIfStopped();
}

// With the lock. Callbacks are called, too: somebody may wait for what they do.
void Clock::EndAllIfStopped() {
  if (stopped_.empty()) return;
  while (streams_.NextNs() != kNever) streams_.AdvanceTo(streams_.NextNs());
  has_callback_.notify_one();
}

void Clock::RunClock() {
  pthread_setname_np(pthread_self(), "emulated_clock");
  prctl(PR_SET_TIMERSLACK, 1);
  ThreadWatch watch;
  int64_t seen = -1, pause_ns = kShortestPauseNs, progress_ns = RealNs();
  std::unique_lock<std::mutex> lock(mutex_);
  if (!watch.IsSupported()) {
    Stop("this system does not tell what threads wait for (/proc/self/task/*/syscall)");
  }
  while (stopped_.empty()) {
    if (!HasSomethingAhead()) {
      has_work_.wait(lock, [this] { return HasSomethingAhead(); });
      progress_ns = RealNs();
    }
    const int64_t activity = activity_;
    if (activity != seen) {
      watch.Restart();
      seen = activity;
      progress_ns = RealNs();
      pause_ns = kShortestPauseNs;
    }
    const bool may_step = num_callbacks_ == 0;
    lock.unlock();
    ++num_looks_;
    const bool is_quiescent = may_step && watch.IsQuiescent();
    if (!is_quiescent) {
      Pause(pause_ns);
      pause_ns = std::min(2 * pause_ns, kLongestPauseNs);
    }
    lock.lock();
    if (activity != activity_) continue;
    if (is_quiescent && num_callbacks_ == 0) {
      if (!HasSomethingAhead()) continue;
      Step();
      watch.Restart();
      progress_ns = RealNs();
      pause_ns = kShortestPauseNs;
      continue;
    }
    const int64_t limit_ns = LimitNs();
    if (RealNs() - progress_ns < limit_ns) continue;
    Stop("virtual time stood still for " + Seconds(limit_ns) + ", as " + watch.Blocker() +
         " and could still act; nothing that is measured after this counts. If it only takes long, "
         "raise the limit: HPLACER_EMULATION_LIMIT_S");
  }
}

void Clock::RunCallbacks() {
  pthread_setname_np(pthread_self(), "emulated_calls");
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    auto [stream, callback] = streams_.TakeCallback();
    if (stream == nullptr) {
      has_callback_.wait(lock);
      continue;
    }
    ++num_callbacks_;
    lock.unlock();
    callback();
    lock.lock();
    --num_callbacks_;
    streams_.Finish(stream);
    TakeThoseWhoseMarkIsDone();
    EndAllIfStopped();
    ++activity_;
    has_work_.notify_one();
  }
}

}  // namespace hplacer::emulator
