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

// The op nodes among `roots` and their ancestors, in topological order with loop back-edges cut;
// or an error that names a node on a cycle. One depth-first search over inputs.
absl::Status OrderedClosure(const Graph& graph, std::vector<Node*> roots,
                            std::vector<Node*>* order) {
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> state(graph.num_node_ids(), kNew);
  struct Visit {
    Node* node;
    tensorflow::EdgeSet::const_iterator next;
  };
  std::vector<Visit> stack;
  order->clear();
  for (size_t r = 0; r < roots.size(); ++r) {
    if (state[roots[r]->id()] != kNew) continue;
    state[roots[r]->id()] = kOpen;
    stack.push_back({roots[r], roots[r]->in_edges().begin()});
    while (!stack.empty()) {
      Visit& visit = stack.back();
      if (visit.next == visit.node->in_edges().end()) {
        state[visit.node->id()] = kDone;
        order->push_back(visit.node);
        stack.pop_back();
        continue;
      }
      const Edge* edge = *visit.next;
      ++visit.next;
      Node* source = edge->src();
      if (!source->IsOp() || state[source->id()] == kDone) continue;
      if (IsBackEdge(*edge)) {
        roots.push_back(source);  // part of the closure, but after the loop's body
        continue;
      }
      if (state[source->id()] == kOpen) {
        return absl::InvalidArgumentError(
            absl::StrCat("the graph has a cycle through node '", source->name(), "'"));
      }
      state[source->id()] = kOpen;
      stack.push_back({source, source->in_edges().begin()});
    }
  }
  return absl::OkStatus();
}

// Marks all ancestors of `root`, itself included, by node id.
void MarkClosure(const Node* root, std::vector<bool>* mark) {
  std::vector<const Node*> stack = {root};
  (*mark)[root->id()] = true;
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    for (const Edge* edge : node->in_edges()) {
      if (!edge->src()->IsOp() || (*mark)[edge->src()->id()]) continue;
      (*mark)[edge->src()->id()] = true;
      stack.push_back(edge->src());
    }
  }
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
      MarkClosure(candidate.node, &mark);
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
  step->targets.clear();
  std::vector<Node*> all(graph.op_nodes().begin(), graph.op_nodes().end());
  const bool is_whole_graph =
      is_function ||
      std::any_of(all.begin(), all.end(), [](const Node* node) { return node->IsRetval(); });
  absl::Status status;
  if (is_whole_graph) {
    status = OrderedClosure(graph, std::move(all), &step->nodes);
  } else {
    if (!target_names.empty()) {
      status = FindNamed(graph, target_names, &step->targets);
    } else {
      status = OrderedClosure(graph, std::move(all), &step->nodes);
      if (!status.ok()) return status;
      Node* sink = SinkChooser(graph, step->nodes).Choose();
      if (sink != nullptr) step->targets.push_back(sink);
    }
    if (!status.ok()) return status;
    status = OrderedClosure(graph, step->targets, &step->nodes);
  }
  step->position.assign(graph.num_node_ids(), -1);
  for (size_t i = 0; i < step->nodes.size(); ++i) {
    step->position[step->nodes[i]->id()] = static_cast<int32_t>(i);
  }
  return status;
}

}  // namespace hplacer
