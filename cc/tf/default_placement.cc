#include "tf/default_placement.h"

#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "tensorflow/core/common_runtime/placer.h"
#include "tf/pass_input.h"

namespace hplacer {

using tensorflow::Graph;
using tensorflow::GraphOptimizationPassOptions;
using tensorflow::Node;

absl::Status RunPlacer(const GraphOptimizationPassOptions& options, Graph* graph) {
  const bool is_named = options.is_function_graph && options.function_def != nullptr;
  tensorflow::Placer placer(
      graph, is_named ? options.function_def->signature().name() : std::string(), options.flib_def,
      options.device_set, options.is_function_graph ? options.default_function_device : nullptr,
      AllowsSoftPlacement(options), /*log_device_placement=*/false);
  return placer.Run(options);
}

std::vector<int32_t> DefaultDevices(const GraphOptimizationPassOptions& options, const Step& step,
                                    const std::vector<SessionDevice>& devices) {
  const std::unique_ptr<Graph> copy = (*options.graph)->Clone();
  if (!RunPlacer(options, copy.get()).ok()) return {};
  absl::flat_hash_map<std::string_view, int32_t> index;
  for (const SessionDevice& device : devices) {
    index.emplace(device.name, static_cast<int32_t>(index.size()));
  }
  absl::flat_hash_map<std::string_view, const Node*> node_of;
  node_of.reserve(copy->num_op_nodes());
  for (const Node* node : copy->op_nodes()) node_of.emplace(node->name(), node);
  std::vector<int32_t> found;
  found.reserve(step.nodes.size());
  for (const Node* node : step.nodes) {
    const auto placed = node_of.find(node->name());
    if (placed == node_of.end()) return {};
    const auto device = index.find(placed->second->assigned_device_name());
    if (device == index.end()) return {};
    found.push_back(device->second);
  }
  return found;
}

}  // namespace hplacer
