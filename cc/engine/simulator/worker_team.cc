#include "engine/simulator/worker_team.h"

#include <system_error>

namespace hplacer {

WorkerTeam::WorkerTeam(int num_workers) {
  try {
    for (int i = 1; i < num_workers; ++i) helpers_.emplace_back([this, i] { Help(i); });
  } catch (const std::system_error&) {
    // Those that there are do all the work.
  }
}

WorkerTeam::~WorkerTeam() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    quit_ = true;
  }
  begin_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void WorkerTeam::ForEach(int32_t count, const std::function<void(int, int32_t)>& run) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    count_ = count;
    run_ = &run;
    next_ = 0;
    busy_ = static_cast<int>(helpers_.size());
    ++batch_;
  }
  begin_.notify_all();
  Work(0);
  std::unique_lock<std::mutex> lock(mutex_);
  end_.wait(lock, [this] { return busy_ == 0; });
}

void WorkerTeam::Help(int worker) {
  for (int64_t done = 0;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      begin_.wait(lock, [&] { return quit_ || batch_ > done; });
      if (quit_) return;
      done = batch_;
    }
    Work(worker);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--busy_ == 0) end_.notify_one();
  }
}

void WorkerTeam::Work(int worker) {
  for (int32_t item = next_++; item < count_; item = next_++) (*run_)(worker, item);
}

}  // namespace hplacer
