// The stepped clock: virtual time stands still while anything of this process can act, and moves to
// the next event when the process is quiescent (thread_watch.h has the rule).
//
// So a figure in virtual time does not depend on how fast this machine is, on the number of its
// cores or on what else runs there. An event is the end of a kernel or a copy, or the time that a
// thread of the host waits for. Threads that wait for one moment are woken one after the other, in
// the order in which they began to wait, each when the process is quiescent again.
//
// If time cannot move for `limit`, although somebody waits for it, the clock stops: one line on
// stderr names the thread that kept it from moving, all who wait get an error, and there is no
// virtual time any more: what devices are given is done at once.
#ifndef HPLACER_EMULATOR_CLOCK_H_
#define HPLACER_EMULATOR_CLOCK_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "emulator/streams.h"
#include "emulator/thread_watch.h"

namespace hplacer::emulator {

class Clock {
 public:
  // The process's.
  static Clock& Get();
  // Never destroyed: its threads run as long as the process, and others may wait for it at its end.
  Clock() = default;
  Clock(const Clock&) = delete;

  // Real seconds after which the clock stops. Before the first use.
  void SetLimit(double seconds) { limit_ns_ = static_cast<int64_t>(seconds * 1e9); }

  int64_t now_ns();
  // Why the clock stopped; empty if it did not.
  std::string stopped();
  bool has_stopped() const { return has_stopped_; }

  // Work for the devices, by the calling thread. All use of streams is inside of this.
  template <class Function>
  auto WithStreams(Function&& use) {
    std::lock_guard<std::mutex> lock(mutex_);
    NoteActivity();
    const AtEnd at_end{this};
    return use(streams_);
  }

  // Looks at streams without changing anything, by a thread that asks again and again.
  template <class Function>
  auto WithPolling(Function&& use) {
    ThreadWatch::TouchByPolling();
    std::lock_guard<std::mutex> lock(mutex_);
    return use(streams_);
  }

  // Blocks the calling thread until that time, or until the mark is done. False: the clock stopped.
  [[nodiscard]] bool SleepUntil(int64_t time_ns);
  [[nodiscard]] bool WaitFor(const MarkPtr& mark);

  // The calling thread computes in earnest, which may take longer than the limit.
  void BeginComputing();
  void EndComputing();

  struct Counts {
    int64_t advances, looks;
  };
  Counts counts() const { return {num_advances_, num_looks_}; }

 private:
  struct Waiter {
    explicit Waiter(int64_t order) : order(order) {}
    const int64_t order;  // of arrival
    std::condition_variable woken;
    bool is_woken = false;
  };
  struct AtEnd {
    Clock* clock;
    ~AtEnd() { clock->EndAllIfStopped(); }
  };
  void NoteActivity();
  void EndAllIfStopped();
  void Wait(std::unique_lock<std::mutex>* lock, Waiter* waiter);
  void TakeThoseWhoseMarkIsDone();
  bool HasSomethingAhead() const;
  void Step();
  void Stop(const std::string& why);
  int64_t LimitNs() const;
  void RunClock();
  void RunCallbacks();

  std::mutex mutex_;  // guards all that is not atomic
  std::condition_variable has_work_, has_callback_;
  Streams streams_;
  std::multimap<int64_t, Waiter*> sleepers_;  // by time
  std::multimap<Mark*, Waiter*> mark_waiters_;
  int64_t num_waiters_ = 0;  // that have ever been
  std::deque<Waiter*> to_wake_;
  int num_callbacks_ = 0;  // that run
  bool is_started_ = false;
  std::atomic<bool> has_stopped_{false};
  std::string stopped_;
  int64_t limit_ns_ = 60'000'000'000;
  std::atomic<int64_t> activity_{0}, num_computing_{0}, num_advances_{0}, num_looks_{0};
  std::atomic<int64_t> computed_ns_{0};  // real time, when somebody did last
};

}  // namespace hplacer::emulator

#endif  // HPLACER_EMULATOR_CLOCK_H_
