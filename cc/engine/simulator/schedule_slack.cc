#include "engine/simulator/schedule_slack.h"

#include <algorithm>

namespace hplacer {
namespace {

constexpr int64_t kUnknownSuccessor = -1;

}  // namespace

void ScheduleSlack::Compute(const Problem& problem, const int32_t* placement,
                            const Schedule& schedule) {
  late_start_ns_.clear();
  if (schedule.start_ns.empty()) return;
  end_ns_ = *std::max_element(schedule.finish_ns.begin(), schedule.finish_ns.end());
  first_transfer_ = FirstTransfers(schedule.transfers, problem.num_ops());
  ListPools(problem, placement, schedule);
  late_start_ns_.assign(problem.num_ops(), end_ns_);
  late_finish_ns_.assign(problem.num_ops(), end_ns_);
  pool_next_ns_.assign(problem.num_pools(), end_ns_);
  channel_next_ns_.assign(problem.num_channels(), end_ns_);
  successor_ns_.assign(problem.step_graph().controls.size() * problem.num_devices(),
                       kUnknownSuccessor);
  // From the end: what follows an op or a transfer has started after it.
  for (auto event = schedule.order.rbegin(); event != schedule.order.rend(); ++event) {
    if (*event < 0) {
      VisitTransfer(problem, placement, schedule.transfers[~*event]);
    } else {
      VisitOp(problem, placement, *event, schedule.finish_ns[*event] - schedule.start_ns[*event]);
    }
  }
}

void ScheduleSlack::ListPools(const Problem& problem, const int32_t* placement,
                              const Schedule& schedule) {
  pool_ptr_.assign(problem.num_pools() + 1, 0);
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    ++pool_ptr_[problem.device_pool()[placement[op]] + 1];
  }
  for (int32_t pool = 0; pool < problem.num_pools(); ++pool) pool_ptr_[pool + 1] += pool_ptr_[pool];
  std::vector<int32_t> next(pool_ptr_.begin(), pool_ptr_.end() - 1);
  pool_ops_.resize(problem.num_ops());
  for (const int32_t event : schedule.order) {
    if (event >= 0) pool_ops_[next[problem.device_pool()[placement[event]]]++] = event;
  }
}

void ScheduleSlack::VisitTransfer(const Problem& problem, const int32_t* placement,
                                  const Transfer& transfer) {
  const int32_t op = transfer.src_op, device = transfer.dst_device;
  int64_t late_ns = channel_next_ns_[transfer.channel] + transfer.finish_ns - transfer.carried_ns;
  if (transfer.output != kSignal) {
    const int32_t tensor = problem.FirstTensor(op) + transfer.output;
    late_ns = std::min(late_ns, EarliestReader(problem, placement, tensor, device));
  }
  late_ns = std::min(late_ns, EarliestSuccessor(problem, placement, op, device));
  late_ns -= transfer.finish_ns - transfer.start_ns;
  channel_next_ns_[transfer.channel] = late_ns;
  late_ns -= transfer.sent_ns - transfer.issue_ns;
  late_finish_ns_[op] = std::min(late_finish_ns_[op], late_ns);
}

void ScheduleSlack::VisitOp(const Problem& problem, const int32_t* placement, int32_t op,
                            int64_t duration_ns) {
  const int32_t device = placement[op], pool = problem.device_pool()[device];
  int64_t late_ns = late_finish_ns_[op];
  late_ns = std::min(late_ns, EarliestSuccessor(problem, placement, op, device));
  for (int32_t t = problem.FirstTensor(op); t < problem.FirstTensor(op + 1); ++t) {
    late_ns = std::min(late_ns, EarliestReader(problem, placement, t, device));
  }
  if (problem.pool_slots()[pool] == 1) late_ns = std::min(late_ns, pool_next_ns_[pool]);
  late_start_ns_[op] = pool_next_ns_[pool] = late_ns - duration_ns;
}

// When the first consumer on a device must start; the end if there is none.
int64_t ScheduleSlack::EarliestReader(const Problem& problem, const int32_t* placement,
                                      int32_t tensor, int32_t device) const {
  int64_t ns = end_ns_;
  for (int32_t e = problem.consumer_ptr()[tensor]; e < problem.consumer_ptr()[tensor + 1]; ++e) {
    const int32_t consumer = problem.consumers()[e];
    if (placement[consumer] == device) ns = std::min(ns, late_start_ns_[consumer]);
  }
  return ns;
}

int64_t ScheduleSlack::EarliestSuccessor(const Problem& problem, const int32_t* placement,
                                         int32_t op, int32_t device) {
  const StepGraph& graph = problem.step_graph();
  if (graph.ops[op].control == kNoControl) return end_ns_;
  const StepGraph::Control& control = graph.controls[graph.ops[op].control];
  int64_t& ns =
      successor_ns_[static_cast<size_t>(graph.ops[op].control) * problem.num_devices() + device];
  if (ns != kUnknownSuccessor) return ns;
  ns = end_ns_;
  for (int32_t c = control.begin; c < control.end; ++c) {
    const int32_t successor = problem.control_out()[c];
    if (placement[successor] == device) ns = std::min(ns, late_start_ns_[successor]);
  }
  return ns;
}

}  // namespace hplacer
