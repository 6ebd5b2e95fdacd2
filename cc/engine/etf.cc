#include "engine/etf.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>

#include "engine/schedule_state.h"

namespace hplacer {
namespace {

constexpr int8_t kMaxRefreshes = 4;
constexpr int8_t kMaxDemandDepth = 3;

template <typename T>
using MinQueue = std::priority_queue<T, std::vector<T>, std::greater<T>>;

class EtfScheduler {
 public:
  explicit EtfScheduler(const Problem& problem)
      : problem_(problem),
        state_(problem),
        pending_(problem.in_degree()),
        demand_depth_(problem.num_ops(), 0),
        refreshes_(problem.num_ops(), 0),
        startable_(problem.num_devices()),
        waiting_(problem.num_devices()) {}

  std::vector<int32_t> Run() {
    FindOnDemandOps();
    for (int32_t op = 0; op < problem_.num_ops(); ++op) {
      if (pending_[op] == 0 && !IsOnDemand(op)) Enqueue(op, state_.Best(op));
    }
    while (const std::optional<Head> head = PopEarliest()) {
      const ScheduleState::Estimate best = state_.Best(head->op);
      if (best.start_ns > head->start_ns && refreshes_[head->op] < kMaxRefreshes) {
        ++refreshes_[head->op];
        Enqueue(head->op, best);
      } else {
        Schedule(head->op, best.device);
      }
    }
    for (int32_t op = 0; op < problem_.num_ops(); ++op) {
      if (!state_.IsScheduled(op)) Schedule(op, state_.Best(op).device);
    }
    return state_.placement();
  }

 private:
  struct Head {
    int64_t start_ns;
    int32_t op, device;
    bool operator<(const Head& other) const {
      return std::tie(start_ns, op, device) < std::tie(other.start_ns, other.op, other.device);
    }
  };

  bool IsOnDemand(int32_t op) const { return demand_depth_[op] > 0; }

  template <typename Visit>
  void ForEachInput(int32_t op, Visit visit) const {
    for (int32_t r = problem_.read_ptr()[op]; r < problem_.read_ptr()[op + 1]; ++r) {
      visit(problem_.tensor_op()[problem_.edge_tensor()[problem_.read_edges()[r]]]);
    }
    for (int32_t c = problem_.control_in_ptr()[op]; c < problem_.control_in_ptr()[op + 1]; ++c) {
      visit(problem_.control_in()[c]);
    }
  }

  template <typename Visit>
  void ForEachConsumer(int32_t op, Visit visit) const {
    const int32_t end = problem_.consumer_ptr()[problem_.FirstTensor(op + 1)];
    for (int32_t e = problem_.consumer_ptr()[problem_.FirstTensor(op)]; e < end; ++e) {
      visit(problem_.consumers()[e]);
    }
    for (int32_t c = problem_.control_out_ptr()[op]; c < problem_.control_out_ptr()[op + 1]; ++c) {
      visit(problem_.control_out()[c]);
    }
  }

  // An op is on demand if it has a choice of devices and all its inputs are on-demand ops of its
  // own unit, at most kMaxDemandDepth deep. Its consumers do not wait for it.
  void FindOnDemandOps() {
    std::vector<int32_t> sources;
    for (int32_t op = 0; op < problem_.num_ops(); ++op) {
      if (pending_[op] == 0) sources.push_back(op);
    }
    for (size_t next = 0; next < sources.size(); ++next) {
      const int32_t op = sources[next], unit = problem_.units()[op];
      int8_t depth = 1;
      bool own_unit = problem_.candidate_ptr()[unit + 1] - problem_.candidate_ptr()[unit] > 1;
      ForEachInput(op, [&](int32_t src) {
        depth = std::max<int8_t>(depth, demand_depth_[src] + 1);
        own_unit = own_unit && problem_.units()[src] == unit;
      });
      if (!own_unit || depth > kMaxDemandDepth) continue;
      demand_depth_[op] = depth;
      ForEachConsumer(op, [&](int32_t dst) {
        if (--pending_[dst] == 0) sources.push_back(dst);
      });
    }
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
        startable_[device].push(waiting.top().second);
      }
      std::optional<Head> head;
      if (!startable_[device].empty()) {
        head = {free_ns, startable_[device].top(), device};
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

  // Schedules `op`, and before it the on-demand ops that it needs.
  void Schedule(int32_t op, int32_t device) {
    ForEachInput(op, [&](int32_t src) {
      if (!state_.IsScheduled(src)) Schedule(src, DeviceOnDemand(src, device));
    });
    // An op of the same unit may have been pulled in, and have fixed the device.
    if (!state_.IsCandidate(op, device)) device = state_.Best(op).device;
    state_.Commit(op, device);
    if (IsOnDemand(op)) return;
    ForEachConsumer(op, [&](int32_t dst) {
      if (--pending_[dst] == 0 && !IsOnDemand(dst)) Enqueue(dst, state_.Best(dst));
    });
  }

  int32_t DeviceOnDemand(int32_t op, int32_t consumer_device) {
    if (state_.IsCandidate(op, consumer_device)) {
      const auto estimate = state_.EstimateOn(op, consumer_device);
      if (estimate.missing_bytes == 0 && estimate.missing_links == 0) return consumer_device;
    }
    return state_.Best(op).device;
  }

  const Problem& problem_;
  ScheduleState state_;
  std::vector<int32_t> pending_;              // [n] inputs to schedule, on-demand ones aside
  std::vector<int8_t> demand_depth_;          // [n] 0: not on demand
  std::vector<int8_t> refreshes_;             // [n]
  std::vector<MinQueue<int32_t>> startable_;  // [m] ops that wait for a slot only
  std::vector<MinQueue<std::pair<int64_t, int32_t>>> waiting_;  // [m] (arrival, op)
};

}  // namespace

void CheckCandidates(const Problem& problem) {
  const ProblemSpec& spec = problem.spec();
  for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
    if (problem.candidate_ptr()[unit] < problem.candidate_ptr()[unit + 1]) continue;
    const int32_t first = problem.unit_op_ptr()[unit], end = problem.unit_op_ptr()[unit + 1];
    const int32_t op = problem.unit_ops()[first];
    std::string message = "op '" + spec.op_names[op] + "'";
    if (end - first > 1) {
      message += " and the " + std::to_string(end - first - 1) + " others of colocation group '" +
                 spec.colocation_group_names[spec.colocation_group[op]] + "'";
    }
    message += " can run on none of the devices";
    for (const std::string& name : spec.device_names) message += " '" + name + "'";
    throw InfeasibleError(message + ": allow a device that has a kernel for every one of them");
  }
}

std::vector<int32_t> PlaceEtf(const Problem& problem) {
  CheckCandidates(problem);
  return EtfScheduler(problem).Run();
}

}  // namespace hplacer
