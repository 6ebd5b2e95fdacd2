#include "tf/grappler_optimizer.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/grappler/grappler_item.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer_registry.h"
#include "tf/fail_open.h"
#include "tf/per_process.h"
#include "tf/step.h"

namespace hplacer {
namespace {

constexpr size_t kMaxPlans = 64;
constexpr size_t kMaxChecks = 256;

constexpr char kPlanAttr[] = "_hplacer_plan";  // holds RememberedPlan::id

struct RememberedPlan {
  std::string id;
  std::string fingerprint;
  std::shared_ptr<const Assignment> assignment;
  absl::flat_hash_map<std::string_view, uint16_t> device_of;  // built at the first check
};

class CheckBook {
 public:
  static CheckBook& Get() { return PerProcess<CheckBook>::Get(); }

  // Returns the new plan's id.
  std::string Remember(const std::string& fingerprint,
                       std::shared_ptr<const Assignment> assignment) {
    std::lock_guard<std::mutex> lock(mutex_);
    const std::string id = std::to_string(next_id_++);
    plans_.push_front({id, fingerprint, std::move(assignment), {}});
    if (plans_.size() > kMaxPlans) plans_.pop_back();
    return id;
  }

  void Check(const tensorflow::grappler::GrapplerItem& item) {
    std::string id;
    for (const auto& node : item.graph.node()) {
      const auto it = node.attr().find(kPlanAttr);
      if (it != node.attr().end()) id = it->second.s();
    }
    std::lock_guard<std::mutex> lock(mutex_);
    for (RememberedPlan& plan : plans_) {
      if (plan.id != id) continue;
      Keep(Compare(item, &plan));
    }
  }

  void Add(StepCheck check) {
    std::lock_guard<std::mutex> lock(mutex_);
    Keep(std::move(check));
  }

  std::vector<StepCheck> Checks() {
    std::lock_guard<std::mutex> lock(mutex_);
    return {checks_.begin(), checks_.end()};
  }

 private:
  static StepCheck Compare(const tensorflow::grappler::GrapplerItem& item, RememberedPlan* plan) {
    if (plan->device_of.empty()) Index(plan);
    StepCheck check;
    check.fingerprint = plan->fingerprint;
    check.fetches = item.fetch;
    check.num_nodes = item.graph.node_size();
    for (const auto& node : item.graph.node()) {
      const auto it = plan->device_of.find(node.name());
      // TensorFlow makes a Size of the Prod of a Shape, where the Shape is: no op of the plan.
      if (it == plan->device_of.end() || node.op() == "Size") continue;
      ++check.num_planned;
      const std::string& planned = plan->assignment->device_names[it->second];
      if (node.device() != planned && check.differences.size() < StepCheck::kMaxDifferences) {
        check.differences.push_back({node.name(), planned, node.device()});
      }
    }
    return check;
  }

  void Keep(StepCheck check) {
    checks_.push_back(std::move(check));
    if (checks_.size() > kMaxChecks) checks_.pop_front();
  }

  static void Index(RememberedPlan* plan) {
    std::string_view names = plan->assignment->names;
    for (const uint16_t device : plan->assignment->devices) {
      const std::string_view name = names.substr(0, names.find('\n'));
      plan->device_of.emplace(name, device);
      names.remove_prefix(std::min(names.size(), name.size() + 1));
    }
  }

  std::mutex mutex_;
  int64_t next_id_ = 0;
  std::deque<RememberedPlan> plans_;  // newest first
  std::deque<StepCheck> checks_;
};

class HierarchicalPlacerOptimizer : public tensorflow::grappler::CustomGraphOptimizer {
 public:
  absl::Status Init(const tensorflow::RewriterConfig_CustomGraphOptimizer*) override {
    return absl::OkStatus();
  }
  // For logs; so short that it needs no memory.
  std::string name() const override { return "hplacer"; }
  bool UsesFunctionLibrary() const override { return false; }

  absl::Status Optimize(tensorflow::grappler::Cluster*,
                        const tensorflow::grappler::GrapplerItem& item,
                        tensorflow::GraphDef*) override {
    WhatFails([&item] { CheckBook::Get().Check(item); });  // then there is no check
    return absl::AbortedError("nothing to change");
  }
};

}  // namespace

void RememberPlan(const Step& step, const std::string& fingerprint,
                  std::shared_ptr<const Assignment> assignment) {
  const std::string id = CheckBook::Get().Remember(fingerprint, std::move(assignment));
  const auto mark = [&id](tensorflow::Node* node) { node->AddAttr(kPlanAttr, id); };
  // Stateful ops and results: some are in every graph that runs, and none is ever merged with
  // another for being alike.
  for (tensorflow::Node* node : step.nodes) {
    if (node->IsRetval()) {
      for (const tensorflow::Edge* edge : node->in_edges()) {
        if (edge->src()->IsOp() && !edge->src()->IsArg()) mark(edge->src());
      }
    } else if (node->op_def().is_stateful() && !node->IsArg()) {
      mark(node);
    }
  }
  for (tensorflow::Node* target : step.targets) mark(target);
}

void AddStepCheck(StepCheck check) { CheckBook::Get().Add(std::move(check)); }

std::vector<StepCheck> StepChecks() { return CheckBook::Get().Checks(); }

void RegisterGrapplerOptimizer() {
  tensorflow::grappler::CustomGraphOptimizerRegistry::RegisterOptimizerOrDie(
      [] { return new (std::nothrow) HierarchicalPlacerOptimizer; }, kOptimizerName);
}

}  // namespace hplacer
