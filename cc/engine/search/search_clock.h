// Which limits a search has met: of time, of evaluations, of evaluations that brought nothing.
//
// The caller takes evaluations before it makes them, so that a search that is ended by their number
// is repeated exactly.

#ifndef HPLACER_ENGINE_SEARCH_SEARCH_CLOCK_H_
#define HPLACER_ENGINE_SEARCH_SEARCH_CLOCK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>

#include "engine/simulator/placement_scorer.h"

namespace hplacer {

struct SearchProgress {
  int64_t evaluations;
  const Score& best;
};

struct SearchLimits {
  double seconds = std::numeric_limits<double>::infinity();
  int64_t max_evaluations = std::numeric_limits<int64_t>::max();
  // Ends after so many evaluations without a better placement.
  int64_t patience = std::numeric_limits<int64_t>::max();
  // Ends when little is gained any more: the step became shorter by less than 0.1% in half as many
  // evaluations as before, and 4,000.
  bool until_stalled = false;
  // Called now and then; returns whether to go on.
  std::function<bool(const SearchProgress&)> on_progress;
};

class SearchClock {
 public:
  // Keeps a reference.
  explicit SearchClock(const SearchLimits& limits);

  int64_t evaluations() const { return evaluations_; }
  bool IsOver() const { return is_over_; }
  bool WasEndedByTime() const { return ended_by_time_; }
  bool WasStalled() const { return was_stalled_; }

  // The evaluations that may be made now, at most `wanted`.
  int32_t Take(int32_t wanted, const Score& best);

  // Tells how far the search has come, unless it was told already.
  void Report(const Score& best);

  void OnImproved() { improved_at_ = evaluations_; }

 private:
  bool IsStalled(const Score& best);

  static constexpr double kProgressInterval = 0.02;  // seconds

  const SearchLimits& limits_;
  const std::chrono::steady_clock::time_point begin_;
  int64_t evaluations_ = 0, improved_at_ = 0, reported_ = -1;
  int64_t gained_at_ = 0;
  Score gained_;
  double reported_at_ = -kProgressInterval, taken_at_ = 0;
  bool ended_by_time_ = false, was_stalled_ = false, is_over_ = false;
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_SEARCH_CLOCK_H_
