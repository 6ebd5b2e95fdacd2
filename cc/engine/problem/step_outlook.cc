#include "engine/problem/step_outlook.h"

#include <algorithm>

#include "engine/problem/mean_costs.h"
#include "engine/problem/topological_order.h"

namespace hplacer {
namespace {

constexpr int8_t kMaxDemandDepth = 3;

template <typename Visit>
void ForEachSuccessor(const Problem& problem, const MeanCosts& mean, int32_t op, Visit visit) {
  for (int32_t t = problem.FirstTensor(op); t < problem.FirstTensor(op + 1); ++t) {
    for (int32_t e = problem.consumer_ptr()[t]; e < problem.consumer_ptr()[t + 1]; ++e) {
      visit(problem.consumers()[e], mean.tensor_ns[t]);
    }
  }
  for (int32_t c = problem.control_out_ptr()[op]; c < problem.control_out_ptr()[op + 1]; ++c) {
    visit(problem.control_out()[c], mean.signal_ns);
  }
}

}  // namespace

StepOutlook::StepOutlook(const Problem& problem)
    : before_ns(problem.num_ops(), 0), after_ns(problem.num_ops(), 0) {
  const MeanCosts mean(problem);
  op_ns = mean.op_ns;
  const std::vector<int32_t> order = TopologicalOrder(problem);
  const auto way_ns = [&](int32_t src, int32_t dst, int64_t transfer_ns) {
    return problem.units()[src] == problem.units()[dst] ? 0 : transfer_ns;
  };
  for (const int32_t op : order) {
    ForEachSuccessor(problem, mean, op, [&](int32_t dst, int64_t transfer_ns) {
      const int64_t ns = before_ns[op] + mean.op_ns[op] + way_ns(op, dst, transfer_ns);
      before_ns[dst] = std::max(before_ns[dst], ns);
    });
  }
  for (auto op = order.rbegin(); op != order.rend(); ++op) {
    int64_t rest_ns = 0;
    ForEachSuccessor(problem, mean, *op, [&](int32_t dst, int64_t transfer_ns) {
      rest_ns = std::max(rest_ns, way_ns(*op, dst, transfer_ns) + after_ns[dst]);
    });
    after_ns[*op] = mean.op_ns[*op] + rest_ns;
    longest_ns = std::max(longest_ns, before_ns[*op] + after_ns[*op]);
  }
}

std::vector<uint8_t> OnDemandOps(const Problem& problem) {
  std::vector<int8_t> depth(problem.num_ops(), 0);
  for (const int32_t op : TopologicalOrder(problem)) {
    const int32_t unit = problem.units()[op];
    bool is_source = problem.candidate_ptr()[unit + 1] - problem.candidate_ptr()[unit] > 1;
    int8_t deepest = 0;
    const auto visit = [&](int32_t src) {
      is_source = is_source && depth[src] > 0 && problem.units()[src] == unit;
      deepest = std::max(deepest, depth[src]);
    };
    for (int32_t r = problem.read_ptr()[op]; r < problem.read_ptr()[op + 1]; ++r) {
      visit(problem.tensor_op()[problem.edge_tensor()[problem.read_edges()[r]]]);
    }
    for (int32_t c = problem.control_in_ptr()[op]; c < problem.control_in_ptr()[op + 1]; ++c) {
      visit(problem.control_in()[c]);
    }
    if (is_source && deepest < kMaxDemandDepth) depth[op] = static_cast<int8_t>(deepest + 1);
  }
  return {depth.begin(), depth.end()};
}

}  // namespace hplacer
