#include "engine/schedulers/heft.h"

#include <queue>
#include <utility>

#include "engine/problem/candidates.h"
#include "engine/problem/step_outlook.h"
#include "engine/schedulers/list_scheduler.h"

namespace hplacer {

std::vector<int32_t> PlaceHeft(const Problem& problem) {
  CheckCandidates(problem);
  // The upward rank of the paper.
  const std::vector<int64_t> rank_ns = StepOutlook(problem).after_ns;
  ListScheduler scheduler(problem, DeviceTimeline::Policy::kInsert);
  // The ready op of the highest rank. Along an edge ranks never rise, so that this is their order.
  std::priority_queue<std::pair<int64_t, int32_t>> ready;  // (rank, -op)
  const auto enqueue = [&](int32_t op) { ready.push({rank_ns[op], -op}); };
  scheduler.ForEachReady(enqueue);
  while (!ready.empty()) {
    const int32_t op = -ready.top().second;
    ready.pop();
    scheduler.Schedule(op, scheduler.state().Best(op).device, enqueue);
  }
  return scheduler.Finish();
}

}  // namespace hplacer
