#include "engine/schedulers/device_timeline.h"

#include <algorithm>

namespace hplacer {

int64_t DeviceTimeline::FreeNs() const {
  return busy_until_ns_.size() < slots_ ? 0 : busy_until_ns_.top();
}

int64_t DeviceTimeline::StartNs(int64_t arrival_ns, int64_t duration_ns) const {
  const auto gap = FindGap(arrival_ns, duration_ns);
  return std::max(arrival_ns, gap == gaps_.end() ? FreeNs() : gap->second);
}

void DeviceTimeline::Run(int64_t arrival_ns, int64_t duration_ns) {
  const int64_t start_ns = StartNs(arrival_ns, duration_ns);
  const int64_t finish_ns = start_ns + duration_ns;
  int64_t idle_from_ns = FreeNs();
  const auto gap = FindGap(arrival_ns, duration_ns);
  if (gap == gaps_.end()) {
    if (busy_until_ns_.size() == slots_) busy_until_ns_.pop();
    busy_until_ns_.push(finish_ns);
  } else {
    idle_from_ns = gap->second;
    const int64_t idle_until_ns = gap->first;
    gaps_.erase(gap);
    if (finish_ns < idle_until_ns) gaps_.emplace(idle_until_ns, finish_ns);
  }
  if (policy_ == Policy::kInsert && idle_from_ns < start_ns) gaps_.emplace(start_ns, idle_from_ns);
}

DeviceTimeline::Gaps::const_iterator DeviceTimeline::FindGap(int64_t arrival_ns,
                                                             int64_t duration_ns) const {
  auto gap = gaps_.lower_bound({arrival_ns + duration_ns, 0});
  while (gap != gaps_.end() && gap->first - gap->second < duration_ns) ++gap;
  return gap;
}

}  // namespace hplacer
