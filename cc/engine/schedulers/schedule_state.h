// The resources of a schedule under construction: slots, channels and memory, op by op.
//
// A list scheduler asks "when could this op start on that device, and does it fit?" (Estimate) and
// then decides (Commit). Transfers occupy their channel one after the other in the order in which
// consumers are committed; the exact times come from the simulator afterwards. An op that is not
// committed but "on demand" (see list_scheduler.h) is assumed to run next to its consumer. Memory
// that is released before the end of a device's timeline counts as free, also for an op that fills
// a gap before that release.
//
// Assumes that every unit has a candidate. Times are nanoseconds, sizes bytes.

#ifndef HPLACER_ENGINE_SCHEDULERS_SCHEDULE_STATE_H_
#define HPLACER_ENGINE_SCHEDULERS_SCHEDULE_STATE_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/schedulers/device_timeline.h"

namespace hplacer {

class ScheduleState {
 public:
  // What it would mean to start an op on a device now.
  struct Estimate {
    int32_t device = -1;
    int64_t arrival_ns = 0;       // all inputs are there
    int64_t start_ns = 0;         // and a slot is free
    int64_t missing_links = 0;    // inputs or neighbours that cannot talk to the device
    int64_t missing_bytes = 0;    // by which the device's memory would overflow
    __int128 unit_finish_ns = 0;  // start plus what the rest of the op's unit takes there

    // The better choice of device comes first.
    bool operator<(const Estimate& other) const { return Key() < other.Key(); }

   private:
    std::tuple<int64_t, int64_t, __int128, int32_t> Key() const {
      return {missing_links, missing_bytes, unit_finish_ns, device};
    }
  };

  ScheduleState(const Problem& problem, DeviceTimeline::Policy policy);

  bool IsScheduled(int32_t op) const { return placement_[op] >= 0; }
  const std::vector<int32_t>& placement() const { return placement_; }

  // When a slot of the device has nothing more to do.
  int64_t FreeNs(int32_t device) const { return TimelineOf(device).FreeNs(); }

  // When a scheduled op ends.
  int64_t FinishNs(int32_t op) const { return finish_ns_[op]; }

  Estimate EstimateOn(int32_t op, int32_t device);

  // The best of the devices that are left to the op's unit.
  Estimate Best(int32_t op);

  // Whether `device` is left to the op's unit.
  bool IsCandidate(int32_t op, int32_t device) const;

  // Runs `op` on `device`. All ops that it reads or waits for must be scheduled.
  void Commit(int32_t op, int32_t device);

 private:
  template <typename T>
  using MinQueue = std::priority_queue<T, std::vector<T>, std::greater<T>>;

  struct Send {
    int32_t output;  // or -1 for a signal
    int32_t device;
    int64_t arrival_ns;
  };
  struct PlannedSend {
    int32_t src_op, channel;
    int64_t channel_free_ns;
    Send send;
  };
  struct Inputs {
    int64_t arrival_ns = 0;
    int64_t missing_links = 0;
    int64_t copy_bytes = 0;
  };

  const DeviceTimeline& TimelineOf(int32_t device) const {
    return timelines_[problem_.device_pool()[device]];
  }
  // Leaves the transfers that would be needed in planned_.
  Inputs GatherInputs(int32_t op, int32_t device);
  int64_t DataArrivalNs(int32_t src, int32_t output, int64_t bytes, int32_t device, Inputs* inputs);
  int64_t SignalArrivalNs(int32_t src, int32_t device, Inputs* inputs);
  int64_t PlanSend(int32_t src, int32_t output, int64_t bytes, int32_t device, Inputs* inputs);
  int32_t AssumedDevice(int32_t op, int32_t device) const;
  int64_t AssumedFinishNs(int32_t op, int32_t device) const;
  int64_t CountUnreachableNeighbours(int32_t unit, int32_t device) const;
  bool CanTalk(int32_t src_op, int32_t src_device, int32_t dst_op, int32_t dst_device) const;

  int64_t BytesToAllocate(int32_t op) const;
  void FixUnit(int32_t unit, int32_t device);
  void Reserve(int32_t device, int64_t bytes);
  void ReserveUntil(int64_t time_ns, int32_t device, int64_t bytes);
  void ReleaseUntil(int64_t time_ns, int32_t device);
  void AllocateOutputs(int32_t op, int64_t finish_ns);
  void EndUse(int32_t tensor, int64_t time_ns);

  const Problem& problem_;
  const ProblemSpec& spec_;
  bool all_linked_;
  std::vector<int32_t> placement_;              // [n] or -1
  std::vector<int64_t> finish_ns_;              // [n]
  std::vector<std::vector<Send>> sends_;        // [n] committed, by source op
  std::vector<int32_t> unit_device_;            // [U] or -1
  std::vector<int64_t> unit_cost_ns_;           // [U * K]
  std::vector<int64_t> unit_persistent_bytes_;  // [U]
  std::vector<int32_t> uses_;                   // [T] consumers and aliases to come
  std::vector<DeviceTimeline> timelines_;       // [pools]
  std::vector<int64_t> channel_free_ns_;        // [channels]
  std::vector<int64_t> used_bytes_;             // [m]
  std::vector<MinQueue<std::pair<int64_t, int64_t>>> releases_;  // [m] (time, bytes)

  // Scratch of one GatherInputs.
  int64_t trial_ = 0;
  std::vector<int64_t> channel_trial_, trial_channel_free_ns_;  // [channels]
  std::vector<int64_t> data_trial_;  // [n] this trial sends data from the op
  std::vector<PlannedSend> planned_;
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SCHEDULERS_SCHEDULE_STATE_H_
