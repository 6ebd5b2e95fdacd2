#include "engine/simulator/placed_tails.h"

#include <algorithm>
#include <array>
#include <map>

#include "engine/problem/topological_order.h"

namespace hplacer {
namespace {

constexpr int64_t kUnknownControl = -1;

}  // namespace

TailTables::TailTables(const Problem& problem) : order(TopologicalOrder(problem)) {
  const ProblemSpec& spec = problem.spec();
  std::map<Problem::Times, int32_t> rates;
  for (size_t link = 0; link < spec.link_src.size(); ++link) {
    const auto id = static_cast<int32_t>(link);
    const auto [entry, added] = rates.try_emplace(problem.LinkTimes(id), num_rates);
    link_rate.push_back(entry->second);
    if (!added) continue;
    ++num_rates;
    for (int64_t bytes : spec.output_bytes) {
      tensor_ns.push_back(problem.TransferNs(id, bytes));
    }
    signal_ns.push_back(problem.TransferNs(id, 0));
  }
}

bool PlacedTails::Compute(const int32_t* placement) {
  const StepGraph& graph = problem_.step_graph();
  const StepGraph::Op* const ops = graph.ops.data();
  const StepGraph::Tensor* const tensors = graph.tensors.data();
  const int32_t* const consumers = problem_.consumers().data();
  const int32_t* const device_pool = problem_.device_pool().data();
  const int64_t* const device_start_ns = problem_.spec().device_start_ns.data();
  const auto num_tensors = static_cast<size_t>(problem_.num_tensors());
  tail_ns_.resize(problem_.num_ops());
  way_ns_.resize(problem_.num_ops());
  load_ns_.assign(problem_.num_pools(), 0);
  control_ns_.assign(graph.controls.size(), kUnknownControl);
  int64_t* const way_ns = way_ns_.data();
  int64_t path_ns = 0;
  bool linked = true;
  for (auto it = tables_.order.rbegin(); it != tables_.order.rend(); ++it) {
    const int32_t op = *it, device = placement[op];
    int64_t tail_ns = 0;
    for (int32_t t = ops[op].first_tensor; t < ops[op + 1].first_tensor; ++t) {
      const int32_t end = tensors[t + 1].first_consumer;
      for (int32_t e = tensors[t].first_consumer; e < end; ++e) {
        const int32_t consumer = consumers[e], to = placement[consumer];
        int64_t ns = way_ns[consumer];
        if (to != device) {
          const int32_t link = problem_.Link(device, to);
          linked &= link >= 0;
          if (link >= 0) ns += tables_.tensor_ns[tables_.link_rate[link] * num_tensors + t];
        }
        tail_ns = std::max(tail_ns, ns);
      }
    }
    if (ops[op].control != kNoControl) {
      const StepGraph::Control& control = graph.controls[ops[op].control];
      int64_t& longest_ns = control_ns_[ops[op].control];
      if (longest_ns == kUnknownControl) {
        for (int32_t c = control.begin; c < control.end; ++c) {
          longest_ns = std::max(longest_ns, way_ns[problem_.control_out()[c]]);
        }
      }
      tail_ns = std::max(tail_ns, longest_ns);
    }
    const int64_t cost_ns = problem_.CostNs(op, device);
    tail_ns_[op] = tail_ns;
    way_ns[op] = cost_ns + tail_ns;
    load_ns_[device_pool[device]] += cost_ns;
    path_ns = std::max(path_ns, device_start_ns[device] + way_ns[op]);
  }
  path_ns_ = path_ns;
  return linked;
}

int64_t CountMissingLinks(const Problem& problem, const int32_t* placement) {
  int64_t missing = 0;
  const auto check = [&](int32_t src, int32_t dst) {
    missing += src != dst && problem.Link(src, dst) < 0;
  };
  for (int32_t edge = 0; edge < problem.num_edges(); ++edge) {
    check(placement[problem.tensor_op()[problem.edge_tensor()[edge]]],
          placement[problem.consumers()[edge]]);
  }
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    for (int32_t c = problem.control_out_ptr()[op]; c < problem.control_out_ptr()[op + 1]; ++c) {
      check(placement[op], placement[problem.control_out()[c]]);
    }
  }
  return missing;
}

}  // namespace hplacer
