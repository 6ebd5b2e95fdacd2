// The score of a pair (item, device), by which a rollout chooses: a sum of weighted times.
//
//   score = sum over features f of  weight[f] * feature[f]
//
// All features are nanoseconds, so that a score means the same on every graph and machine; nothing
// is indexed by an op or a device. The lowest score wins. Earliest finish time, as of HEFT, is
// {kWait: 1, kLate: 1, kWork: 1}.

#ifndef HPLACER_ENGINE_ROLLOUT_PLACEMENT_POLICY_H_
#define HPLACER_ENGINE_ROLLOUT_PLACEMENT_POLICY_H_

#include <array>
#include <cstdint>

namespace hplacer {

// An item is a set of units. "Now" is when the first of its ops has all its inputs.
enum RolloutFeature : int32_t {
  kWait,           // until the device has a free slot for that op, beyond now
  kLate,           // until its inputs are there, beyond now and the wait
  kWork,           // what the item's ops take there in all
  kExtraWork,      // beyond what they take where they are fastest
  kTransfer,       // of the inputs of that op, which the channels have to carry first
  kApart,          // of the tensors between it and neighbours that are placed on other devices
  kApartBefore,    // the same of neighbours that the last pass has placed there
  kLoad,           // work of the device beyond the mean of all candidates
  kCrowding,       // work of the device in the same part of the step, times the item's share
  kScopeApart,     // work of the item, times the share of its name scope on other devices
  kMoved,          // work of the item if the last pass had it elsewhere
  kCriticalWait,   // kWait + kLate, times how close the op is to the longest way through the step
  kCriticalApart,  // kApart, times the same
  kFull,           // work of all, times how full the device's memory would be beyond 80%
  kNumRolloutFeatures,
};

inline constexpr const char* kRolloutFeatureNames[kNumRolloutFeatures] = {
    "wait",  "late",          "work",           "extra_work", "transfer",
    "apart", "apart_before",  "load",           "crowding",   "scope_apart",
    "moved", "critical_wait", "critical_apart", "full"};

using RolloutFeatures = std::array<double, kNumRolloutFeatures>;

struct PlacementPolicy {
  RolloutFeatures weight{};
  // Items wait for an idle device, and the one with the longest way to go is decided first;
  // otherwise each is decided as soon as its first op has its inputs.
  bool is_lazy = false;
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_ROLLOUT_PLACEMENT_POLICY_H_
