#include "tf/interrupt_watch.h"

#include <signal.h>

#include <array>
#include <atomic>
#include <mutex>

#include "tf/per_process.h"

namespace hplacer {
namespace {

constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};

std::atomic<uint64_t> count{0};
std::array<struct sigaction, kSignals.size()> handlers;  // those that ours pass signals on to

void Count(int number, siginfo_t* info, void* context) {
  ++count;
  const struct sigaction& next = handlers[number == kSignals[0] ? 0 : 1];
  if (next.sa_flags & SA_SIGINFO) {
    next.sa_sigaction(number, info, context);
  } else {
    next.sa_handler(number);
  }
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == &Count;
}

bool HasHandler(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

// The watches of a process share its handlers.
class Handlers {
 public:
  void Enter() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (num_watches_++ > 0) return;
    for (size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction action;
      if (sigaction(kSignals[i], nullptr, &action) != 0 || !HasHandler(action)) continue;
      if (IsOurs(action)) continue;  // of the parent, before a fork
      handlers[i] = action;
      action.sa_flags |= SA_SIGINFO;
      action.sa_sigaction = &Count;
      sigaction(kSignals[i], &action, nullptr);
    }
  }

  void Leave() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--num_watches_ > 0) return;
    for (size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction action;
      if (sigaction(kSignals[i], nullptr, &action) != 0) continue;
      if (IsOurs(action)) sigaction(kSignals[i], &handlers[i], nullptr);  // else somebody's new one
    }
  }

 private:
  std::mutex mutex_;
  int num_watches_ = 0;
};

}  // namespace

InterruptWatch::InterruptWatch() {
  PerProcess<Handlers>::Get().Enter();
  count_at_begin_ = count;
}

InterruptWatch::~InterruptWatch() { PerProcess<Handlers>::Get().Leave(); }

bool InterruptWatch::interrupted() const { return count != count_at_begin_; }

}  // namespace hplacer
