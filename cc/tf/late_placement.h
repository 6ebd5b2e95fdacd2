// Devices that take effect after TensorFlow has rewritten the graph (option `bitwise`).
//
// Grappler rewrites sums, products and constants only where the ops are on one device. So devices
// that are requested before it decide what it rewrites, and a rewritten sum rounds differently.
// Here Grappler sees the graph as if there were no plan:
//
//   PRE_PLACEMENT          LatePlacement: a copy of the graph is placed with the plan's requests,
//                          which gives the device of every node; the graph itself stays as it is
//   Placer, Grappler       work as they do without a plan
//   POST_REWRITE_FOR_EXEC  every node that is left gets its device, and nodes that Grappler made
//                          go with what feeds them, else with what they feed
//
// A node never moves to a device of another type than TensorFlow's own placement gave it: it might
// have no kernel there. The variables of a session live where this file put them, while TensorFlow
// remembers its own placement of them; when the graph of the session grows, the pass works with
// the former.
#ifndef HPLACER_TF_LATE_PLACEMENT_H_
#define HPLACER_TF_LATE_PLACEMENT_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tf/assignment.h"

namespace hplacer {

struct LatePlan;

// One graph at PRE_PLACEMENT. While this lives, its variables are assigned to where they are.
class LatePlacement {
 public:
  explicit LatePlacement(const tensorflow::GraphOptimizationPassOptions& options);
  // Whatever became of the plan, the variables of a session stay where they are.
  ~LatePlacement();
  LatePlacement(const LatePlacement&) = delete;
  LatePlacement& operator=(const LatePlacement&) = delete;

  // Has `resolved` take effect after Grappler. An error of TensorFlow's placer leaves all as it is.
  absl::Status Place(const NodeDevices& resolved, const std::string& fingerprint);

 private:
  void GiveBack() noexcept;  // the variables that were assigned

  const tensorflow::GraphOptimizationPassOptions& options_;
  std::shared_ptr<const LatePlan> earlier_;  // of a session whose graph has grown
  std::vector<std::pair<tensorflow::Node*, int>> own_devices_;  // by index of an assigned name
  bool placed_ = false;
};

// Drops what was left for a graph or session of the past with these options' address; before any
// other use of `options` at PRE_PLACEMENT.
void ForgetEarlierPlans(const tensorflow::GraphOptimizationPassOptions& options);

void RegisterLatePlacementPass();

}  // namespace hplacer

#endif  // HPLACER_TF_LATE_PLACEMENT_H_
