#include "tf/static_ops.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/grappler/op_types.h"
#include "tf/tensor_bytes.h"

namespace hplacer {
namespace {

using tensorflow::Node;
using TensorProperties = tensorflow::OpInfo::TensorProperties;

// Grappler folds an op whose output is larger only if its inputs are at least as large.
constexpr int64_t kMaxFoldedBytes = int64_t{100} * 1024;

bool HasFunction(const Node& node) {
  for (const auto& [name, value] : node.attrs()) {
    if (value.has_func() || value.list().func_size() > 0) return true;
  }
  return node.IsFunctionCall();
}

// Op types that Grappler leaves as they are, whatever they read.
bool IsLeftAlone(const std::string& op_type) {
  return op_type == "AccumulateNV2" || op_type == "FakeParam" ||
         absl::StartsWith(op_type, "Sparse") || absl::StrContains(op_type, "Quantized") ||
         absl::StrContains(op_type, "Reader") || absl::StrContains(op_type, "Restore") ||
         absl::StrContains(op_type, "Save");
}

// Whether Grappler can compute the op on its own, given constant inputs.
bool IsComputable(const Node& node) {
  if (node.num_inputs() == 0 || node.num_outputs() == 0) return false;
  if (node.IsControlFlow() || node.type_string() == "LoopCond") return false;
  if (IsLeftAlone(node.type_string()) || HasFunction(node)) return false;
  if (absl::c_linear_search(node.input_types(), tensorflow::DT_STRING)) return false;
  if (absl::c_any_of(node.output_types(), IsHandle)) return false;
  return tensorflow::grappler::IsFreeOfSideEffect(node.def()) &&
         tensorflow::KernelDefAvailable(tensorflow::DEVICE_CPU, node.def());
}

class StaticOps {
 public:
  StaticOps(const Step& step, const std::vector<OpCosts>& costs)
      : step_(step),
        costs_(costs),
        targets_(step.targets.begin(), step.targets.end()),
        is_static_(step.nodes.size(), false) {}

  std::vector<bool> Find() && {
    for (size_t i = 0; i < step_.nodes.size(); ++i) is_static_[i] = IsStatic(i);
    return std::move(is_static_);
  }

 private:
  bool IsStatic(size_t i) const {
    const Node& node = *step_.nodes[i];
    if (node.IsConstant()) return true;
    if (targets_.contains(&node)) return false;
    return costs_[i].follows_from_shapes || (ReadsConstantsOnly(i) && IsComputable(node));
  }

  bool ReadsConstantsOnly(size_t i) const {
    bool reads = false;
    int64_t input_bytes = 0;
    for (size_t k = step_.first_edge[i]; k < step_.first_edge[i + 1]; ++k) {
      const StepEdge& edge = step_.edges[k];
      if (edge.dst_input == tensorflow::Graph::kControlSlot) continue;
      if (!is_static_[edge.source]) return false;
      reads = true;
      input_bytes += costs_[edge.source].output_bytes[edge.src_output];
    }
    return reads && (IsCompact(*step_.nodes[i]) ||
                     absl::c_all_of(costs_[i].output_bytes, [input_bytes](int64_t bytes) {
                       return bytes <= std::max(input_bytes, kMaxFoldedBytes);
                     }));
  }

  // True for an op whose constant holds one value, however large the tensor is.
  static bool IsCompact(const Node& node) { return node.type_string() == "Fill"; }

  const Step& step_;
  const std::vector<OpCosts>& costs_;
  const absl::flat_hash_set<const Node*> targets_;
  std::vector<bool> is_static_;  // by position
};

}  // namespace

bool IsKnownShape(const tensorflow::TensorShapeProto& shape) {
  return !shape.unknown_rank() &&
         absl::c_all_of(shape.dim(), [](const auto& dim) { return dim.size() >= 0; });
}

bool MayFollowFromShapes(const std::string& op_type) {
  static const auto* const op_types = new absl::flat_hash_set<std::string_view>(
      {"OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"});
  return op_types->contains(op_type);
}

bool FollowsFromShapes(const std::string& op_type, const std::vector<TensorProperties>& inputs,
                       const std::vector<TensorProperties>& outputs) {
  if (inputs.empty() || outputs.empty()) return false;
  const bool is_filled = op_type == "OnesLike" || op_type == "ZerosLike";
  return absl::c_all_of(is_filled ? outputs : inputs, [&](const TensorProperties& tensor) {
    return op_type == "Rank" ? !tensor.shape().unknown_rank() : IsKnownShape(tensor.shape());
  });
}

std::vector<bool> FindStaticOps(const Step& step, const std::vector<OpCosts>& costs) {
  return StaticOps(step, costs).Find();
}

}  // namespace hplacer
