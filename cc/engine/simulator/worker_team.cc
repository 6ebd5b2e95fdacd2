#include "engine/simulator/worker_team.h"

#include <algorithm>
#include <utility>

namespace hplacer {

WorkerTeam::WorkerTeam(int num_workers) {
  helpers_.reserve(std::max(0, num_workers - 1));
  try {
    for (int i = 1; i < num_workers; ++i) helpers_.emplace_back([this, i] { Help(i); });
  } catch (const std::exception&) {
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
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
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
  try {
    for (int32_t item = next_++; item < count_; item = next_++) (*run_)(worker, item);
  } catch (...) {
    next_ = count_;  // the other workers finish what they are at
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_ == nullptr) error_ = std::current_exception();
  }
}

}  // namespace hplacer
