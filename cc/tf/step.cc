#include "tf/step.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hplacer {
namespace {

using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::Node;

// The most sinks whose closures are compared when no target is named.
constexpr size_t kMaxCandidateSinks = 64;

struct OpTraits {
  double weight;
  bool updates;
};

OpTraits TraitsOf(const std::string& op) {
  OpTraits traits{1.0, UpdatesVariable(op)};
  if (absl::StrContains(op, "Conv") || absl::StrContains(op, "MatMul") || op == "Einsum" ||
      absl::StrContains(op, "RNN") || absl::StrContains(op, "LSTM") || op == "LoopCond") {
    traits.weight = 64.0;
  } else if (op == "Const" || op == "VarHandleOp" || op == "Fill" || op == "VariableV2" ||
             absl::StrContains(op, "Random") || absl::StartsWith(op, "Restore")) {
    traits.weight = 0.0;
  }
  return traits;
}

// All op nodes in topological order, or an error that names a node on a cycle.
absl::Status TopologicalOrder(const Graph& graph, std::vector<Node*>* order) {
  std::vector<int32_t> pending(graph.num_node_ids(), 0);
  order->clear();
  order->reserve(graph.num_op_nodes());
  for (Node* node : graph.op_nodes()) {
    int32_t count = 0;
    for (const Edge* edge : node->in_edges()) {
      if (edge->src()->IsOp() && !IsBackEdge(*edge)) ++count;
    }
    pending[node->id()] = count;
    if (count == 0) order->push_back(node);
  }
  for (size_t i = 0; i < order->size(); ++i) {
    Node* node = (*order)[i];
    if (node->IsNextIteration()) continue;
    for (const Edge* edge : node->out_edges()) {
      if (edge->dst()->IsOp() && --pending[edge->dst()->id()] == 0) order->push_back(edge->dst());
    }
  }
  if (order->size() == static_cast<size_t>(graph.num_op_nodes())) return absl::OkStatus();
  for (Node* node : graph.op_nodes()) {
    if (pending[node->id()] > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the graph has a cycle through node '", node->name(), "'"));
    }
  }
  return absl::InternalError("the graph changed while it was read");
}

// Marks all ancestors of `roots` in `mark` (by node id) and returns their number.
size_t MarkClosure(const std::vector<Node*>& roots, std::vector<bool>* mark) {
  std::vector<const Node*> stack;
  size_t count = 0;
  const auto visit = [&](const Node* node) {
    if (!node->IsOp() || (*mark)[node->id()]) return;
    (*mark)[node->id()] = true;
    ++count;
    stack.push_back(node);
  };
  for (const Node* root : roots) visit(root);
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    for (const Edge* edge : node->in_edges()) visit(edge->src());
  }
  return count;
}

class SinkChooser {
 public:
  SinkChooser(const Graph& graph, const std::vector<Node*>& order)
      : graph_(graph), order_(order), weight_(graph.num_node_ids(), 0) {}

  // The sink that updates variables (if any does) and whose closure weighs most.
  Node* Choose() {
    std::vector<Candidate> candidates = Candidates();
    Node* best = nullptr;
    double best_weight = -1;
    std::vector<bool> mark;
    for (const Candidate& candidate : candidates) {
      mark.assign(graph_.num_node_ids(), false);
      MarkClosure({candidate.node}, &mark);
      double weight = 0;
      for (const Node* node : order_) {
        if (mark[node->id()]) weight += weight_[node->id()];
      }
      if (weight > best_weight) {
        best_weight = weight;
        best = candidate.node;
      }
    }
    return best;
  }

 private:
  struct Candidate {
    Node* node;
    double bound;  // weight of the closure counted as a tree: never below the true weight
  };

  std::vector<Candidate> Candidates() {
    absl::flat_hash_map<const tensorflow::OpDef*, OpTraits> traits;
    std::vector<double> bound(graph_.num_node_ids(), 0);
    std::vector<bool> updates(graph_.num_node_ids(), false);
    std::vector<Candidate> sinks;
    bool any_update = false;
    for (Node* node : order_) {
      auto it = traits.find(&node->op_def());
      if (it == traits.end()) {
        it = traits.emplace(&node->op_def(), TraitsOf(node->type_string())).first;
      }
      const int id = node->id();
      weight_[id] = it->second.weight;
      bound[id] = weight_[id];
      updates[id] = it->second.updates;
      for (const Edge* edge : node->in_edges()) {
        if (!edge->src()->IsOp()) continue;
        bound[id] = std::min(bound[id] + bound[edge->src()->id()], 1e300);
        if (updates[edge->src()->id()]) updates[id] = true;
      }
      const bool is_sink = std::none_of(node->out_edges().begin(), node->out_edges().end(),
                                        [](const Edge* edge) { return edge->dst()->IsOp(); });
      if (!is_sink) continue;
      if (updates[id] && !any_update) {
        any_update = true;
        sinks.clear();
      }
      if (updates[id] == any_update) sinks.push_back({node, bound[id]});
    }
    std::stable_sort(sinks.begin(), sinks.end(), [](const Candidate& a, const Candidate& b) {
      if (a.bound != b.bound) return a.bound > b.bound;
      return a.node->name() < b.node->name();
    });
    if (sinks.size() > kMaxCandidateSinks) sinks.resize(kMaxCandidateSinks);
    return sinks;
  }

  const Graph& graph_;
  const std::vector<Node*>& order_;
  std::vector<double> weight_;  // by node id
};

absl::Status FindNamed(const Graph& graph, const std::vector<std::string>& names,
                       std::vector<Node*>* targets) {
  for (const std::string& name : names) {
    const std::string node_name = name.substr(0, name.find(':'));
    Node* found = nullptr;
    for (Node* node : graph.op_nodes()) {
      if (node->name() == node_name) found = node;
    }
    if (found == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("target '", name, "' is not in the graph; option 'targets' takes op names"));
    }
    targets->push_back(found);
  }
  return absl::OkStatus();
}

}  // namespace

bool UpdatesVariable(const std::string& op) {
  return absl::StartsWith(op, "Assign") || absl::StartsWith(op, "ResourceApply") ||
         absl::StartsWith(op, "ResourceSparseApply") || absl::StartsWith(op, "ResourceScatter") ||
         absl::StartsWith(op, "Apply") || absl::StartsWith(op, "SparseApply") ||
         (absl::StartsWith(op, "Scatter") && op != "ScatterNd");
}

absl::Status FindStep(const Graph& graph, bool is_function,
                      const std::vector<std::string>& target_names, Step* step) {
  std::vector<Node*> order;
  if (absl::Status status = TopologicalOrder(graph, &order); !status.ok()) return status;
  const bool has_returns =
      std::any_of(order.begin(), order.end(), [](const Node* node) { return node->IsRetval(); });
  step->targets.clear();
  step->position.assign(graph.num_node_ids(), -1);
  if (is_function || has_returns) {
    step->nodes = std::move(order);
  } else {
    if (!target_names.empty()) {
      absl::Status status = FindNamed(graph, target_names, &step->targets);
      if (!status.ok()) return status;
    } else if (Node* sink = SinkChooser(graph, order).Choose()) {
      step->targets.push_back(sink);
    }
    std::vector<bool> mark(graph.num_node_ids(), false);
    step->nodes.clear();
    step->nodes.reserve(MarkClosure(step->targets, &mark));
    for (Node* node : order) {
      if (mark[node->id()]) step->nodes.push_back(node);
    }
  }
  for (size_t i = 0; i < step->nodes.size(); ++i) {
    step->position[step->nodes[i]->id()] = static_cast<int32_t>(i);
  }
  return absl::OkStatus();
}

}  // namespace hplacer
