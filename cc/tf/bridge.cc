#include "tf/bridge.h"

#include <algorithm>
#include <utility>

namespace hplacer {
namespace {

constexpr size_t kMaxReports = 1000;
constexpr std::chrono::milliseconds kBetweenLooks(50);

}  // namespace

void WaitPatiently(std::unique_lock<std::mutex>* lock, std::condition_variable* changed,
                   Clock::time_point deadline, const std::function<bool()>& done,
                   const std::function<bool()>& gives_up) {
  while (!done() && !gives_up() && Clock::now() < deadline) {
    changed->wait_until(*lock, std::min(deadline, Clock::now() + kBetweenLooks));
  }
}

void PlannerRequest::Finish(Reply reply) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (reply_.result != Result::kPending) return;
  reply_ = std::move(reply);
  finished_.notify_all();
}

PlannerRequest::Reply PlannerRequest::Wait(Clock::time_point deadline,
                                           const std::function<bool()>& gives_up) {
  const std::shared_ptr<void> guard = Bridge::Get().EnterWait();
  std::unique_lock<std::mutex> lock(mutex_);
  const auto finished = [this] { return reply_.result != Result::kPending; };
  WaitPatiently(&lock, &finished_, deadline, finished, gives_up);
  abandoned_ = !finished();
  return reply_;
}

bool PlannerRequest::IsAbandoned() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return abandoned_;
}

void Bridge::SetWaitGuard(std::function<std::shared_ptr<void>()> guard) {
  std::lock_guard<std::mutex> lock(mutex_);
  wait_guard_ = std::move(guard);
}

std::shared_ptr<void> Bridge::EnterWait() const {
  std::function<std::shared_ptr<void>()> guard;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    guard = wait_guard_;
  }
  return guard ? guard() : nullptr;  // takes no lock of ours while it runs
}

bool Bridge::Submit(std::shared_ptr<PlannerRequest> request) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!open_) return false;
  queue_.push_back(std::move(request));
  changed_.notify_one();
  return true;
}

std::shared_ptr<PlannerRequest> Bridge::Next(std::optional<std::chrono::milliseconds> timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto has_changed = [this] { return !queue_.empty() || !open_; };
  if (timeout) {
    changed_.wait_for(lock, *timeout, has_changed);
  } else {
    changed_.wait(lock, has_changed);
  }
  if (queue_.empty()) return nullptr;
  std::shared_ptr<PlannerRequest> request = std::move(queue_.front());
  queue_.pop_front();
  return request;
}

void Bridge::Open() {
  std::lock_guard<std::mutex> lock(mutex_);
  open_ = true;
}

void Bridge::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  open_ = false;
  changed_.notify_all();
}

bool Bridge::IsOpen() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return open_;
}

void Bridge::AddReport(PassReport report) {
  auto request = std::make_shared<PlannerRequest>();
  request->stage = PlannerRequest::Stage::kReport;
  request->report = report;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    reports_.push_back(std::move(report));
    if (reports_.size() > kMaxReports) reports_.pop_front();
  }
  Submit(std::move(request));
}

std::vector<PassReport> Bridge::Reports() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {reports_.begin(), reports_.end()};
}

}  // namespace hplacer
