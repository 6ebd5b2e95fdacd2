#include "engine/schedulers/heft.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "engine/problem/candidates.h"
#include "engine/problem/mean_costs.h"
#include "engine/problem/topological_order.h"
#include "engine/schedulers/list_scheduler.h"

namespace hplacer {
namespace {

std::vector<int64_t> UpwardRanks(const Problem& problem) {
  const MeanCosts mean(problem);
  std::vector<int64_t> rank_ns(problem.num_ops(), 0);
  const std::vector<int32_t> order = TopologicalOrder(problem);
  for (auto op = order.rbegin(); op != order.rend(); ++op) {
    int64_t longest_ns = 0;
    const auto visit = [&](int32_t dst, int64_t transfer_ns) {
      if (problem.units()[dst] == problem.units()[*op]) transfer_ns = 0;
      longest_ns = std::max(longest_ns, transfer_ns + rank_ns[dst]);
    };
    for (int32_t t = problem.FirstTensor(*op); t < problem.FirstTensor(*op + 1); ++t) {
      for (int32_t e = problem.consumer_ptr()[t]; e < problem.consumer_ptr()[t + 1]; ++e) {
        visit(problem.consumers()[e], mean.tensor_ns[t]);
      }
    }
    for (int32_t c = problem.control_out_ptr()[*op]; c < problem.control_out_ptr()[*op + 1]; ++c) {
      visit(problem.control_out()[c], mean.signal_ns);
    }
    rank_ns[*op] = mean.op_ns[*op] + longest_ns;
  }
  return rank_ns;
}

}  // namespace

std::vector<int32_t> PlaceHeft(const Problem& problem) {
  CheckCandidates(problem);
  const std::vector<int64_t> rank_ns = UpwardRanks(problem);
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
