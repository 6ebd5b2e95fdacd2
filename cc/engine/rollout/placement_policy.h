// The score of a pair (item, device), by which a rollout chooses: a sum of weighted times.
//
//   score = sum over features f of  weight[f] * exp(sum over contexts c of gain[f][c] * context[c])
//                                   * feature[f]
//
// All features are nanoseconds, so that a score means the same on every graph and machine; nothing
// is indexed by an op or a device. What is decided, and where in the step, is the context: it says
// how much each feature counts there. The lowest score wins. Earliest finish time, as of HEFT, is
// {kWait: 1, kLate: 1, kWork: 1} without gains.

#ifndef HPLACER_ENGINE_ROLLOUT_PLACEMENT_POLICY_H_
#define HPLACER_ENGINE_ROLLOUT_PLACEMENT_POLICY_H_

#include <algorithm>
#include <array>
#include <cmath>
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

// All between -1 and 1.
enum RolloutContext : int32_t {
  kWidth,        // of the step: work over the longest way, beside the number of devices
  kTraffic,      // of the step: what its tensors take on a link, beside its work
  kMachineSize,  // how many there are
  kTight,        // how much of all memories the step needs; 0 if each device could hold it all
  kSize,         // of the item: its work beside that of a mean item
  kCritical,     // how close its first op is to the longest way through the step
  kProgress,     // how much of the step is over
  kAgain,        // 1: an earlier placement is known
  kNumRolloutContexts,
};

inline constexpr const char* kRolloutContextNames[kNumRolloutContexts] = {
    "width", "traffic", "devices", "tight", "size", "critical", "progress", "again"};

using RolloutFeatures = std::array<double, kNumRolloutFeatures>;
using RolloutContexts = std::array<double, kNumRolloutContexts>;

struct PlacementPolicy {
  RolloutFeatures weight{};
  std::array<RolloutContexts, kNumRolloutFeatures> gain{};
  // Items wait for an idle device, and the one with the longest way to go is decided first;
  // otherwise each is decided as soon as its first op has its inputs.
  bool is_lazy = false;

  bool HasGains() const {
    return std::any_of(gain.begin(), gain.end(), [](const RolloutContexts& of_feature) {
      return std::any_of(of_feature.begin(), of_feature.end(), [](double g) { return g != 0; });
    });
  }

  RolloutFeatures WeightIn(const RolloutContexts& context) const {
    RolloutFeatures result = weight;
    for (int32_t f = 0; f < kNumRolloutFeatures; ++f) {
      double exponent = 0;
      for (int32_t c = 0; c < kNumRolloutContexts; ++c) exponent += gain[f][c] * context[c];
      if (exponent != 0) result[f] *= std::exp(exponent);
    }
    return result;
  }
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_ROLLOUT_PLACEMENT_POLICY_H_
