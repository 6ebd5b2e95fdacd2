#include "tf/step.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tf/parallel.h"

namespace hplacer {
namespace {

using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::Node;

// The most sinks whose closures are compared when no target is named.
constexpr size_t kMaxCandidateSinks = 64;

constexpr size_t kMaxSuggestions = 3;  // of names for a target that is not there

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

// The edges between op nodes, by node id. Walking TensorFlow's nodes is bound by memory latency, so
// they are visited once, by several threads; all that follows walks these arrays.
class Arcs {
 public:
  struct Arc {
    int32_t source;  // node id
    int32_t src_output;
    int32_t dst_input;
  };

  explicit Arcs(const Graph& graph) : first_(graph.num_node_ids() + 1) {
    std::mutex mutex;
    std::map<size_t, Part> parts;  // by first id
    ParallelFor(graph.num_node_ids(), [&](size_t begin, size_t end) {
      Part part;
      for (size_t id = begin; id < end; ++id) {
        first_[id] = part.arcs.size();
        const Node* node = graph.FindNodeId(static_cast<int>(id));
        if (node != nullptr && node->IsOp()) Append(*node, &part);
      }
      std::lock_guard<std::mutex> lock(mutex);
      parts.emplace(begin, std::move(part));
    });
    for (auto it = parts.begin(); it != parts.end(); ++it) {
      const auto next = std::next(it);
      const size_t end = next == parts.end() ? first_.size() - 1 : next->first;
      for (size_t id = it->first; id < end; ++id) first_[id] += arcs_.size();
      arcs_.insert(arcs_.end(), it->second.arcs.begin(), it->second.arcs.end());
      for (const auto& [node, source] : it->second.back) back_[node].push_back(source);
    }
    first_.back() = arcs_.size();
  }

  // Of the edges into a node, without back-edges: positions for `operator[]`.
  size_t first(int32_t id) const { return first_[id]; }
  size_t last(int32_t id) const { return first_[id + 1]; }
  const Arc& operator[](size_t i) const { return arcs_[i]; }

  // The sources of the back-edges into node `id`: none of most nodes.
  const std::vector<int32_t>& BackSources(int32_t id) const {
    static const auto* const none = new std::vector<int32_t>;
    if (back_.empty()) return *none;
    const auto it = back_.find(id);
    return it == back_.end() ? *none : it->second;
  }

 private:
  struct Part {
    std::vector<Arc> arcs;
    std::vector<std::pair<int32_t, int32_t>> back;  // a node and a NextIteration before it
  };

  static void Append(const Node& node, Part* part) {
    for (const Edge* edge : node.in_edges()) {
      if (!edge->src()->IsOp()) continue;
      if (IsBackEdge(*edge)) {
        part->back.emplace_back(node.id(), edge->src()->id());
      } else {
        part->arcs.push_back({edge->src()->id(), edge->src_output(), edge->dst_input()});
      }
    }
  }

  std::vector<size_t> first_;  // [node ids + 1] into arcs_
  std::vector<Arc> arcs_;
  absl::flat_hash_map<int32_t, std::vector<int32_t>> back_;  // by node id
};

// The nodes among `roots` and their ancestors, in topological order with loop back-edges cut; or
// an error that names a node on a cycle. One depth-first search over inputs.
absl::Status OrderedClosure(const Graph& graph, const Arcs& arcs, std::vector<int32_t> roots,
                            std::vector<int32_t>* order) {
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> state(graph.num_node_ids(), kNew);
  struct Visit {
    int32_t node;
    size_t next;
  };
  std::vector<Visit> stack;
  const auto open = [&](int32_t node) {
    state[node] = kOpen;
    stack.push_back({node, arcs.first(node)});
    // Part of the closure, but after the loop's body.
    const std::vector<int32_t>& back = arcs.BackSources(node);
    roots.insert(roots.end(), back.begin(), back.end());
  };
  order->clear();
  for (size_t r = 0; r < roots.size(); ++r) {
    if (state[roots[r]] != kNew) continue;
    open(roots[r]);
    while (!stack.empty()) {
      Visit& visit = stack.back();
      if (visit.next == arcs.last(visit.node)) {
        state[visit.node] = kDone;
        order->push_back(visit.node);
        stack.pop_back();
        continue;
      }
      const int32_t source = arcs[visit.next++].source;
      if (state[source] == kDone) continue;
      if (state[source] == kOpen) {
        return absl::InvalidArgumentError(absl::StrCat("the graph has a cycle through node '",
                                                       graph.FindNodeId(source)->name(), "'"));
      }
      open(source);
    }
  }
  return absl::OkStatus();
}

class SinkChooser {
 public:
  SinkChooser(const Graph& graph, const Arcs& arcs, const std::vector<int32_t>& order)
      : graph_(graph), arcs_(arcs), order_(order), weight_(graph.num_node_ids(), 0) {}

  // The sink that updates variables (if any does) and whose closure weighs most, or -1.
  int32_t Choose() {
    int32_t best = -1;
    double best_weight = -1;
    for (const Candidate& candidate : Candidates()) {
      if (candidate.bound <= best_weight) break;  // they are sorted by it
      const double weight = ClosureWeight(candidate.node);
      if (weight > best_weight) {
        best_weight = weight;
        best = candidate.node;
      }
    }
    return best;
  }

 private:
  struct Candidate {
    int32_t node;
    double bound;  // weight of the closure counted as a tree: never below the true weight
  };

  double ClosureWeight(int32_t root) const {
    std::vector<bool> reached(graph_.num_node_ids(), false);
    std::vector<int32_t> stack;
    const auto reach = [&](int32_t node) {
      if (reached[node]) return;
      reached[node] = true;
      stack.push_back(node);
    };
    reach(root);
    double weight = 0;
    while (!stack.empty()) {
      const int32_t node = stack.back();
      stack.pop_back();
      weight += weight_[node];
      for (size_t a = arcs_.first(node); a < arcs_.last(node); ++a) reach(arcs_[a].source);
      for (const int32_t source : arcs_.BackSources(node)) reach(source);
    }
    return weight;
  }

  std::vector<Candidate> Candidates() {
    absl::flat_hash_map<const tensorflow::OpDef*, OpTraits> traits;
    std::vector<double> bound(graph_.num_node_ids(), 0);
    std::vector<bool> updates(graph_.num_node_ids(), false);
    std::vector<bool> consumed(graph_.num_node_ids(), false);
    bool any_update = false;
    for (const int32_t id : order_) {
      const Node& node = *graph_.FindNodeId(id);
      auto it = traits.find(&node.op_def());
      if (it == traits.end()) {
        it = traits.emplace(&node.op_def(), TraitsOf(node.type_string())).first;
      }
      weight_[id] = it->second.weight;
      bound[id] = weight_[id];
      updates[id] = it->second.updates;
      for (size_t a = arcs_.first(id); a < arcs_.last(id); ++a) {
        const int32_t source = arcs_[a].source;
        bound[id] = std::min(bound[id] + bound[source], 1e300);
        if (updates[source]) updates[id] = true;
        consumed[source] = true;
      }
      for (const int32_t source : arcs_.BackSources(id)) {
        bound[id] = 1e300;  // the loop's body comes later in the order
        consumed[source] = true;
      }
    }
    std::vector<Candidate> sinks;
    for (const int32_t id : order_) {
      if (consumed[id]) continue;
      if (updates[id] && !any_update) {
        any_update = true;
        sinks.clear();
      }
      if (updates[id] == any_update) sinks.push_back({id, bound[id]});
    }
    std::stable_sort(sinks.begin(), sinks.end(), [this](const Candidate& a, const Candidate& b) {
      if (a.bound != b.bound) return a.bound > b.bound;
      return graph_.FindNodeId(a.node)->name() < graph_.FindNodeId(b.node)->name();
    });
    if (sinks.size() > kMaxCandidateSinks) sinks.resize(kMaxCandidateSinks);
    return sinks;
  }

  const Graph& graph_;
  const Arcs& arcs_;
  const std::vector<int32_t>& order_;
  std::vector<double> weight_;  // by node id
};

std::string_view LastComponent(std::string_view name) {
  return name.substr(name.rfind('/') + 1);  // npos + 1 is 0
}

// "; did you mean 'a/train_op'?" if ops of this name are in other scopes.
std::string Suggestion(const Graph& graph, const std::string& wanted) {
  std::vector<std::string> found;
  for (const Node* node : graph.op_nodes()) {
    if (LastComponent(node->name()) == LastComponent(wanted)) {
      found.push_back(absl::StrCat("'", node->name(), "'"));
    }
  }
  if (found.empty()) return "";
  std::sort(found.begin(), found.end());
  found.resize(std::min(found.size(), kMaxSuggestions));
  return absl::StrCat("; did you mean ", absl::StrJoin(found, " or "), "?");
}

absl::Status FindNamed(const Graph& graph, const std::vector<std::string>& names,
                       std::vector<Node*>* targets) {
  for (const std::string& name : names) {
    const std::string node_name = name.substr(0, name.find(':'));
    Node* found = nullptr;
    for (Node* node : graph.op_nodes()) {
      if (node->name() == node_name) found = node;
    }
    if (found == nullptr) {
      return absl::NotFoundError(absl::StrCat("target '", name, "' is not in the graph",
                                              Suggestion(graph, node_name),
                                              "; option 'targets' takes op names"));
    }
    targets->push_back(found);
  }
  return absl::OkStatus();
}

void FillStep(const Graph& graph, const Arcs& arcs, const std::vector<int32_t>& order, Step* step) {
  step->nodes.resize(order.size());
  step->position.assign(graph.num_node_ids(), -1);
  for (size_t i = 0; i < order.size(); ++i) {
    step->nodes[i] = graph.FindNodeId(order[i]);
    step->position[order[i]] = static_cast<int32_t>(i);
  }
  step->edges.clear();
  step->first_edge.assign(1, 0);
  for (const int32_t id : order) {
    for (size_t a = arcs.first(id); a < arcs.last(id); ++a) {
      step->edges.push_back(
          {step->position[arcs[a].source], arcs[a].src_output, arcs[a].dst_input});
    }
    step->first_edge.push_back(step->edges.size());
  }
}

}  // namespace

bool UpdatesVariable(const std::string& op) {
  return absl::StartsWith(op, "Assign") || absl::StartsWith(op, "ResourceApply") ||
         absl::StartsWith(op, "ResourceSparseApply") || absl::StartsWith(op, "ResourceScatter") ||
         absl::StartsWith(op, "Apply") || absl::StartsWith(op, "SparseApply") ||
         (absl::StartsWith(op, "Scatter") && op != "ScatterNd");
}

bool ComputesGradients(const Step& step) {
  return std::any_of(step.nodes.begin(), step.nodes.end(), [](const Node* node) {
    return absl::StrContains(node->name(), "gradient_tape/") ||
           absl::StrContains(node->name(), "gradients");
  });
}

std::string CollectiveOp(const Step& step) {
  for (const Node* node : step.nodes) {
    const std::string& type = node->type_string();
    if (absl::StartsWith(type, "Collective") || absl::StartsWith(type, "Nccl")) return type;
  }
  return {};
}

absl::Status FindStep(const Graph& graph, bool is_function,
                      const std::vector<std::string>& target_names, Step* step) {
  step->targets.clear();
  std::vector<int32_t> roots;
  bool is_whole_graph = is_function;
  for (const Node* node : graph.op_nodes()) {
    roots.push_back(node->id());
    is_whole_graph |= node->IsRetval();
  }
  if (!is_whole_graph && !target_names.empty()) {
    absl::Status status = FindNamed(graph, target_names, &step->targets);
    if (!status.ok()) return status;
  }
  const Arcs arcs(graph);
  std::vector<int32_t> order;
  if (is_whole_graph || target_names.empty()) {
    absl::Status status = OrderedClosure(graph, arcs, roots, &order);
    if (!status.ok()) return status;
  }
  if (!is_whole_graph) {
    if (target_names.empty()) {
      const int32_t sink = SinkChooser(graph, arcs, order).Choose();
      if (sink >= 0) step->targets.push_back(graph.FindNodeId(sink));
    }
    roots.clear();
    for (const Node* target : step->targets) roots.push_back(target->id());
    absl::Status status = OrderedClosure(graph, arcs, roots, &order);
    if (!status.ok()) return status;
  }
  FillStep(graph, arcs, order, step);
  return absl::OkStatus();
}

}  // namespace hplacer
