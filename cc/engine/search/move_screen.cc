#include "engine/search/move_screen.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace hplacer {
namespace {

constexpr size_t kMostUnits = 64;      // of a move that is estimated
constexpr int32_t kMostControls = 8;   // inputs of an op that are looked at
constexpr int64_t kLeastHopeful = 50;  // a move is given up at this part of the step
constexpr int64_t kMostNs = std::numeric_limits<int64_t>::max() / 4;  // sums of times still fit

}  // namespace

MoveScreen::MoveScreen(const SearchSpace& space, MoveMaker* mover)
    : space_(space),
      problem_(space.problem()),
      mover_(mover),
      mark_(problem_.num_ops(), 0),
      finish_ns_(problem_.num_ops()),
      device_(problem_.num_ops()) {}

void MoveScreen::Make(const SearchState& state, MoveKind kind, RandomStream* random, Move* move) {
  mover_->Make(state, kind, random, move);
  const bool can_tell = !state.slack.empty() && problem_.max_time_ns() <= kMostNs;
  if (!can_tell || !state.score.feasible() || move->size() > kMostUnits) return;
  int64_t least_ns = state.score.makespan_ns / kLeastHopeful;
  if (!move->empty()) least_ns = LatenessNs(state, *move, least_ns);
  for (int32_t i = 1; i < kDraws; ++i) {
    mover_->Make(state, kind, random, &other_);
    if (other_.empty() || other_.size() > kMostUnits) continue;
    const int64_t lateness_ns = LatenessNs(state, other_, least_ns);
    if (lateness_ns == least_ns && !move->empty()) continue;
    least_ns = lateness_ns;
    std::swap(*move, other_);
  }
}

int64_t MoveScreen::LatenessNs(const SearchState& state, const Move& move, int64_t limit_ns) {
  const Schedule& schedule = state.schedule;
  const std::vector<int64_t>& late_start_ns = state.slack.late_start_ns();
  const std::vector<int32_t>& pool_ops = state.slack.pool_ops();
  ++mark_id_;
  moved_.clear();
  for (const auto& [unit, device] : move) {
    for (int32_t i = problem_.unit_op_ptr()[unit]; i < problem_.unit_op_ptr()[unit + 1]; ++i) {
      const int32_t op = problem_.unit_ops()[i];
      moved_.emplace_back(schedule.start_ns[op], op);
      mark_[op] = mark_id_;
      finish_ns_[op] = schedule.finish_ns[op];
      device_[op] = device;
    }
  }
  std::sort(moved_.begin(), moved_.end());
  int64_t lateness_ns = std::numeric_limits<int64_t>::min();
  for (const auto& [start_ns, op] : moved_) {
    const int32_t device = device_[op], pool = problem_.device_pool()[device];
    int64_t begin_ns = ReadyNs(state, op);
    int32_t next = -1;
    if (problem_.pool_slots()[pool] == 1) {
      const auto begin = pool_ops.begin() + state.slack.pool_ptr()[pool];
      const auto end = pool_ops.begin() + state.slack.pool_ptr()[pool + 1];
      auto later = std::upper_bound(begin, end, begin_ns, [&](int64_t ns, int32_t other) {
        return ns < schedule.start_ns[other];
      });
      if (later != begin && !IsMoved(later[-1])) {
        begin_ns = std::max(begin_ns, schedule.finish_ns[later[-1]]);
      }
      while (later != end && IsMoved(*later)) ++later;
      if (later != end) next = *later;
    }
    finish_ns_[op] = begin_ns + problem_.CostNs(op, device);
    lateness_ns = std::max(lateness_ns, finish_ns_[op] - state.score.makespan_ns);
    if (next >= 0) lateness_ns = std::max(lateness_ns, finish_ns_[op] - late_start_ns[next]);
    lateness_ns = std::max(lateness_ns, ReadersLatenessNs(state, op));
    if (lateness_ns >= limit_ns) return limit_ns;
  }
  return lateness_ns;
}

// When the op's inputs are on its new device.
int64_t MoveScreen::ReadyNs(const SearchState& state, int32_t op) const {
  const int32_t device = device_[op];
  int64_t ready_ns = problem_.spec().device_start_ns[device];
  for (int32_t r = problem_.read_ptr()[op]; r < problem_.read_ptr()[op + 1]; ++r) {
    const int32_t tensor = problem_.edge_tensor()[problem_.read_edges()[r]];
    const int32_t src = problem_.tensor_op()[tensor];
    ready_ns = std::max(ready_ns, ArrivalNs(state, src, tensor, device));
  }
  const int32_t begin = problem_.control_in_ptr()[op];
  const int32_t end = std::min(problem_.control_in_ptr()[op + 1], begin + kMostControls);
  for (int32_t c = begin; c < end; ++c) {
    ready_ns = std::max(ready_ns, ArrivalNs(state, problem_.control_in()[c], kSignal, device));
  }
  return ready_ns;
}

// Of a tensor, or kSignal, of `src`.
int64_t MoveScreen::ArrivalNs(const SearchState& state, int32_t src, int32_t tensor,
                              int32_t device) const {
  if (IsMoved(src)) return finish_ns_[src] + TransferNs(tensor, device_[src], device);
  const Schedule& schedule = state.schedule;
  if (state.placement[src] == device) return schedule.finish_ns[src];
  const int32_t output = tensor == kSignal ? kSignal : tensor - problem_.FirstTensor(src);
  const std::vector<int32_t>& first = state.slack.first_transfer();
  for (int32_t i = first[src]; i < first[src + 1]; ++i) {
    const Transfer& transfer = schedule.transfers[i];
    if (transfer.dst_device == device && transfer.output == output) return transfer.finish_ns;
  }
  return schedule.finish_ns[src] + TransferNs(tensor, state.placement[src], device);
}

// By how much readers that stay get their tensors later than they must.
int64_t MoveScreen::ReadersLatenessNs(const SearchState& state, int32_t op) const {
  int64_t lateness_ns = std::numeric_limits<int64_t>::min();
  for (int32_t t = problem_.FirstTensor(op); t < problem_.FirstTensor(op + 1); ++t) {
    for (int32_t e = problem_.consumer_ptr()[t]; e < problem_.consumer_ptr()[t + 1]; ++e) {
      const int32_t reader = problem_.consumers()[e];
      if (IsMoved(reader)) continue;
      const int64_t arrival_ns =
          finish_ns_[op] + TransferNs(t, device_[op], state.placement[reader]);
      lateness_ns = std::max(lateness_ns, arrival_ns - state.slack.late_start_ns()[reader]);
    }
  }
  return lateness_ns;
}

int64_t MoveScreen::TransferNs(int32_t tensor, int32_t from, int32_t to) const {
  const int32_t link = from == to ? -1 : problem_.Link(from, to);
  if (link < 0) return 0;
  const TailTables& tables = space_.tables();
  const int32_t rate = tables.link_rate[link];
  if (tensor == kSignal) return tables.signal_ns[rate];
  return tables.tensor_ns[static_cast<size_t>(rate) * problem_.num_tensors() + tensor];
}

}  // namespace hplacer
