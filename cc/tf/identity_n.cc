#include "tf/identity_n.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tf/step.h"

namespace hplacer {
namespace {

using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::GraphOptimizationPassOptions;
using tensorflow::Node;

// In which branch of a conditional or body of a loop a tensor is made: where the condition goes the
// other way, it is dead. Tensors of one branch are dead together.
class Branches {
 public:
  static constexpr int32_t kNone = 0, kUnknown = -1;

  explicit Branches(const Graph& graph) {
    if (absl::c_none_of(graph.op_nodes(), [](const Node* node) { return node->IsSwitch(); })) {
      branch_.assign(graph.num_node_ids(), kNone);
      return;
    }
    branch_.assign(graph.num_node_ids(), kUnknown);
    std::vector<Node*> order;
    tensorflow::GetReversePostOrder(graph, &order, /*stable_comparator=*/{},
                                    [](const Edge& edge) { return !IsBackEdge(edge); });
    for (const Node* node : order) branch_[node->id()] = Find(*node);
  }

  int32_t Of(const Edge& edge) {
    const Node& source = *edge.src();
    const int32_t outer = branch_[source.id()];
    if (!source.IsSwitch() || edge.IsControlEdge() || outer == kUnknown) return outer;
    const Edge* condition = nullptr;
    if (!source.input_edge(1, &condition).ok()) return kUnknown;
    const auto [known, is_new] = inside_.emplace(
        std::make_tuple(outer, condition->src()->id(), condition->src_output(), edge.src_output()),
        static_cast<int32_t>(outer_.size()));
    if (is_new) outer_.push_back(outer);
    return known->second;
  }

 private:
  int32_t Find(const Node& node) {
    int32_t found = kNone;
    bool is_first = true;
    for (const Edge* edge : node.in_edges()) {
      if (IsBackEdge(*edge)) continue;
      const int32_t branch = Of(*edge);
      if (branch == kUnknown) return kUnknown;
      const int32_t common = is_first ? branch : Common(found, branch);
      if (node.IsMerge()) {
        found = common;  // one of its inputs suffices
      } else if (is_first || common == found) {
        found = branch;
      } else if (common != branch) {
        return kUnknown;
      }
      is_first = false;
    }
    return node.IsExit() ? outer_[found] : found;
  }

  // The innermost one that both are in; what is around a branch has a lower number.
  int32_t Common(int32_t a, int32_t b) const {
    while (a != b) (a > b ? a : b) = outer_[std::max(a, b)];
    return a;
  }

  std::vector<int32_t> branch_;           // by node id
  std::vector<int32_t> outer_ = {kNone};  // by branch: the one around it
  // By the one around it, the condition and how that goes.
  std::map<std::tuple<int32_t, int, int, int>, int32_t> inside_;
};

bool MayBeTakenApart(const Node* node) {
  if (node->type_string() != "IdentityN") return false;
  if (!node->requested_device().empty() || node->has_assigned_device_name()) return false;
  // Only Python reads these.
  static const auto* const ignored = new absl::flat_hash_set<std::string>(
      {"_gradient_op_type", "_has_manual_control_dependencies", "_output_shapes"});
  for (const auto& [name, value] : node->attrs()) {
    if (name[0] == '_' && !ignored->contains(name)) return false;
  }
  return absl::c_none_of(node->in_edges(), [](const Edge* edge) {
    if (edge->IsControlEdge()) return edge->src()->IsOp();
    return tensorflow::IsRefType(edge->src()->output_type(edge->src_output()));
  });
}

bool IsWaitedFor(const Edge* edge) { return edge->IsControlEdge() && edge->dst()->IsOp(); }

// Of one function, whose graph it changes.
class Taking {
 public:
  Taking(const tensorflow::FunctionDef& function, Graph* graph) : graph_(graph) {
    for (const auto& [result, node] : function.control_ret()) results_.insert(node);
  }

  // Whether there was any to be taken apart.
  absl::StatusOr<bool> Run() {
    const std::vector<Node*> found = FindAll();
    for (Node* node : found) {
      if (absl::Status status = TakeApart(node); !status.ok()) return status;
    }
    tensorflow::FixupSourceAndSinkEdges(graph_);
    return !found.empty();
  }

 private:
  std::vector<Node*> FindAll() const {
    absl::flat_hash_set<std::string> groups;
    for (const Node* node : graph_->op_nodes()) {
      std::vector<std::string> of_node;
      tensorflow::TryGetNodeAttr(node->attrs(), "_class", &of_node);
      groups.insert(of_node.begin(), of_node.end());
    }
    Branches branches(*graph_);
    std::vector<Node*> found;
    for (Node* node : graph_->op_nodes()) {
      if (!MayBeTakenApart(node) || groups.contains(absl::StrCat("loc:@", node->name()))) continue;
      // A control edge from a Switch says nothing of which way the condition went.
      const auto& inputs = node->in_edges();
      const auto is_of_switch = [](const Edge* input) { return input->src()->IsSwitch(); };
      if (MustBeWaitedFor(*node) && absl::c_any_of(inputs, is_of_switch)) continue;
      absl::flat_hash_set<int32_t> of_inputs;
      for (const Edge* input : inputs) of_inputs.insert(branches.Of(*input));
      if (of_inputs.size() == 1 && !of_inputs.contains(Branches::kUnknown)) found.push_back(node);
    }
    return found;
  }

  bool MustBeWaitedFor(const Node& node) const {
    return results_.contains(node.name()) || absl::c_any_of(node.out_edges(), IsWaitedFor);
  }

  absl::Status TakeApart(Node* node) {
    std::vector<std::pair<Node*, int>> sources;  // by output
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Edge* input = nullptr;
      if (absl::Status status = node->input_edge(i, &input); !status.ok()) return status;
      sources.emplace_back(input->src(), input->src_output());
    }
    const bool is_waited_for = MustBeWaitedFor(*node);
    std::vector<Node*> waiting;
    const std::vector<const Edge*> uses(node->out_edges().begin(), node->out_edges().end());
    for (const Edge* use : uses) {
      Node* const reader = use->dst();
      const int input = use->dst_input();
      if (IsWaitedFor(use)) waiting.push_back(reader);
      if (use->IsControlEdge()) continue;
      const auto [source, output] = sources[use->src_output()];
      graph_->RemoveEdge(use);
      graph_->AddEdge(source, output, reader, input);
    }
    tensorflow::NodeDef definition;
    definition.set_name(node->name());
    definition.set_op("NoOp");
    graph_->RemoveNode(node);
    if (!is_waited_for) return absl::OkStatus();
    absl::Status status;
    Node* const end = graph_->AddNode(std::move(definition), &status);
    if (!status.ok()) return status;
    for (const auto& source : sources) graph_->AddControlEdge(source.first, end);
    for (Node* reader : waiting) graph_->AddControlEdge(end, reader);
    return absl::OkStatus();
  }

  Graph* graph_;
  absl::flat_hash_set<std::string> results_;  // names of nodes that have to run
};

}  // namespace

std::unique_ptr<Graph> WithoutIdentityN(const GraphOptimizationPassOptions& options) {
  Graph& graph = **options.graph;
  if (!options.is_function_graph || options.function_def == nullptr ||
      absl::c_none_of(graph.op_nodes(), MayBeTakenApart)) {
    return nullptr;
  }
  std::unique_ptr<Graph> copy = graph.Clone();
  const absl::StatusOr<bool> any = Taking(*options.function_def, copy.get()).Run();
  return any.ok() && *any ? std::move(copy) : nullptr;
}

TakenApart::TakenApart(const GraphOptimizationPassOptions& options) : graph_(options.graph) {
  std::unique_ptr<Graph> copy = WithoutIdentityN(options);
  if (copy != nullptr) original_ = std::exchange(*graph_, std::move(copy));
}

TakenApart::~TakenApart() {
  if (original_ != nullptr) *graph_ = std::move(original_);
}

}  // namespace hplacer
