#include "engine/search/search_clock.h"

#include <algorithm>

namespace hplacer {

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
  is_over_ = ended_by_time_ || left <= 0;
  if (is_over_) return 0;
  const auto taken = static_cast<int32_t>(std::min<int64_t>(wanted, left));
  evaluations_ += taken;
  return taken;
}

void SearchClock::Report(const Score& best) {
  if (!limits_.on_progress || reported_ == evaluations_) return;
  reported_ = evaluations_;
  if (!limits_.on_progress({evaluations_, best})) ended_by_time_ = true;
}

}  // namespace hplacer
