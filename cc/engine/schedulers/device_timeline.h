// When the slots of one device, or of one pool of devices, are busy, in a schedule under
// construction.
//
// Under kAppend an op starts when a slot has finished all that it was given. Under kInsert it may
// also fill a gap between two ops, the one that ends first among those long enough: the insertion
// policy of Topcuoglu et al., see heft.h. Times are nanoseconds.

#ifndef HPLACER_ENGINE_SCHEDULERS_DEVICE_TIMELINE_H_
#define HPLACER_ENGINE_SCHEDULERS_DEVICE_TIMELINE_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <set>
#include <utility>
#include <vector>

namespace hplacer {

class DeviceTimeline {
 public:
  enum class Policy { kAppend, kInsert };

  // `slots` >= 1.
  DeviceTimeline(int32_t slots, Policy policy) : slots_(slots), policy_(policy) {}

  // When a slot has nothing more to do.
  int64_t FreeNs() const;

  // When an op that cannot start before `arrival_ns` would start.
  int64_t StartNs(int64_t arrival_ns, int64_t duration_ns) const;

  // Runs that op, at the time that StartNs tells.
  void Run(int64_t arrival_ns, int64_t duration_ns);

 private:
  using Gaps = std::set<std::pair<int64_t, int64_t>>;  // (end, start)

  Gaps::const_iterator FindGap(int64_t arrival_ns, int64_t duration_ns) const;

  size_t slots_;
  Policy policy_;
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<int64_t>> busy_until_ns_;
  Gaps gaps_;
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SCHEDULERS_DEVICE_TIMELINE_H_
