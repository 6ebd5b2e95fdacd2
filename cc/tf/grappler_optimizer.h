// The Grappler optimizer "HierarchicalPlacer". Its name in RewriterConfig.custom_optimizers is
// what switches the plugin on. It runs after placement, per fetch set, on pruned graphs, and
// changes nothing: it checks that the plan took effect and records which steps really run.
#ifndef HPLACER_TF_GRAPPLER_OPTIMIZER_H_
#define HPLACER_TF_GRAPPLER_OPTIMIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "tf/captured_step.h"

namespace hplacer {

struct Step;

inline constexpr char kOptimizerName[] = "HierarchicalPlacer";

// One optimised graph, compared with the plan that its nodes come from.
struct StepCheck {
  struct Difference {
    std::string node;
    std::string planned;
    std::string actual;
  };
  static constexpr size_t kMaxDifferences = 100;
  std::string fingerprint;
  std::vector<std::string> fetches;  // empty where they are unknown: with option bitwise
  int num_nodes = 0;
  int num_planned = 0;                  // nodes of the graph that the plan names
  std::vector<Difference> differences;  // at most kMaxDifferences
};

// Remembers a plan that was written into a graph (node names as in that graph), and marks some of
// the step's nodes with it: graphs with equal names may have different plans.
void RememberPlan(const Step& step, const std::string& fingerprint,
                  std::shared_ptr<const Assignment> assignment);

std::vector<StepCheck> StepChecks();

void AddStepCheck(StepCheck check);

void RegisterGrapplerOptimizer();

}  // namespace hplacer

#endif  // HPLACER_TF_GRAPPLER_OPTIMIZER_H_
