#include "tf/units.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/common_runtime/colocation_graph.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/control_flow.h"

namespace hplacer {
namespace {

using tensorflow::Edge;
using tensorflow::Node;

using OpSet = absl::flat_hash_set<std::string_view>;

bool IsOneOf(const OpSet& ops, const Node* node) { return ops.contains(node->type_string()); }

bool IsOneOf(const std::vector<const Node*>& nodes, const Node* node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

bool IsConvolution(const Node* node) {
  return node->type_string() == "Conv2D" || node->type_string() == "Conv3D";
}

bool IsContraction(const Node* node) {
  static const auto* const ops = new OpSet({"Conv2D", "Conv3D", "DepthwiseConv2dNative", "MatMul"});
  return IsOneOf(*ops, node);
}

bool IsBatchNorm(const Node* node) {
  static const auto* const ops =
      new OpSet({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"});
  return IsOneOf(*ops, node);
}

// Whether its results depend on the type of device by more than rounding. A batch norm saves the
// variance on a CPU, and one over its root with cuDNN, and the gradient takes what it gets for its
// own. These random ops make other draws of the same bits.
bool DependsOnDeviceType(const Node* node) {
  static const auto* const gradients =
      new OpSet({"FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"});
  static const auto* const draws =
      new OpSet({"Multinomial", "ParameterizedTruncatedNormal", "StatelessMultinomial",
                 "StatelessRandomGammaV2", "StatelessRandomGammaV3"});
  return IsBatchNorm(node) || IsOneOf(*gradients, node) || IsOneOf(*draws, node);
}

bool IsBinaryAdd(const Node* node) {
  return node->type_string() == "Add" || node->type_string() == "AddV2";
}

bool IsActivation(const Node* node) {
  static const auto* const ops =
      new OpSet({"Elu", "LeakyRelu", "Relu", "Relu6", "Sigmoid", "Tanh"});
  return IsOneOf(*ops, node);
}

// What turns a formula into an activation.
bool IsCurve(const Node* node) {
  static const auto* const ops = new OpSet({"Erf", "Erfc", "Sigmoid", "Softplus", "Tanh"});
  return IsOneOf(*ops, node);
}

bool IsScalarFormula(const Node* node) {
  static const auto* const ops =
      new OpSet({"Add", "AddV2", "Cast", "Mul", "Neg", "Pow", "RealDiv", "Square", "Sub"});
  return IsOneOf(*ops, node) || node->IsIdentity() || IsCurve(node);
}

bool ReadsDataset(const Node* node) {
  return absl::StrContains(node->type_string(), "Dataset") ||
         absl::StrContains(node->type_string(), "Iterator");
}

bool HasShapeOfInput(const Node* node) {
  static const auto* const ops = new OpSet({"Rank", "Shape", "ShapeN", "Size", "ZerosLike"});
  return IsOneOf(*ops, node);
}

const Node* Input(const Node* node, int index) {
  const Node* input = nullptr;
  return node->input_node(index, &input).ok() ? input : nullptr;
}

// A batch norm at training time computes its own statistics: it cannot join a contraction.
bool IsInferenceBatchNorm(const Node* node) {
  bool is_training = true;
  return IsBatchNorm(node) &&
         tensorflow::TryGetNodeAttr(node->attrs(), "is_training", &is_training) && !is_training;
}

// True for what a bias is read from: a variable or a constant, reshaped at most.
bool IsWeight(const Node* node) {
  static const auto* const passes = new OpSet({"Cast", "ExpandDims", "Reshape"});
  while (node != nullptr && (node->IsIdentity() || node->IsEnter() || IsOneOf(*passes, node))) {
    node = Input(node, 0);
  }
  return node != nullptr &&
         (node->IsVariable() || node->IsConstant() || node->type_string() == "ReadVariableOp");
}

// Whether XLA compiles the node, by itself or with others: the call of a function with
// jit_compile=True, or an op in a scope of XLA's.
bool IsCompiledByXla(const Node* node, const tensorflow::FunctionLibraryDefinition& library) {
  constexpr const char kCall[] = "_XlaMustCompile";
  bool is_compiled = false;
  for (const char* attribute : {kCall, "_XlaCompile"}) {
    if (tensorflow::TryGetNodeAttr(node->attrs(), attribute, &is_compiled) && is_compiled) {
      return true;
    }
  }
  if (node->attrs().Find("_xla_compile_id") != nullptr) return true;
  if (!node->IsFunctionCall()) return false;
  const tensorflow::AttrValue* function = node->attrs().Find("f");
  const auto* definition =
      library.Find(function != nullptr ? function->func().name() : node->type_string());
  if (definition == nullptr) return false;
  const auto attribute = definition->attr().find(kCall);
  return attribute != definition->attr().end() && attribute->second.b();
}

class UnitFinder {
 public:
  UnitFinder(const UnitsInput& input, Units* units)
      : input_(input), step_(*input.step), units_(units) {}

  absl::Status Run() {
    if (absl::Status status = ReadColocationGroups(); !status.ok()) return status;
    JoinControlFlow();
    JoinDatasets();
    LeaveCompiled();
    KeepDeviceTypes();
    if (absl::Status status = CollapseLoops(); !status.ok()) return status;
    JoinFusedChains();
    Finish();
    return absl::OkStatus();
  }

 private:
  absl::Status ReadColocationGroups() {
    tensorflow::ColocationGraph groups(input_.graph,
                                       tensorflow::FunctionStack(input_.function_name),
                                       input_.library, input_.device_set, input_.default_device,
                                       input_.allow_soft_placement, /*log_device_placement=*/false);
    if (absl::Status status = groups.Initialize(); !status.ok()) return status;
    absl::flat_hash_map<std::string_view, int32_t> index;
    for (size_t d = 0; d < input_.devices->size(); ++d) {
      index[(*input_.devices)[d].name] = static_cast<int32_t>(d);
    }
    absl::flat_hash_map<int, int32_t> unit_of_root;
    parent_.clear();
    unit_.resize(step_.nodes.size());
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      Node* node = step_.nodes[i];
      const int root = groups.FindAndUpdateRoot(node->id());
      const auto [it, is_new] = unit_of_root.emplace(root, static_cast<int32_t>(parent_.size()));
      unit_[i] = it->second;
      if (!is_new) continue;
      const std::vector<tensorflow::Device*>* candidates = nullptr;
      if (absl::Status status = groups.GetDevicesForNode(node, &candidates); !status.ok()) {
        return status;
      }
      parent_.push_back(it->second);
      allowed_.push_back(AllowedDevices(*candidates, index));
      first_.push_back(FirstOf(*candidates, index, allowed_.back()));
      if (allowed_.back().empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat("no device that is known here can run op ", node->name(), " (",
                         node->type_string(), ")"));
      }
    }
    return absl::OkStatus();
  }

  // The candidates that a plan may use; else the one where TensorFlow will put the group. None if
  // the session has none of them.
  std::vector<int32_t> AllowedDevices(const std::vector<tensorflow::Device*>& candidates,
                                      const absl::flat_hash_map<std::string_view, int32_t>& index) {
    std::vector<int32_t> known, allowed;
    for (const tensorflow::Device* device : candidates) {
      const auto it = index.find(device->name());
      if (it == index.end()) continue;
      known.push_back(it->second);
      if ((*input_.devices)[it->second].may_plan) allowed.push_back(it->second);
    }
    if (allowed.empty()) {
      known.resize(std::min<size_t>(known.size(), 1));
      return known;
    }
    std::sort(allowed.begin(), allowed.end());
    return allowed;
  }

  // Where TensorFlow puts a group that nothing else decides.
  static int32_t FirstOf(const std::vector<tensorflow::Device*>& candidates,
                         const absl::flat_hash_map<std::string_view, int32_t>& index,
                         const std::vector<int32_t>& allowed) {
    for (const tensorflow::Device* device : candidates) {
      const auto it = index.find(device->name());
      if (it != index.end() && absl::c_linear_search(allowed, it->second)) return it->second;
    }
    return allowed.empty() ? -1 : allowed.front();
  }

  // What XLA compiles reads variables on its own device only, and another device would compile it
  // anew. It is not placed: it goes with its variables, else where TensorFlow puts it.
  void LeaveCompiled() {
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      const Node* node = step_.nodes[i];
      if (!IsCompiledByXla(node, *input_.library)) continue;
      ++units_->compiled_by_xla;
      for (const Edge* edge : node->in_edges()) {
        if (!edge->IsControlEdge() &&
            node->input_type(edge->dst_input()) == tensorflow::DT_RESOURCE) {
          JoinNodes(node, edge->src());
        }
      }
      std::vector<int32_t>& allowed = allowed_[Find(unit_[i])];
      const int32_t first = first_[unit_[i]];
      allowed = {absl::c_linear_search(allowed, first) ? first : allowed.front()};
    }
  }

  void KeepDeviceTypes() {
    const auto type_of = [this](int32_t device) { return (*input_.devices)[device].type; };
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      if (!DependsOnDeviceType(step_.nodes[i])) continue;
      std::vector<int32_t>& allowed = allowed_[Find(unit_[i])];
      const std::string type = type_of(first_[unit_[i]]);
      if (absl::c_none_of(allowed, [&](int32_t d) { return type_of(d) == type; })) continue;
      allowed.erase(std::remove_if(allowed.begin(), allowed.end(),
                                   [&](int32_t d) { return type_of(d) != type; }),
                    allowed.end());
    }
  }

  int32_t Find(int32_t unit) {
    while (parent_[unit] != unit) unit = parent_[unit] = parent_[parent_[unit]];
    return unit;
  }

  void Join(size_t a, size_t b) {
    const int32_t x = Find(unit_[a]);
    const int32_t y = Find(unit_[b]);
    if (x == y) return;
    std::vector<int32_t> common;
    std::set_intersection(allowed_[x].begin(), allowed_[x].end(), allowed_[y].begin(),
                          allowed_[y].end(), std::back_inserter(common));
    if (common.empty()) return;
    parent_[std::max(x, y)] = std::min(x, y);
    allowed_[std::min(x, y)] = std::move(common);
  }

  // TensorFlow's partitioner moves these nodes beside a neighbour, whatever was requested.
  void JoinControlFlow() {
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      const Node* node = step_.nodes[i];
      if (node->IsSwitch() || node->IsExit()) {
        for (const Edge* edge : node->in_edges()) {
          if (!edge->IsControlEdge() && edge->dst_input() == 0) JoinNodes(node, edge->src());
        }
      } else if (node->IsNextIteration() || node->IsEnter()) {
        for (const Edge* edge : node->out_edges()) {
          if (!edge->IsControlEdge()) JoinNodes(node, edge->dst());
        }
      }
    }
  }

  // A dataset is a variant. Its cache and the seeds of its shuffling are resources of the device
  // that made it: read on another, it would have others.
  void JoinDatasets() {
    std::vector<const Node*> readers;
    std::copy_if(step_.nodes.begin(), step_.nodes.end(), std::back_inserter(readers), ReadsDataset);
    absl::flat_hash_set<const Node*> seen(readers.begin(), readers.end());
    while (!readers.empty()) {
      const Node* reader = readers.back();
      readers.pop_back();
      for (const Edge* edge : reader->in_edges()) {
        if (edge->IsControlEdge() ||
            reader->input_type(edge->dst_input()) != tensorflow::DT_VARIANT)
          continue;
        JoinNodes(reader, edge->src());
        if (seen.insert(edge->src()).second) readers.push_back(edge->src());
      }
    }
  }

  void JoinNodes(const Node* a, const Node* b) {
    if (step_.Contains(a) && step_.Contains(b)) {
      Join(step_.position[a->id()], step_.position[b->id()]);
    }
  }

  absl::Status CollapseLoops() {
    units_->frame_of.assign(step_.nodes.size(), -1);
    const bool has_loop = std::any_of(step_.nodes.begin(), step_.nodes.end(),
                                      [](const Node* node) { return node->IsEnter(); });
    if (!has_loop) return absl::OkStatus();
    std::vector<tensorflow::ControlFlowInfo> info;
    if (absl::Status status = tensorflow::BuildControlFlowInfo(input_.graph, &info); !status.ok()) {
      return status;
    }
    absl::flat_hash_map<std::string_view, std::string_view> parent_frame;
    std::set<std::string> updating;
    const auto frame_of = [&](const Node* node) -> const std::string& {
      return info[node->id()].frame_name;
    };
    for (const Node* node : step_.nodes) {
      const auto& own = info[node->id()];
      if (own.frame_name.empty() || own.parent_frame == nullptr) continue;
      parent_frame[own.frame_name] = frame_of(own.parent_frame);
      if (UpdatesVariable(node->type_string())) updating.insert(own.frame_name);
    }
    const auto outer = [&](const std::string& frame) -> std::string {
      const auto it = parent_frame.find(frame);
      return it == parent_frame.end() ? std::string() : std::string(it->second);
    };
    for (const std::string& frame : std::set<std::string>(updating)) {
      for (std::string f = frame; !f.empty(); f = outer(f)) updating.insert(f);
    }
    std::map<std::string, int32_t> collapsed;
    std::vector<std::vector<size_t>> loops;  // positions of their nodes
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      std::string root;
      for (std::string f = frame_of(step_.nodes[i]); !f.empty() && updating.count(f) == 0;
           f = outer(f)) {
        root = f;
      }
      if (root.empty()) continue;
      const auto [it, is_new] =
          collapsed.emplace(root, static_cast<int32_t>(units_->frame_names.size()));
      if (is_new) {
        units_->frame_names.push_back(root);
        loops.emplace_back();
      }
      units_->frame_of[i] = it->second;
      loops[it->second].push_back(i);
    }
    for (const std::vector<size_t>& loop : loops) JoinLoop(loop);
    return absl::OkStatus();
  }

  // Joins what may run on an accelerator, if that is most of the loop: what runs on the CPU alone
  // would take all of it there.
  void JoinLoop(const std::vector<size_t>& nodes) {
    const auto may_leave_cpu = [this](size_t i) {
      return absl::c_any_of(allowed_[Find(unit_[i])], [this](int32_t device) {
        return (*input_.devices)[device].type != tensorflow::DEVICE_CPU;
      });
    };
    std::vector<size_t> joined;
    absl::c_copy_if(nodes, std::back_inserter(joined), may_leave_cpu);
    if (2 * joined.size() < nodes.size()) joined = nodes;
    for (const size_t i : joined) Join(joined.front(), i);
    absl::flat_hash_map<int32_t, int32_t> count;
    for (const size_t i : nodes) ++count[Find(unit_[i])];
    const auto is_smaller = [&](size_t a, size_t b) {
      return count[Find(unit_[a])] < count[Find(unit_[b])];
    };
    units_->frame_position.push_back(static_cast<int32_t>(*absl::c_max_element(nodes, is_smaller)));
  }

  // The patterns in remapper.cc, but for layer normalization and embeddings. Where a gradient reads
  // what is inside of a pattern, as it does of swish and GELU, nothing is fused. Shapes and types
  // are not looked at: a chain that is not fused after all loses little.
  void JoinFusedChains() {
    for (const Node* node : step_.nodes) {
      const std::string& op = node->type_string();
      if (const Node* contraction = BiasedContraction(node)) JoinNodes(node, contraction);
      if (op == "BiasAdd") JoinSqueezed(node);
      if (const Node* biased = ResidualInput(node)) JoinNodes(node, biased);
      if (IsBinaryAdd(node)) JoinScaledBatchMatMul(node);
      if (const Node* convolution = NormedConvolution(node)) JoinNodes(node, convolution);
      if (IsActivation(node)) JoinActivation(node);
      if (op == "Mul") JoinGatedActivation(node);
      if (IsConvolution(node)) JoinPadding(node);
      if (op == "BiasAddGrad") JoinFilterGradient(node);
    }
  }

  // Whether `readers` alone read the first output of `node`. Those that ask for its shape do not
  // count, because TensorFlow folds them.
  bool IsReadWithin(const Node* node, const std::vector<const Node*>& readers) const {
    for (const Edge* edge : node->out_edges()) {
      if (edge->src_output() == 0 && step_.Contains(edge->dst()) &&
          !IsOneOf(readers, edge->dst()) && !HasShapeOfInput(edge->dst())) {
        return false;
      }
    }
    return true;
  }

  bool IsReadBy(const Node* node, const Node* reader) const { return IsReadWithin(node, {reader}); }

  // The contraction to which `node` adds a bias, else null.
  const Node* BiasedContraction(const Node* node) const {
    const bool is_bias_add = node->type_string() == "BiasAdd";
    if (!is_bias_add && !IsBinaryAdd(node)) return nullptr;
    for (int i = 0; i < (is_bias_add ? 1 : 2); ++i) {
      const Node* input = Input(node, i);
      if (input != nullptr && IsContraction(input) && IsReadBy(input, node) &&
          (is_bias_add || IsWeight(Input(node, 1 - i)))) {
        return input;
      }
    }
    return nullptr;
  }

  // The contraction with a bias to which `node` adds something else, else null.
  const Node* ResidualInput(const Node* node) const {
    if ((!IsBinaryAdd(node) && node->type_string() != "AddN") || node->num_inputs() != 2) {
      return nullptr;
    }
    for (int i = 0; i < 2; ++i) {
      const Node* input = Input(node, i);
      if (input != nullptr && BiasedContraction(input) != nullptr && IsReadBy(input, node)) {
        return input;
      }
    }
    return nullptr;
  }

  bool IsResidualOfConvolution(const Node* node) const {
    const Node* biased = ResidualInput(node);
    return biased != nullptr && IsConvolution(BiasedContraction(biased));
  }

  // The convolution that `node` normalizes, else null.
  const Node* NormedConvolution(const Node* node) const {
    if (!IsInferenceBatchNorm(node)) return nullptr;
    const Node* input = Input(node, 0);
    const bool is_fused =
        input != nullptr && input->type_string() == "Conv2D" && IsReadBy(input, node);
    return is_fused ? input : nullptr;
  }

  void JoinActivation(const Node* activation) {
    const Node* input = Input(activation, 0);
    if (input == nullptr || !IsReadBy(input, activation)) return;
    const std::string& op = activation->type_string();
    if (op == "Sigmoid" || op == "Tanh") {
      const Node* contraction = BiasedContraction(input);
      if (contraction != nullptr && contraction->type_string() == "MatMul") {
        JoinNodes(activation, input);
      }
    } else if (BiasedContraction(input) != nullptr || IsResidualOfConvolution(input) ||
               NormedConvolution(input) != nullptr || (op == "Relu" && IsBatchNorm(input))) {
      JoinNodes(activation, input);
    } else if (op == "Relu" && IsBinaryAdd(input)) {
      JoinNormedSum(activation, input);
    }
  }

  // GELU, swish, mish: `product` and all that it is made of, from one contraction with a bias.
  // Their formulas are written in many ways, so any that ends in the product and leaks nothing
  // counts.
  void JoinGatedActivation(const Node* product) {
    constexpr size_t kMaxNodes = 12;
    std::vector<const Node*> inside = {product};
    const Node* source = nullptr;
    bool has_curve = false;
    for (size_t i = 0; i < inside.size(); ++i) {
      for (const Edge* edge : inside[i]->in_edges()) {
        const Node* input = edge->src();
        if (edge->IsControlEdge() || input->IsConstant() || IsOneOf(inside, input)) continue;
        if (source == nullptr && BiasedContraction(input) != nullptr) source = input;
        if (input == source) continue;
        if (!IsScalarFormula(input) || inside.size() == kMaxNodes) return;
        has_curve = has_curve || IsCurve(input);
        inside.push_back(input);
      }
    }
    if (source == nullptr || !has_curve || !IsReadWithin(source, inside)) return;
    for (size_t i = 1; i < inside.size(); ++i) {
      if (!IsReadWithin(inside[i], inside)) return;
    }
    for (const Node* node : inside) JoinNodes(node, source);
  }

  // Batch norm + side input + Relu.
  void JoinNormedSum(const Node* relu, const Node* add) {
    for (int i = 0; i < 2; ++i) {
      const Node* norm = Input(add, i);
      if (norm == nullptr || !IsBatchNorm(norm) || !IsReadBy(norm, add)) continue;
      JoinNodes(relu, add);
      JoinNodes(add, norm);
      return;
    }
  }

  // Convolution + Squeeze + BiasAdd.
  void JoinSqueezed(const Node* bias_add) {
    const Node* squeeze = Input(bias_add, 0);
    if (squeeze == nullptr || squeeze->type_string() != "Squeeze") return;
    const Node* convolution = Input(squeeze, 0);
    if (convolution == nullptr || !IsConvolution(convolution) || !IsReadBy(squeeze, bias_add) ||
        !IsReadBy(convolution, squeeze)) {
      return;
    }
    JoinNodes(bias_add, squeeze);
    JoinNodes(squeeze, convolution);
  }

  // BatchMatMul + Mul + Add: the scores of attention.
  void JoinScaledBatchMatMul(const Node* add) {
    for (int i = 0; i < 2; ++i) {
      const Node* mul = Input(add, i);
      if (mul == nullptr || mul->type_string() != "Mul" || !IsReadBy(mul, add)) continue;
      const Node* product = Input(mul, 0);
      if (product == nullptr || product->type_string() != "BatchMatMulV2") continue;
      if (!IsReadBy(product, mul)) continue;
      JoinNodes(add, mul);
      JoinNodes(mul, product);
      return;
    }
  }

  void JoinPadding(const Node* contraction) {
    for (const Edge* edge : contraction->in_edges()) {
      if (edge->src()->type_string() == "Pad") JoinNodes(contraction, edge->src());
    }
  }

  // oneDNN computes both gradients of one output gradient in one op.
  void JoinFilterGradient(const Node* bias_gradient) {
    for (const Edge* edge : bias_gradient->in_edges()) {
      if (edge->IsControlEdge()) continue;
      for (const Edge* sibling : edge->src()->out_edges()) {
        if (sibling->src_output() == edge->src_output() &&
            absl::StrContains(sibling->dst()->type_string(), "BackpropFilter")) {
          JoinNodes(bias_gradient, sibling->dst());
        }
      }
    }
  }

  void Finish() {
    std::vector<int32_t> dense(parent_.size(), -1);
    units_->unit_of.resize(step_.nodes.size());
    units_->movable.resize(step_.nodes.size());
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      const int32_t root = Find(unit_[i]);
      if (dense[root] < 0) {
        dense[root] = static_cast<int32_t>(units_->allowed.size());
        units_->allowed.push_back(allowed_[root]);
      }
      units_->unit_of[i] = dense[root];
      const Node& node = *step_.nodes[i];
      units_->movable[i] = allowed_[root].size() > 1 && !node.IsArg() && !node.IsRetval() &&
                           !node.has_assigned_device_name();
    }
  }

  const UnitsInput& input_;
  const Step& step_;
  Units* units_;
  std::vector<int32_t> unit_;                  // by step position, before joining
  std::vector<int32_t> parent_;                // union-find over units
  std::vector<std::vector<int32_t>> allowed_;  // by unit root
  std::vector<int32_t> first_;                 // by unit before joining: TensorFlow's choice
};

}  // namespace

absl::Status FindUnits(const UnitsInput& input, Units* units) {
  return UnitFinder(input, units).Run();
}

}  // namespace hplacer
