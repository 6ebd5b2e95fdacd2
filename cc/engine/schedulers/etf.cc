#include "engine/schedulers/etf.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "engine/problem/candidates.h"
#include "engine/problem/mean_costs.h"
#include "engine/schedulers/list_scheduler.h"

namespace hplacer {
namespace {

constexpr int8_t kMaxRefreshes = 4;

template <typename T>
using MinQueue = std::priority_queue<T, std::vector<T>, std::greater<T>>;

class EtfScheduler {
 public:
  EtfScheduler(const Problem& problem, std::vector<int32_t> favourite_child)
      : problem_(problem),
        scheduler_(problem, DeviceTimeline::Policy::kAppend),
        state_(scheduler_.state()),
        mean_(problem),
        favourite_child_(std::move(favourite_child)),
        favourite_parent_(problem.num_ops(), kNoFavourite),
        reservations_(problem.num_devices()),
        refreshes_(problem.num_ops(), 0),
        startable_(problem.num_devices()),
        waiting_(problem.num_devices()) {
    for (int32_t op = 0; op < problem.num_ops(); ++op) {
      if (favourite_child_[op] != kNoFavourite) favourite_parent_[favourite_child_[op]] = op;
    }
  }

  std::vector<int32_t> Run() {
    scheduler_.ForEachReady([&](int32_t op) { Enqueue(op, Choose(op)); });
    while (const std::optional<Head> head = PopEarliest()) {
      const ScheduleState::Estimate best = Choose(head->op);
      if (best.start_ns > head->start_ns && refreshes_[head->op] < kMaxRefreshes) {
        ++refreshes_[head->op];
        Enqueue(head->op, best);
        continue;
      }
      scheduler_.Schedule(head->op, best.device, [&](int32_t dst) { Enqueue(dst, Choose(dst)); });
      Reserve(head->op);
    }
    return scheduler_.Finish();
  }

 private:
  struct Head {
    int64_t start_ns;
    int32_t op, device;
    bool operator<(const Head& other) const {
      return std::tie(start_ns, op, device) < std::tie(other.start_ns, other.op, other.device);
    }
  };

  // A device is kept for a favourite child until a time.
  struct Reservation {
    int32_t child = kNoFavourite;
    int64_t until_ns = 0;
  };

  ScheduleState::Estimate Choose(int32_t op) {
    const int32_t unit = problem_.units()[op];
    std::optional<ScheduleState::Estimate> best;
    for (int32_t i = problem_.candidate_ptr()[unit]; i < problem_.candidate_ptr()[unit + 1]; ++i) {
      const int32_t device = problem_.candidates()[i];
      if (!state_.IsCandidate(op, device)) continue;
      ScheduleState::Estimate estimate = state_.EstimateOn(op, device);
      const Reservation& kept = reservations_[device];
      if (kept.child != op && kept.until_ns > estimate.start_ns) {
        estimate.unit_finish_ns += kept.until_ns - estimate.start_ns;
        estimate.start_ns = kept.until_ns;
      }
      if (!best || estimate < *best) best = estimate;
    }
    const int32_t favourite = FavouriteDevice(op);
    if (favourite < 0 || favourite == best->device || !state_.IsCandidate(op, favourite)) {
      return *best;
    }
    const ScheduleState::Estimate estimate = state_.EstimateOn(op, favourite);
    const bool as_good = estimate.missing_links <= best->missing_links &&
                         estimate.missing_bytes <= best->missing_bytes &&
                         estimate.unit_finish_ns <= best->unit_finish_ns;
    return as_good ? estimate : *best;
  }

  // Where the op's favourite parent is, or -1.
  int32_t FavouriteDevice(int32_t op) const {
    const int32_t parent = favourite_parent_[op];
    return parent == kNoFavourite ? -1 : state_.placement()[parent];
  }

  // Keeps the op's device for its favourite child until just after a transfer could have reached
  // another one, so that whatever could start there by then does.
  void Reserve(int32_t op) {
    const int32_t child = favourite_child_[op], device = state_.placement()[op];
    if (reservations_[device].child == op) reservations_[device] = {};
    if (child == kNoFavourite || state_.IsScheduled(child)) return;
    int64_t transfer_ns = mean_.signal_ns;
    for (int32_t t = problem_.FirstTensor(op); t < problem_.FirstTensor(op + 1); ++t) {
      transfer_ns = std::max(transfer_ns, mean_.tensor_ns[t]);
    }
    reservations_[device] = {child, state_.FinishNs(op) + transfer_ns + 1};
  }

  void Enqueue(int32_t op, const ScheduleState::Estimate& estimate) {
    waiting_[estimate.device].push({estimate.arrival_ns, op});
  }

  // The first op, by (start, op, device), of all devices' queues.
  std::optional<Head> PopEarliest() {
    std::optional<Head> earliest;
    for (int32_t device = 0; device < problem_.num_devices(); ++device) {
      const int64_t free_ns = state_.FreeNs(device);
      auto& waiting = waiting_[device];
      for (; !waiting.empty() && waiting.top().first <= free_ns; waiting.pop()) {
        const int32_t op = waiting.top().second;
        startable_[device].push({FavouriteDevice(op) != device, op});
      }
      std::optional<Head> head;
      if (!startable_[device].empty()) {
        head = {free_ns, startable_[device].top().second, device};
      } else if (!waiting.empty()) {
        head = {waiting.top().first, waiting.top().second, device};
      }
      if (head && (!earliest || *head < *earliest)) earliest = head;
    }
    if (!earliest) return earliest;
    if (!startable_[earliest->device].empty()) {
      startable_[earliest->device].pop();
    } else {
      waiting_[earliest->device].pop();
    }
    return earliest;
  }

  const Problem& problem_;
  ListScheduler scheduler_;
  ScheduleState& state_;
  MeanCosts mean_;
  std::vector<int32_t> favourite_child_, favourite_parent_;  // [n]
  std::vector<Reservation> reservations_;                    // [m]
  std::vector<int8_t> refreshes_;                            // [n]
  // Ops that wait for a slot only; favourite children of ops on the device first.
  std::vector<MinQueue<std::pair<bool, int32_t>>> startable_;   // [m] (no favourite, op)
  std::vector<MinQueue<std::pair<int64_t, int32_t>>> waiting_;  // [m] (arrival, op)
};

}  // namespace

std::vector<int32_t> PlaceEtf(const Problem& problem) {
  return PlaceSct(problem, std::vector<int32_t>(problem.num_ops(), kNoFavourite));
}

std::vector<int32_t> PlaceSct(const Problem& problem, const std::vector<int32_t>& favourite_child) {
  CheckCandidates(problem);
  return EtfScheduler(problem, favourite_child).Run();
}

}  // namespace hplacer
