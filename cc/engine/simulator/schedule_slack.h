// How much later each op of a simulated step could start without making the step longer.
//
// Every op and transfer keeps its place in the order of its device or channel. Devices with several
// slots at once are taken to have one free whenever it is needed. An object is reused, to keep its
// arrays.

#ifndef HPLACER_ENGINE_SIMULATOR_SCHEDULE_SLACK_H_
#define HPLACER_ENGINE_SIMULATOR_SCHEDULE_SLACK_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/simulator/placement_scorer.h"

namespace hplacer {

class ScheduleSlack {
 public:
  // The schedule must be that of the placement. Without one (no ops, or a placement that cannot
  // run) the slack is empty.
  void Compute(const Problem& problem, const int32_t* placement, const Schedule& schedule);

  bool empty() const { return late_start_ns_.empty(); }
  // The latest start with which the step takes no longer: at least the op's own.
  const std::vector<int64_t>& late_start_ns() const { return late_start_ns_; }  // [n]
  // The ops of each pool as they start.
  const std::vector<int32_t>& pool_ptr() const { return pool_ptr_; }  // [pools + 1]
  const std::vector<int32_t>& pool_ops() const { return pool_ops_; }  // [n]
  // The transfers of an op: schedule.transfers[first_transfer[op]..first_transfer[op + 1]).
  const std::vector<int32_t>& first_transfer() const { return first_transfer_; }  // [n + 1]

 private:
  void ListPools(const Problem& problem, const int32_t* placement, const Schedule& schedule);
  void VisitTransfer(const Problem& problem, const int32_t* placement, const Transfer& transfer);
  void VisitOp(const Problem& problem, const int32_t* placement, int32_t op, int64_t duration_ns);
  int64_t EarliestReader(const Problem& problem, const int32_t* placement, int32_t tensor,
                         int32_t device) const;
  int64_t EarliestSuccessor(const Problem& problem, const int32_t* placement, int32_t op,
                            int32_t device);

  int64_t end_ns_ = 0;
  std::vector<int64_t> late_start_ns_;   // [n]
  std::vector<int64_t> late_finish_ns_;  // [n] for the transfers of an op
  std::vector<int32_t> pool_ptr_, pool_ops_, first_transfer_;
  // When what comes next starts at the latest.
  std::vector<int64_t> pool_next_ns_;     // [pools]
  std::vector<int64_t> channel_next_ns_;  // [channels]
  std::vector<int64_t> successor_ns_;     // [controls * m]
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SIMULATOR_SCHEDULE_SLACK_H_
