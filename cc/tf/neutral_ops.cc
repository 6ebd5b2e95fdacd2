#include "tf/neutral_ops.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/grappler/op_types.h"

namespace hplacer {
namespace {

using tensorflow::Node;
using tensorflow::Tensor;

constexpr int kMostSteps = 8;  // back from an op to the constants that it is computed from

// The number that all elements are.
std::optional<double> UniformValue(const Tensor& tensor) {
  const auto of = [](auto values) -> std::optional<double> {
    if (values.size() == 0) return std::nullopt;
    for (int64_t i = 1; i < values.size(); ++i) {
      if (values(i) != values(0)) return std::nullopt;
    }
    return static_cast<double>(values(0));
  };
  switch (tensor.dtype()) {
#define HPLACER_CASE(TYPE)                      \
  case tensorflow::DataTypeToEnum<TYPE>::value: \
    return of(tensor.flat<TYPE>());
    TF_CALL_REAL_NUMBER_TYPES(HPLACER_CASE)
#undef HPLACER_CASE
    default:
      return std::nullopt;
  }
}

// What an op leaves as it is: as its second input or, if they may be swapped, as any.
std::optional<double> NeutralElement(const std::string& op) {
  if (op == "Mul" || op == "MulNoNan" || op == "RealDiv" || op == "Div" || op == "TruncateDiv") {
    return 1;
  }
  if (op == "Add" || op == "AddV2" || op == "BiasAdd" || op == "Sub") return 0;
  return std::nullopt;
}

bool MaySwapInputs(const std::string& op) {
  return op == "Mul" || op == "MulNoNan" || op == "Add" || op == "AddV2";
}

// Whether an op may see its inputs change.
bool ChangesInputs(const Node& node) {
  return tensorflow::grappler::ModifiesInputsInPlace(node.def()) ||
         absl::c_any_of(node.input_types(), tensorflow::IsRefType);
}

class NeutralOps {
 public:
  NeutralOps(const Step& step, const std::vector<bool>& is_static,
             const std::vector<OpCosts>& costs)
      : step_(step), is_static_(is_static), costs_(costs) {}

  std::vector<int32_t> Find() && {
    std::vector<int32_t> found(step_.nodes.size(), kComputes);
    if (absl::c_any_of(step_.nodes, [](const Node* node) { return ChangesInputs(*node); })) {
      return found;
    }
    for (size_t i = 0; i < found.size(); ++i) {
      if (!is_static_[i]) found[i] = HandedOn(static_cast<int32_t>(i));
    }
    return found;
  }

 private:
  // The edges of a node's two inputs, in their order; none if it has another number of them.
  std::optional<std::array<StepEdge, 2>> TwoInputs(int32_t i) const {
    std::array<StepEdge, 2> inputs{};
    if (step_.nodes[i]->num_inputs() != 2) return std::nullopt;
    for (size_t k = step_.first_edge[i]; k < step_.first_edge[i + 1]; ++k) {
      const StepEdge& edge = step_.edges[k];
      if (edge.dst_input != tensorflow::Graph::kControlSlot) inputs[edge.dst_input] = edge;
    }
    return inputs;
  }

  int32_t HandedOn(int32_t i) {
    const std::string& op = step_.nodes[i]->type_string();
    const std::optional<double> neutral = NeutralElement(op);
    if (!neutral.has_value() || costs_[i].output_bytes.size() != 1) return kComputes;
    const auto inputs = TwoInputs(i);
    if (!inputs.has_value()) return kComputes;
    for (const int32_t constant : {0, 1}) {
      if (constant == 0 && !MaySwapInputs(op)) continue;
      const StepEdge& other = (*inputs)[1 - constant];
      // A larger constant makes the result larger than the other input.
      if (costs_[other.source].output_bytes[other.src_output] != costs_[i].output_bytes[0]) {
        continue;
      }
      if (ValueOf((*inputs)[constant].source, kMostSteps) == neutral) return 1 - constant;
    }
    return kComputes;
  }

  std::optional<double> ValueOf(int32_t i, int steps) {
    if (!is_static_[i] || steps == 0) return std::nullopt;
    const auto known = values_.find(i);
    if (known != values_.end()) return known->second;
    const std::optional<double> value = Compute(i, steps);
    values_[i] = value;
    return value;
  }

  std::optional<double> Compute(int32_t i, int steps) {
    const Node& node = *step_.nodes[i];
    const std::string& op = node.type_string();
    if (op == "OnesLike") return 1;
    if (op == "ZerosLike") return 0;
    if (node.IsConstant()) {
      Tensor tensor;
      const tensorflow::TensorProto* proto = nullptr;
      if (!tensorflow::GetNodeAttr(node.attrs(), "value", &proto).ok()) return std::nullopt;
      return tensor.FromProto(*proto) ? UniformValue(tensor) : std::nullopt;
    }
    const auto inputs = TwoInputs(i);
    if (!inputs.has_value()) return std::nullopt;
    const std::optional<double> y = ValueOf((*inputs)[1].source, steps - 1);
    if (op == "Fill") return y;
    const std::optional<double> x = ValueOf((*inputs)[0].source, steps - 1);
    if (!x.has_value() || !y.has_value()) return std::nullopt;
    if (op == "Add" || op == "AddV2") return *x + *y;
    if (op == "Sub") return *x - *y;
    if (op == "Mul") return *x * *y;
    if (op == "Maximum") return std::max(*x, *y);
    if (op == "Minimum") return std::min(*x, *y);
    return std::nullopt;
  }

  const Step& step_;
  const std::vector<bool>& is_static_;
  const std::vector<OpCosts>& costs_;
  absl::flat_hash_map<int32_t, std::optional<double>> values_;  // of constants, by position
};

}  // namespace

std::vector<int32_t> FindNeutralOps(const Step& step, const std::vector<bool>& is_static,
                                    const std::vector<OpCosts>& costs) {
  return NeutralOps(step, is_static, costs).Find();
}

}  // namespace hplacer
