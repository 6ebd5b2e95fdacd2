// What the list schedulers share: which ops are ready, and ops on demand.
//
// Consumers do not wait for ops on demand (step_outlook.h), which are scheduled with their first
// consumer, next to it if they may be and fit.
//
// A scheduler starts with the ops that are `ForEachReady`, and calls `Schedule` with an op that is
// ready and its device, until no op is; `Finish` places what is left, on-demand ops without a
// consumer.
//
// Assumes that every unit has a candidate. Deterministic.

#ifndef HPLACER_ENGINE_SCHEDULERS_LIST_SCHEDULER_H_
#define HPLACER_ENGINE_SCHEDULERS_LIST_SCHEDULER_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/schedulers/schedule_state.h"

namespace hplacer {

class ListScheduler {
 public:
  ListScheduler(const Problem& problem, DeviceTimeline::Policy policy);

  ScheduleState& state() { return state_; }

  // Calls visit(op) for the ops that can be scheduled before any other.
  template <typename Visit>
  void ForEachReady(Visit visit) const {
    for (int32_t op = 0; op < problem_.num_ops(); ++op) {
      if (pending_[op] == 0 && !IsOnDemand(op)) visit(op);
    }
  }

  // Schedules `op`, and before it the on-demand ops that it needs; then calls on_ready(dst) for
  // the ops that have become ready. Another device is taken if one of those has fixed the unit's.
  template <typename OnReady>
  void Schedule(int32_t op, int32_t device, OnReady on_ready) {
    CommitWithInputs(op, device);
    ForEachConsumer(op, [&](int32_t dst) {
      if (--pending_[dst] == 0 && !IsOnDemand(dst)) on_ready(dst);
    });
  }

  // Places what is left, and returns a device per op.
  std::vector<int32_t> Finish();

 private:
  bool IsOnDemand(int32_t op) const { return is_on_demand_[op] != 0; }

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

  void CommitWithInputs(int32_t op, int32_t device);
  int32_t DeviceOnDemand(int32_t op, int32_t consumer_device);

  const Problem& problem_;
  ScheduleState state_;
  std::vector<int32_t> pending_;       // [n] inputs to schedule, on-demand ones aside
  std::vector<uint8_t> is_on_demand_;  // [n]
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SCHEDULERS_LIST_SCHEDULER_H_
