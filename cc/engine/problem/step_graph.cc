#include "engine/problem/step_graph.h"

#include <algorithm>
#include <utility>

#include "engine/problem/problem.h"

namespace hplacer {
namespace {

class Packer {
 public:
  explicit Packer(const Problem& problem) : problem_(problem), n_(problem.num_ops()) {}

  StepGraph Pack() {
    graph_.in_degree = problem_.in_degree();
    PackTensors();
    PackOps();
    PackControls();
    PackConstants();
    for (int32_t op = 0; op < n_; ++op) {
      if (graph_.in_degree[op] == 0) graph_.sources.push_back(op);
    }
    return std::move(graph_);
  }

 private:
  void PackTensors() {
    graph_.tensors.resize(problem_.num_tensors() + 1);
    for (int32_t tensor = 0; tensor < problem_.num_tensors(); ++tensor) {
      const int32_t alias_edge = problem_.alias_edge()[tensor];
      graph_.tensors[tensor] = {problem_.spec().output_bytes[tensor],
                                problem_.consumer_ptr()[tensor],
                                alias_edge < 0 ? alias_edge : problem_.edge_tensor()[alias_edge]};
    }
    graph_.tensors.back().first_consumer = problem_.num_edges();
  }

  void PackOps() {
    const ProblemSpec& spec = problem_.spec();
    graph_.ops.resize(n_ + 1);
    for (int32_t i = 0; i <= n_; ++i) {
      StepGraph::Op& op = graph_.ops[i];
      op.first_tensor = problem_.FirstTensor(i);
      op.first_read = problem_.read_ptr()[i];
      op.first_consumer = graph_.tensors[op.first_tensor].first_consumer;
      if (i == n_) break;
      op.start_bytes = op.temp_bytes = spec.temp_bytes[i];
      for (int32_t tensor = op.first_tensor; tensor < problem_.FirstTensor(i + 1); ++tensor) {
        if (graph_.tensors[tensor].alias == kNoAlias)
          op.start_bytes += graph_.tensors[tensor].bytes;
      }
      if (spec.persistent_bytes[i] > 0) graph_.persistent.emplace_back(i, spec.persistent_bytes[i]);
    }
  }

  // Sorts the ops by their control successors; runs of equals with at least two are barriers.
  void PackControls() {
    std::vector<int32_t> ops;
    for (int32_t op = 0; op < n_; ++op) {
      if (NumControlOut(op) > 0) ops.push_back(op);
    }
    std::stable_sort(ops.begin(), ops.end(),
                     [&](int32_t a, int32_t b) { return CompareControlOut(a, b) < 0; });
    for (size_t begin = 0, end = 0; begin < ops.size(); begin = end) {
      ++end;
      while (end < ops.size() && CompareControlOut(ops[begin], ops[end]) == 0) ++end;
      AddControl(ops, begin, end);
    }
  }

  void AddControl(const std::vector<int32_t>& ops, size_t begin, size_t end) {
    const auto index = static_cast<int32_t>(graph_.controls.size());
    StepGraph::Control control;
    control.begin = problem_.control_out_ptr()[ops[begin]];
    control.end = problem_.control_out_ptr()[ops[begin] + 1];
    control.num_sources = static_cast<int32_t>(end - begin);
    control.barrier = kNoBarrier;
    if (control.num_sources > 1) {
      control.barrier = static_cast<int32_t>(graph_.barriers.size());
      graph_.barriers.push_back(index);
    }
    for (size_t i = begin; i < end; ++i) graph_.ops[ops[i]].control = index;
    for (int32_t c = control.begin; c < control.end; ++c) {
      graph_.in_degree[problem_.control_out()[c]] -= control.num_sources - 1;
    }
    graph_.controls.push_back(control);
  }

  void PackConstants() {
    std::vector<int32_t> of_op(n_, kNoClass);
    for (int32_t op = 0; op < n_; ++op) {
      const int32_t first = problem_.spec().same_as[op];
      if (first == kNotSame) continue;
      if (of_op[first] == kNoClass) of_op[first] = graph_.num_classes++;
      of_op[op] = of_op[first];
    }
    if (graph_.num_classes > 0) graph_.constant_class = std::move(of_op);
  }

  int32_t NumControlOut(int32_t op) const {
    return problem_.control_out_ptr()[op + 1] - problem_.control_out_ptr()[op];
  }

  // The sign of the comparison by (number of control successors, these).
  int CompareControlOut(int32_t a, int32_t b) const {
    const int32_t count = NumControlOut(a);
    if (count != NumControlOut(b)) return count < NumControlOut(b) ? -1 : 1;
    const auto first = problem_.control_out().begin() + problem_.control_out_ptr()[a];
    const auto second = problem_.control_out().begin() + problem_.control_out_ptr()[b];
    const auto [x, y] = std::mismatch(first, first + count, second);
    return x == first + count ? 0 : *x < *y ? -1 : 1;
  }

  const Problem& problem_;
  const int32_t n_;
  StepGraph graph_;
};

}  // namespace

StepGraph PackStepGraph(const Problem& problem) { return Packer(problem).Pack(); }

}  // namespace hplacer
