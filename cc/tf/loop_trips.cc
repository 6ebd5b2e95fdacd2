#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor.pb.h"
#include "tf/costs.h"

namespace hplacer {
namespace {

using tensorflow::Node;

const Node* Input(const Node* node, int index) {
  const Node* input = nullptr;
  return node->input_node(index, &input).ok() ? input : nullptr;
}

std::optional<double> ConstantScalar(const Node& node) {
  const tensorflow::AttrValue* value = node.attrs().Find("value");
  tensorflow::Tensor tensor;
  if (value == nullptr || !tensor.FromProto(value->tensor()) || tensor.NumElements() != 1) {
    return std::nullopt;
  }
  switch (tensor.dtype()) {
    case tensorflow::DT_INT32:
      return tensor.flat<int32_t>()(0);
    case tensorflow::DT_INT64:
      return static_cast<double>(tensor.flat<int64_t>()(0));
    case tensorflow::DT_FLOAT:
      return tensor.flat<float>()(0);
    default:
      return std::nullopt;
  }
}

const Node* SkipIdentity(const Node* node) {
  while (node != nullptr &&
         (node->IsIdentity() || node->IsSwitch() || node->type_string() == "Cast")) {
    node = Input(node, 0);
  }
  return node;
}

// Evaluates each node once, so that a value of many readers costs no more than one of few.
class TripCounter {
 public:
  // Trips of `counter < limit`: the counter is a loop variable with constant start and stride.
  std::optional<int64_t> TripsOfComparison(const Node* node, int depth = 0) {
    node = SkipIdentity(node);
    if (node == nullptr || node->num_inputs() != 2 || depth > kMaxDepth) return std::nullopt;
    const auto [known, is_new] = trips_.try_emplace(node);
    if (!is_new) return known->second;
    const std::optional<int64_t> trips = ComputeTrips(node, depth);
    trips_[node] = trips;  // `known` may have moved
    return trips;
  }

 private:
  // Bounds the stack; graphs compute the limits of their loops in a few steps.
  static constexpr int kMaxDepth = 1000;

  std::optional<int64_t> ComputeTrips(const Node* node, int depth) {
    const std::string& op = node->type_string();
    if (op == "LogicalAnd") {
      const auto a = TripsOfComparison(Input(node, 0), depth + 1);
      const auto b = TripsOfComparison(Input(node, 1), depth + 1);
      if (a && b) return std::min(*a, *b);
      return a ? a : b;
    }
    if (op != "Less" && op != "LessEqual") return std::nullopt;
    const Node* counter = SkipIdentity(Input(node, 0));
    if (counter == nullptr || !counter->IsMerge()) return std::nullopt;
    const std::optional<double> limit = Evaluate(Input(node, 1), depth + 1);
    const std::optional<double> start = Evaluate(Input(counter, 0), depth + 1);
    const std::optional<double> stride = StrideOf(counter, depth + 1);
    if (!limit || !start || !stride || !(*stride > 0)) return std::nullopt;
    const double distance = *limit - *start + (op == "LessEqual" ? 1 : 0);
    const double trips = std::ceil(distance / *stride);
    if (std::isnan(trips)) return std::nullopt;
    return static_cast<int64_t>(std::clamp(trips, 0.0, 1e12));
  }

  // How much a loop variable grows by each trip.
  std::optional<double> StrideOf(const Node* merge, int depth) {
    const Node* next = Input(merge, 1);
    if (next == nullptr || !next->IsNextIteration()) return std::nullopt;
    const Node* add = SkipIdentity(Input(next, 0));
    if (add == nullptr || !absl::StartsWith(add->type_string(), "Add")) return std::nullopt;
    for (int i = 0; i < 2; ++i) {
      if (SkipIdentity(Input(add, i)) == merge) return Evaluate(Input(add, 1 - i), depth + 1);
    }
    return std::nullopt;
  }

  // The last value of a loop's counter: what the loop of a gradient counts down or up to.
  std::optional<double> EvaluateExit(const Node* exit, int depth) {
    const Node* gate = Input(exit, 0);
    if (gate == nullptr || !gate->IsSwitch()) return std::nullopt;
    const Node* merge = Input(gate, 0);
    const Node* condition = Input(gate, 1);
    if (merge == nullptr || !merge->IsMerge() || condition == nullptr) return std::nullopt;
    const auto trips = TripsOfComparison(Input(condition, 0), depth + 1);
    const auto start = Evaluate(Input(merge, 0), depth + 1);
    const auto stride = StrideOf(merge, depth + 1);
    if (!trips || !start || !stride) return std::nullopt;
    return *start + *stride * static_cast<double>(*trips);
  }

  // The value of a scalar computed from constants outside of the loop; also of a loop variable
  // that the body passes on unchanged.
  std::optional<double> Evaluate(const Node* node, int depth) {
    node = SkipIdentity(node);
    if (node == nullptr || depth > kMaxDepth) return std::nullopt;
    const auto [known, is_new] = values_.try_emplace(node);
    if (!is_new) return known->second;
    const std::optional<double> value = Compute(node, depth);
    values_[node] = value;  // `known` may have moved
    return value;
  }

  std::optional<double> Compute(const Node* node, int depth) {
    const std::string& op = node->type_string();
    if (op == "Const") return ConstantScalar(*node);
    if (node->IsEnter()) return Evaluate(Input(node, 0), depth + 1);
    if (node->IsExit()) return EvaluateExit(node, depth);
    if (node->IsMerge() && node->num_inputs() == 2) {
      const Node* next = Input(node, 1);
      if (next == nullptr || !next->IsNextIteration()) return std::nullopt;
      if (SkipIdentity(Input(next, 0)) != node) return std::nullopt;  // it changes
      return Evaluate(Input(node, 0), depth + 1);
    }
    if (node->num_inputs() != 2) return std::nullopt;
    const std::optional<double> a = Evaluate(Input(node, 0), depth + 1);
    const std::optional<double> b = a ? Evaluate(Input(node, 1), depth + 1) : std::nullopt;
    if (!a || !b) return std::nullopt;
    if (absl::StartsWith(op, "Add")) return *a + *b;
    if (op == "Sub") return *a - *b;
    if (op == "Mul") return *a * *b;
    if (op == "Maximum") return std::max(*a, *b);
    if (op == "Minimum") return std::min(*a, *b);
    if (op == "FloorDiv" && *b != 0) return std::floor(*a / *b);
    return std::nullopt;
  }

  absl::flat_hash_map<const Node*, std::optional<double>> values_;
  absl::flat_hash_map<const Node*, std::optional<int64_t>> trips_;  // by comparison
};

// The frame of a LoopCond: that of the Enter behind a variable it compares.
std::string FrameOf(const Node* loop_cond) {
  std::vector<const Node*> stack = {loop_cond};
  for (int visited = 0; !stack.empty() && visited < 1000; ++visited) {
    const Node* node = stack.back();
    stack.pop_back();
    if (node->IsEnter()) {
      const tensorflow::AttrValue* name = node->attrs().Find("frame_name");
      return name == nullptr ? std::string() : name->s();
    }
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Node* input = Input(node, i);
      if (input != nullptr && !(node->IsMerge() && input->IsNextIteration())) {
        stack.push_back(input);
      }
    }
  }
  return std::string();
}

}  // namespace

std::map<std::string, int64_t> ConstantLoopTrips(const std::vector<Node*>& nodes) {
  TripCounter counter;
  std::map<std::string, int64_t> trips;
  for (const Node* node : nodes) {
    if (node->type_string() != "LoopCond") continue;
    if (const auto count = counter.TripsOfComparison(Input(node, 0))) trips[FrameOf(node)] = *count;
  }
  return trips;
}

}  // namespace hplacer
