#include "engine/schedulers/list_scheduler.h"

#include "engine/problem/step_outlook.h"

namespace hplacer {

ListScheduler::ListScheduler(const Problem& problem, DeviceTimeline::Policy policy)
    : problem_(problem),
      state_(problem, policy),
      pending_(problem.in_degree()),
      is_on_demand_(OnDemandOps(problem)) {
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    if (IsOnDemand(op)) ForEachConsumer(op, [&](int32_t dst) { --pending_[dst]; });
  }
}

std::vector<int32_t> ListScheduler::Finish() {
  for (int32_t op = 0; op < problem_.num_ops(); ++op) {
    if (!state_.IsScheduled(op)) CommitWithInputs(op, state_.Best(op).device);
  }
  return state_.placement();
}

void ListScheduler::CommitWithInputs(int32_t op, int32_t device) {
  ForEachInput(op, [&](int32_t src) {
    if (!state_.IsScheduled(src)) CommitWithInputs(src, DeviceOnDemand(src, device));
  });
  // An op of the same unit may have been pulled in, and have fixed the device.
  if (!state_.IsCandidate(op, device)) device = state_.Best(op).device;
  state_.Commit(op, device);
}

int32_t ListScheduler::DeviceOnDemand(int32_t op, int32_t consumer_device) {
  if (state_.IsCandidate(op, consumer_device)) {
    const auto estimate = state_.EstimateOn(op, consumer_device);
    if (estimate.missing_bytes == 0 && estimate.missing_links == 0) return consumer_device;
  }
  return state_.Best(op).device;
}

}  // namespace hplacer
