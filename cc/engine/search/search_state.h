// A placement under search, with the schedule of its step and what moves ask of it.
//
// An object is reused from placement to placement, to keep its arrays.

#ifndef HPLACER_ENGINE_SEARCH_SEARCH_STATE_H_
#define HPLACER_ENGINE_SEARCH_SEARCH_STATE_H_

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/simulator/critical_chain.h"
#include "engine/simulator/placement_scorer.h"
#include "engine/simulator/schedule_slack.h"

namespace hplacer {

using Move = std::vector<std::pair<int32_t, int32_t>>;  // (unit, device), units distinct

struct SearchState {
  std::vector<int32_t> unit_device;  // [U]
  std::vector<int32_t> placement;    // [n]
  std::vector<int64_t> unit_ns;      // [U] when its first op starts
  Score score;
  Schedule schedule;
  CriticalChain chain;
  ScheduleSlack slack;
  // [slices * m] how long each device works in each of kSlices equal parts of the step.
  std::vector<int64_t> busy_ns;

  static constexpr int32_t kSlices = 64;
  int32_t SliceOf(int64_t time_ns) const {
    if (time_ns > std::numeric_limits<int64_t>::max() / kSlices) {
      const auto step_ns = static_cast<unsigned __int128>(score.makespan_ns) + 1;
      return static_cast<int32_t>(static_cast<unsigned __int128>(time_ns) * kSlices / step_ns);
    }
    return static_cast<int32_t>(time_ns * kSlices / (score.makespan_ns + 1));
  }

  // Simulates a placement that has every unit on a candidate.
  void Enter(const Problem& problem, const std::vector<int32_t>& entered, PlacementScorer* scorer);

  // Goes to the placement after a move, whose score and schedule are known; swaps the schedules.
  void Accept(const Problem& problem, const Move& move, const Score& moved,
              Schedule* moved_schedule);

 private:
  void IndexSchedule(const Problem& problem);
};

// Writes the placement after a move to `placement`.
void PlaceMove(const Problem& problem, const Move& move, std::vector<int32_t>* placement);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_SEARCH_STATE_H_
