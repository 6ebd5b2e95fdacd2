// Builds a placement along the step that it makes: item by item, each when its first op can run.
//
// The construction follows the simulator's rules (simulator.h): devices run ready ops in the order
// in which they became ready, channels carry tensors one after the other. When the first op of an
// item has its inputs, a policy scores the item's candidates from the state of the step so far, and
// all units of the item go to the best one. Work of transfers is counted, but interrupts nothing.
//
// A rollout may start from an earlier placement. Then only the units that are `free` are decided
// anew, and where they were is known to the policy.
//
// `RolloutSpace` never changes and is read by all threads; `Rollout` is one object per thread.

#ifndef HPLACER_ENGINE_ROLLOUT_ROLLOUT_H_
#define HPLACER_ENGINE_ROLLOUT_ROLLOUT_H_

#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/problem/step_outlook.h"
#include "engine/rollout/placement_policy.h"
#include "engine/search/search_space.h"

namespace hplacer {

// Units that are decided together.
struct Items {
  std::vector<int32_t> of_unit;  // [U]
  Grouping members;
};

class RolloutSpace {
 public:
  // `scope`: a label from 0 per unit, or empty. Keeps references to the space and its problem.
  RolloutSpace(const SearchSpace& space, const std::vector<int32_t>& scope);

  const Problem& problem() const { return space_.problem(); }
  const SearchSpace& space() const { return space_; }
  const StepOutlook& outlook() const { return outlook_; }
  const std::vector<uint8_t>& on_demand() const { return on_demand_; }  // [n]
  const std::vector<int32_t>& scope() const { return scope_; }          // [U]
  int32_t num_scopes() const { return num_scopes_; }

  double TotalWorkNs() const { return total_work_ns_; }

 private:
  const SearchSpace& space_;
  StepOutlook outlook_;
  std::vector<uint8_t> on_demand_;
  std::vector<int32_t> scope_;
  int32_t num_scopes_ = 0;
  double total_work_ns_ = 0;
};

class Rollout {
 public:
  explicit Rollout(const RolloutSpace& space);

  struct Begin {
    const std::vector<int32_t>* unit_device = nullptr;  // [U] of an earlier placement, or none
    const std::vector<uint8_t>* is_free = nullptr;      // [U] needs the former; none: all are
    const std::vector<int64_t>* finish_ns = nullptr;    // [n] of that placement's step, or none
    const std::vector<int64_t>* unit_bytes = nullptr;   // [U] what each holds, or no limits
  };

  // Decides all free units. Returns a device per unit.
  const std::vector<int32_t>& Run(const Items& items, const PlacementPolicy& policy,
                                  const Begin& begin);

  // [n] of the last run's step, as far as it was foreseen.
  const std::vector<int64_t>& finish_ns() const { return finish_ns_; }

  // [U * m] of the last run: by how much the score of a candidate exceeds the best one's, per item.
  // 0 for units that were not decided.
  const std::vector<float>& loss() const { return loss_; }

 private:
  using Event = std::pair<int64_t, int32_t>;  // time; an op finishes, or becomes ready (n + op)
  template <typename T>
  using MinQueue = std::priority_queue<T, std::vector<T>, std::greater<T>>;

  static constexpr int32_t kSlices = 64;  // of the step

  void Reset();
  void Slice();
  bool IsPlaced(int32_t op) const { return device_[problem_.units()[op]] >= 0; }
  int32_t DeviceOf(int32_t op) const { return device_[problem_.units()[op]]; }
  int64_t FreeNs(int32_t device) const;
  int64_t Occupy(int32_t device, int64_t from_ns, int64_t duration_ns);
  void Start(int32_t op, int64_t ready_ns);
  void Finish(int32_t op, int64_t now_ns);
  void Release(int32_t op, int64_t now_ns);
  void DecideWaiting(int64_t now_ns);
  void Enqueue(int32_t op, int64_t now_ns);
  void Demand(int32_t unit, int32_t device);
  int64_t SendNs(int32_t tensor, int32_t device);
  void Decide(int32_t op, int64_t now_ns);
  void GatherInputs(int32_t op, const int32_t* candidates, int32_t count, int64_t now_ns);
  void GatherNeighbours(int32_t op, int32_t item, const int32_t* candidates, int32_t count);
  void GatherLoads(int32_t item, const int32_t* candidates, int32_t count);
  void Place(int32_t unit, int32_t device);
  void PlaceUnasked(int32_t unit);
  void AddLoad(int32_t unit, int32_t device, double sign);

  const RolloutSpace& space_;
  const Problem& problem_;
  const int32_t m_;
  bool all_linked_ = true;
  const Items* items_ = nullptr;
  const PlacementPolicy* policy_ = nullptr;
  Begin begin_;

  std::vector<int32_t> device_;           // [U] or -1
  std::vector<int32_t> pending_;          // [n] inputs to come
  std::vector<int32_t> barrier_pending_;  // [controls] sources to come
  std::vector<int32_t> initial_pending_, initial_barrier_pending_;
  std::vector<int64_t> finish_ns_;        // [n] or -1
  std::vector<int64_t> sent_ns_;          // [T * m] arrival, or -1
  std::vector<int64_t> channel_free_ns_;  // [channels]
  std::vector<int64_t> slot_free_ns_;     // by pool
  std::vector<int32_t> first_slot_;       // [pools + 1]
  std::vector<int64_t> backlog_ns_;       // [pools] of ops that will start
  std::vector<double> load_ns_;           // [m] of placed units, and of those of the last pass
  std::vector<double> slice_load_ns_;     // [m * kSlices]
  // [n] the parts of the step in which each op runs: from the first to the last of them.
  std::vector<std::pair<int32_t, int32_t>> slices_;
  double slice_ns_ = 1;
  std::vector<double> scope_load_ns_;  // [scopes * m]
  std::vector<double> used_bytes_;     // [m]
  std::vector<float> loss_;            // [U * m]
  MinQueue<Event> events_;
  std::priority_queue<std::pair<int64_t, int32_t>> waiting_;  // (way to go, -op) of a lazy policy

  // Of the item being decided.
  std::vector<RolloutFeatures> feature_;  // [m]
  std::vector<double> score_;             // [m]
  std::vector<double> here_ns_;       // [2 m] of neighbours there, and of those of the last pass
  std::vector<int64_t> unreachable_;  // [m]
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_ROLLOUT_ROLLOUT_H_
