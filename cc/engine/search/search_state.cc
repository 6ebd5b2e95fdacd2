#include "engine/search/search_state.h"

#include <algorithm>
#include <limits>

#include "engine/search/search_levels.h"

namespace hplacer {

void SearchState::Enter(const Problem& problem, const std::vector<int32_t>& entered,
                        PlacementScorer* scorer) {
  placement = entered;
  unit_device = UnitDevices(problem, placement);
  schedule = Schedule();
  scorer->Run(placement.data(), Score(), &score, &schedule);
  IndexSchedule(problem);
}

void SearchState::Accept(const Problem& problem, const Move& move, const Score& moved,
                         Schedule* moved_schedule) {
  for (const auto& [unit, device] : move) unit_device[unit] = device;
  PlaceMove(problem, move, &placement);
  score = moved;
  std::swap(schedule, *moved_schedule);
  IndexSchedule(problem);
}

void SearchState::IndexSchedule(const Problem& problem) {
  const std::vector<int64_t>& start_ns = schedule.start_ns;
  busy_ns.assign(static_cast<size_t>(kSlices) * problem.num_devices(), 0);
  chain = FindCriticalChain(problem, placement.data(), schedule);
  slack.Compute(problem, placement.data(), schedule);
  unit_ns.assign(problem.num_units(), start_ns.empty() ? 0 : std::numeric_limits<int64_t>::max());
  for (size_t op = 0; op < start_ns.size(); ++op) {
    const auto id = static_cast<int32_t>(op);
    int64_t& first_ns = unit_ns[problem.units()[op]];
    first_ns = std::min(first_ns, start_ns[op]);
    const size_t row = static_cast<size_t>(SliceOf(start_ns[op])) * problem.num_devices();
    busy_ns[row + placement[op]] += problem.CostNs(id, placement[op]);
  }
}

void PlaceMove(const Problem& problem, const Move& move, std::vector<int32_t>* placement) {
  for (const auto& [unit, device] : move) {
    for (int32_t i = problem.unit_op_ptr()[unit]; i < problem.unit_op_ptr()[unit + 1]; ++i) {
      (*placement)[problem.unit_ops()[i]] = device;
    }
  }
}

}  // namespace hplacer
