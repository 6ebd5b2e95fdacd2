#include "tf/late_placement.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "absl/container/flat_hash_map.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/public/session_options.h"
#include "tf/default_placement.h"
#include "tf/fail_open.h"
#include "tf/grappler_optimizer.h"
#include "tf/pass_input.h"
#include "tf/per_process.h"

namespace hplacer {

using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::GraphOptimizationPassOptions;
using tensorflow::Node;

// The device of every node of a graph, before TensorFlow rewrites it.
struct LatePlan {
  struct Placed {
    std::string device;
    bool planned;  // else it follows others
  };
  std::string session;  // handle; empty: a function
  std::string fingerprint;
  std::unordered_map<std::string, Placed> nodes;
};

namespace {

constexpr int kFirstPhase =
    0;  // TensorFlow copies constants to the devices of their consumers at 3

// The plans that wait for Grappler. A function's is taken once, a session's for each set of
// fetches.
class LatePlans {
 public:
  static LatePlans& Get() { return PerProcess<LatePlans>::Get(); }

  void Put(const GraphOptimizationPassOptions& options, std::shared_ptr<const LatePlan> plan) {
    std::lock_guard<std::mutex> lock(mutex_);
    plans_[options.session_options] = std::move(plan);
  }

  std::shared_ptr<const LatePlan> Find(const GraphOptimizationPassOptions& options) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = plans_.find(options.session_options);
    return it == plans_.end() ? nullptr : it->second;
  }

  std::shared_ptr<const LatePlan> Take(const GraphOptimizationPassOptions& options) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = plans_.find(options.session_options);
    if (it == plans_.end()) return nullptr;
    std::shared_ptr<const LatePlan> plan = it->second;
    if (options.is_function_graph) plans_.erase(it);
    return plan;
  }

  void Forget(const GraphOptimizationPassOptions& options) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = plans_.find(options.session_options);
    if (it == plans_.end()) return;
    if (options.is_function_graph || it->second->session != options.session_handle) {
      plans_.erase(it);
    }
  }

 private:
  std::mutex mutex_;
  // By the options of the session or of the function call: the one thing that the passes before
  // and after Grappler have in common.
  absl::flat_hash_map<const tensorflow::SessionOptions*, std::shared_ptr<const LatePlan>> plans_;
};

// Places the nodes of one rewritten graph.
class LatePlacer {
 public:
  LatePlacer(const tensorflow::DeviceSet& devices, const LatePlan& plan, Graph* graph)
      : devices_(devices), plan_(plan), graph_(graph), decided_(graph->num_node_ids(), false) {}

  void Run() {
    check_.fingerprint = plan_.fingerprint;
    check_.num_nodes = graph_->num_op_nodes();
    for (Node* node : graph_->op_nodes()) PlaceKnown(node);
    std::vector<Node*> order;
    tensorflow::GetReversePostOrder(*graph_, &order);
    for (Node* node : order) {
      if (!decided_[node->id()]) Follow(node, Producer(*node));
    }
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      if (!decided_[(*it)->id()]) Follow(*it, Consumer(**it));
    }
    for (Node* node : order) {
      if (IsLongSum(*node)) Follow(node, FirstOwnInput(*node));
    }
    if (!plan_.fingerprint.empty()) AddStepCheck(std::move(check_));
  }

 private:
  void PlaceKnown(Node* node) {
    const auto it = plan_.nodes.find(node->name());
    if (it == plan_.nodes.end()) {
      // A session's feeds and fetches belong to the client; new state stays where it was made.
      decided_[node->id()] = node->IsArg() || node->IsRetval() ||
                             (node->op_def().is_stateful() && HandleProducer(*node) == nullptr);
      return;
    }
    Move(node, it->second.device);
    if (!it->second.planned || IsLongSum(*node)) return;
    ++check_.num_planned;
    if (node->assigned_device_name() != it->second.device &&
        check_.differences.size() < StepCheck::kMaxDifferences) {
      check_.differences.push_back({node->name(), it->second.device, node->assigned_device_name()});
    }
  }

  void Move(Node* node, const std::string& name) {
    decided_[node->id()] = true;
    const tensorflow::Device* to = devices_.FindDeviceByName(name);
    const tensorflow::Device* from = devices_.FindDeviceByName(node->assigned_device_name());
    if (to != nullptr && from != nullptr && to->device_type() == from->device_type()) {
      node->set_assigned_device_name(name);
    }
  }

  void Follow(Node* node, const Node* neighbour) {
    if (neighbour != nullptr) Move(node, neighbour->assigned_device_name());
  }

  // A node that takes a resource or a reference has to be where that is.
  static const Node* HandleProducer(const Node& node) {
    for (const Edge* edge : node.in_edges()) {
      if (edge->IsControlEdge()) continue;
      const tensorflow::DataType type = edge->src()->output_type(edge->src_output());
      if (type == tensorflow::DT_RESOURCE || tensorflow::IsRefType(type)) return edge->src();
    }
    return nullptr;
  }

  // AddN begins with the first input whose memory it can take over, so the order of its sum depends
  // on that; of an input that is still being received, somebody else has a share.
  static bool IsLongSum(const Node& node) {
    return node.type_string() == "AddN" && node.num_inputs() > 2;
  }

  static const Node* FirstOwnInput(const Node& sum) {
    const Edge* first = nullptr;
    for (const Edge* edge : sum.in_edges()) {
      if (edge->IsControlEdge() || (first != nullptr && first->dst_input() < edge->dst_input())) {
        continue;
      }
      const auto& uses = edge->src()->out_edges();
      const auto shared = std::count_if(uses.begin(), uses.end(), [edge](const Edge* use) {
        return use->src_output() == edge->src_output();
      });
      if (shared == 1) first = edge;
    }
    return first == nullptr ? nullptr : first->src();
  }

  // Edge sets have no order: the first input, the consumer with the least id.
  const Node* Producer(const Node& node) const {
    if (const Node* handle = HandleProducer(node)) return handle;
    const Edge* first = nullptr;
    for (const Edge* edge : node.in_edges()) {
      if (edge->IsControlEdge() || !decided_[edge->src()->id()]) continue;
      if (edge->src()->IsConstant()) continue;
      if (first == nullptr || edge->dst_input() < first->dst_input()) first = edge;
    }
    return first == nullptr ? nullptr : first->src();
  }

  const Node* Consumer(const Node& node) const {
    const Node* first = nullptr;
    for (const Edge* edge : node.out_edges()) {
      if (edge->IsControlEdge() || !decided_[edge->dst()->id()]) continue;
      if (first == nullptr || edge->dst()->id() < first->id()) first = edge->dst();
    }
    return first;
  }

  const tensorflow::DeviceSet& devices_;
  const LatePlan& plan_;
  Graph* graph_;
  std::vector<bool> decided_;  // by node id
  StepCheck check_;
};

class LatePlacementPass : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr || options.device_set == nullptr) {
      return absl::OkStatus();
    }
    // All of the plan, or TensorFlow's placement.
    std::vector<std::pair<Node*, int>> before;
    const std::string failure = WhatFails([&] {
      const std::shared_ptr<const LatePlan> plan = LatePlans::Get().Take(options);
      if (plan == nullptr) return;
      before.reserve((*options.graph)->num_op_nodes());
      for (Node* node : (*options.graph)->op_nodes()) {
        before.emplace_back(node, node->assigned_device_name_index());
      }
      LatePlacer(*options.device_set, *plan, options.graph->get()).Run();
    });
    if (failure.empty()) return absl::OkStatus();
    for (const auto& [node, device] : before) node->set_assigned_device_name_index(device);
    ReportFailure(options, failure);
    return absl::OkStatus();
  }
};

}  // namespace

LatePlacement::LatePlacement(const GraphOptimizationPassOptions& options) : options_(options) {
  if (options.is_function_graph) return;
  earlier_ = LatePlans::Get().Find(options);
  if (earlier_ == nullptr) return;
  try {
    for (Node* node : (*options.graph)->op_nodes()) {
      if (!node->has_assigned_device_name()) continue;
      const auto it = earlier_->nodes.find(node->name());
      if (it == earlier_->nodes.end()) continue;
      own_devices_.emplace_back(node, node->assigned_device_name_index());
      node->set_assigned_device_name(it->second.device);
    }
  } catch (...) {
    GiveBack();
    throw;
  }
}

LatePlacement::~LatePlacement() {
  if (earlier_ != nullptr && !placed_) {
    WhatFails([this] { Place({}, /*fingerprint=*/"").IgnoreError(); });
  }
  GiveBack();
}

void LatePlacement::GiveBack() noexcept {
  for (const auto& [node, device] : own_devices_) node->set_assigned_device_name_index(device);
}

absl::Status LatePlacement::Place(const NodeDevices& resolved, const std::string& fingerprint) {
  absl::flat_hash_map<std::string_view, const std::string*> requested;
  requested.reserve(resolved.devices.size());
  for (const auto& [node, device] : resolved.devices) requested.emplace(node->name(), device);
  const std::unique_ptr<Graph> copy = (*options_.graph)->Clone();
  for (Node* node : copy->op_nodes()) {
    const auto it = requested.find(node->name());
    if (it != requested.end()) node->set_requested_device(*it->second);
  }
  if (absl::Status status = RunPlacer(options_, copy.get()); !status.ok()) return status;
  auto plan = std::make_shared<LatePlan>();
  plan->session = options_.session_handle;
  plan->fingerprint = fingerprint;
  // With place_pruned_graph each set of fetches comes here as a graph of its own.
  if (earlier_ != nullptr) plan->nodes = earlier_->nodes;
  plan->nodes.reserve(copy->num_op_nodes());
  for (const Node* node : copy->op_nodes()) {
    plan->nodes[node->name()] = {node->assigned_device_name(), requested.contains(node->name())};
  }
  LatePlans::Get().Put(options_, std::move(plan));
  placed_ = true;
  return absl::OkStatus();
}

void ForgetEarlierPlans(const GraphOptimizationPassOptions& options) {
  LatePlans::Get().Forget(options);
}

void RegisterLatePlacementPass() {
  auto pass = std::make_unique<LatePlacementPass>();
  pass->set_name("HierarchicalPlacerLatePlacementPass");
  tensorflow::OptimizationPassRegistry::Global()->Register(
      tensorflow::OptimizationPassRegistry::POST_REWRITE_FOR_EXEC, kFirstPhase, std::move(pass));
}

}  // namespace hplacer
