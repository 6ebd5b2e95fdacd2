#include "engine/search/search_clock.h"

#include <algorithm>

namespace hplacer {
namespace {

constexpr double kGain = 0.001;  // of the step, at least, that counts
constexpr double kWaitedShare = 0.5;
constexpr int64_t kWaited = 4000;

}  // namespace

SearchClock::SearchClock(const SearchLimits& limits)
    : limits_(limits), begin_(std::chrono::steady_clock::now()) {}

int32_t SearchClock::Take(int32_t wanted, const Score& best) {
  if (is_over_) return 0;
  const std::chrono::duration<double> now = std::chrono::steady_clock::now() - begin_;
  if (now.count() >= reported_at_ + kProgressInterval) {
    reported_at_ = now.count();
    Report(best);
  }
  // What comes next may last as long as what came last.
  if (2 * now.count() - taken_at_ >= limits_.seconds) ended_by_time_ = true;
  taken_at_ = now.count();
  const int64_t left = std::min(limits_.max_evaluations - evaluations_,
                                limits_.patience - (evaluations_ - improved_at_));
  was_stalled_ = limits_.until_stalled && left > 0 && IsStalled(best);
  is_over_ = ended_by_time_ || was_stalled_ || left <= 0;
  if (is_over_) return 0;
  const auto taken = static_cast<int32_t>(std::min<int64_t>(wanted, left));
  evaluations_ += taken;
  return taken;
}

// Whatever helps counts as long as nothing fits.
bool SearchClock::IsStalled(const Score& best) {
  const bool is_gain = gained_.feasible()
                           ? static_cast<double>(best.makespan_ns) <
                                 (1 - kGain) * static_cast<double>(gained_.makespan_ns)
                           : best < gained_;
  if (is_gain) {
    gained_ = best;
    gained_at_ = evaluations_;
  }
  const double waits = kWaitedShare * static_cast<double>(gained_at_);
  return best.feasible() && evaluations_ >= gained_at_ + kWaited + static_cast<int64_t>(waits);
}

void SearchClock::Report(const Score& best) {
  if (!limits_.on_progress || reported_ == evaluations_) return;
  reported_ = evaluations_;
  if (!limits_.on_progress({evaluations_, best})) ended_by_time_ = true;
}

}  // namespace hplacer
