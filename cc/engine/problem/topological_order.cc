#include "engine/problem/topological_order.h"

#include <functional>
#include <queue>

namespace hplacer {

std::vector<int32_t> TopologicalOrder(const Problem& problem) {
  std::vector<int32_t> pending = problem.in_degree(), order;
  order.reserve(problem.num_ops());
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<int32_t>> ready;
  const auto release = [&](int32_t op) {
    if (--pending[op] == 0) ready.push(op);
  };
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    if (pending[op] == 0) ready.push(op);
  }
  while (!ready.empty()) {
    const int32_t op = ready.top();
    ready.pop();
    order.push_back(op);
    const int32_t end = problem.consumer_ptr()[problem.FirstTensor(op + 1)];
    for (int32_t e = problem.consumer_ptr()[problem.FirstTensor(op)]; e < end; ++e) {
      release(problem.consumers()[e]);
    }
    for (int32_t c = problem.control_out_ptr()[op]; c < problem.control_out_ptr()[op + 1]; ++c) {
      release(problem.control_out()[c]);
    }
  }
  return order;
}

}  // namespace hplacer
