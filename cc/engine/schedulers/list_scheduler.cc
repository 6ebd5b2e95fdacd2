#include "engine/schedulers/list_scheduler.h"

#include <algorithm>

namespace hplacer {
namespace {

constexpr int8_t kMaxDemandDepth = 3;

}  // namespace

ListScheduler::ListScheduler(const Problem& problem, DeviceTimeline::Policy policy)
    : problem_(problem),
      state_(problem, policy),
      pending_(problem.in_degree()),
      demand_depth_(problem.num_ops(), 0) {
  FindOnDemandOps();
}

std::vector<int32_t> ListScheduler::Finish() {
  for (int32_t op = 0; op < problem_.num_ops(); ++op) {
    if (!state_.IsScheduled(op)) CommitWithInputs(op, state_.Best(op).device);
  }
  return state_.placement();
}

// An op is on demand if it has a choice of devices and all its inputs are on-demand ops of its
// own unit, at most kMaxDemandDepth deep.
void ListScheduler::FindOnDemandOps() {
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
