#include "tf/costs.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/common_runtime/function_body.h"
#include "tensorflow/core/common_runtime/function_def_utils.h"
#include "tensorflow/core/framework/tensor_shape.pb.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/grappler/costs/graph_properties.h"
#include "tensorflow/core/grappler/costs/op_context.h"
#include "tensorflow/core/grappler/costs/op_level_cost_estimator.h"
#include "tensorflow/core/grappler/grappler_item.h"
#include "tensorflow/core/public/version.h"

namespace hplacer {
namespace {

using tensorflow::DataType;
using tensorflow::Edge;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Node;
using tensorflow::NodeDef;
using tensorflow::OpInfo;
using tensorflow::TensorShapeProto;

constexpr int64_t kDefaultBatchSize = 32;
constexpr int kMaxCallDepth = 16;
constexpr int64_t kHandleBytes = 8;

bool IsFed(const Node& node) {
  return node.IsArg() || absl::StartsWith(node.type_string(), "Placeholder") ||
         absl::StartsWith(node.type_string(), "IteratorGetNext");
}

// The declared shapes of a fed node's outputs.
std::vector<TensorShapeProto> DeclaredShapes(const Node& node) {
  std::vector<TensorShapeProto> shapes;
  const char* list = node.IsArg() ? "_output_shapes" : "output_shapes";
  if (const tensorflow::AttrValue* attr = node.attrs().Find(list)) {
    for (const auto& shape : attr->list().shape()) shapes.push_back(shape);
  } else if (const tensorflow::AttrValue* attr = node.attrs().Find("shape")) {
    shapes.push_back(attr->shape());
  }
  return shapes;
}

int64_t ChooseBatchSize(const std::vector<Node*>& nodes) {
  int64_t largest = 0;
  for (const Node* node : nodes) {
    if (!IsFed(*node)) continue;
    for (const TensorShapeProto& shape : DeclaredShapes(*node)) {
      if (shape.dim_size() > 0) largest = std::max<int64_t>(largest, shape.dim(0).size());
    }
  }
  return largest > 0 ? largest : kDefaultBatchSize;
}

// Fills unknown dimensions; true if there were any.
bool FillShape(int64_t batch_size, TensorShapeProto* shape) {
  if (shape->unknown_rank()) {
    shape->Clear();
    return true;
  }
  bool filled = false;
  for (auto& dim : *shape->mutable_dim()) {
    if (dim.size() >= 0) continue;
    dim.set_size(batch_size);
    filled = true;
  }
  return filled;
}

int64_t NumBytes(DataType dtype, const TensorShapeProto& shape) {
  const DataType base = tensorflow::RemoveRefType(dtype);
  if (base == tensorflow::DT_RESOURCE || base == tensorflow::DT_VARIANT) return kHandleBytes;
  const int64_t size = std::max(tensorflow::DataTypeSize(base), 1);
  constexpr int64_t kMax = int64_t{1} << 50;
  int64_t bytes = size;
  for (const auto& dim : shape.dim()) {
    if (dim.size() == 0) return 0;
    if (bytes > kMax / std::max<int64_t>(dim.size(), 1)) return kMax;
    bytes *= std::max<int64_t>(dim.size(), 1);
  }
  return bytes;
}

// The bytes of the variable that `node` stands for, 0 if it is none.
int64_t VariableBytes(const Node& node) {
  const std::string& op = node.type_string();
  if (op == "VarHandleOp" || op == "VariableV2" || op == "Variable") {
    const tensorflow::AttrValue* shape = node.attrs().Find("shape");
    const tensorflow::AttrValue* dtype = node.attrs().Find("dtype");
    if (shape == nullptr || dtype == nullptr || shape->shape().unknown_rank()) return 0;
    return NumBytes(dtype->type(), shape->shape());
  }
  const tensorflow::AttrValue* shapes = node.attrs().Find("_handle_shapes");
  const tensorflow::AttrValue* dtypes = node.attrs().Find("_handle_dtypes");
  if (!node.IsArg() || shapes == nullptr || dtypes == nullptr) return 0;
  int64_t bytes = 0;
  for (int i = 0; i < shapes->list().shape_size() && i < dtypes->list().type_size(); ++i) {
    if (shapes->list().shape(i).unknown_rank()) continue;
    bytes += NumBytes(dtypes->list().type(i), shapes->list().shape(i));
  }
  return bytes;
}

class CostEstimation {
 public:
  CostEstimation(const FunctionLibraryDefinition* library, const CostOptions& options)
      : library_(library), options_(options) {
    for (const KindRates& kind : *options.kinds) {
      tensorflow::DeviceProperties device;
      // The estimator reads a CPU's rates as cores * MHz and KB/s; one "core" carries the rate.
      device.set_type("CPU");
      device.set_num_cores(1);
      device.set_frequency(std::max<int64_t>(1, static_cast<int64_t>(kind.flops_per_s / 1e6)));
      device.set_bandwidth(
          std::max<int64_t>(1, static_cast<int64_t>(kind.memory_bytes_per_s / 1e3)));
      devices_.push_back(std::move(device));
    }
  }

  absl::Status Run(const std::vector<Node*>& nodes, std::vector<OpCosts>* costs) {
    if (options_.batch_size <= 0) options_.batch_size = ChooseBatchSize(nodes);
    return Estimate(nodes, /*depth=*/0, costs);
  }

  std::vector<std::string> Assumptions() const {
    std::vector<std::string> sentences;
    if (filled_feeds_ > 0) {
      sentences.push_back(absl::StrCat("unknown dimensions of ", filled_feeds_,
                                       " fed tensors taken as ", options_.batch_size,
                                       " (option batch_size)"));
    }
    if (unknown_shapes_ > 0) {
      sentences.push_back(absl::StrCat(unknown_shapes_,
                                       " tensors have no known shape: unknown dimensions taken as ",
                                       options_.batch_size, ", unknown ranks as scalars"));
    }
    return sentences;
  }

 private:
  absl::Status Estimate(const std::vector<Node*>& nodes, int depth, std::vector<OpCosts>* costs) {
    tensorflow::grappler::GrapplerItem item;
    item.id = "hplacer";
    absl::flat_hash_map<const Node*, int> index;
    bool has_calls = false;
    for (Node* node : nodes) {
      index[node] = item.graph.node_size();
      FillNode(*node, item.graph.add_node());
      for (const auto& attr : node->attrs()) has_calls |= attr.second.has_func();
    }
    for (Node* node : nodes) FillInputs(*node, index, item.graph.mutable_node(index[node]));
    if (has_calls && library_ != nullptr) {
      *item.graph.mutable_library() = library_->ReachableDefinitions(item.graph).ToProto();
    }
    item.graph.mutable_versions()->set_producer(TF_GRAPH_DEF_VERSION);
    tensorflow::grappler::GraphProperties properties(item);
    // Shapes that cannot be inferred are filled below: a failure costs accuracy only.
    properties.InferStatically(/*assume_valid_feeds=*/true).IgnoreError();
    costs->clear();
    for (int i = 0; i < item.graph.node_size(); ++i) {
      costs->push_back(EstimateNode(*nodes[i], item.graph.node(i), properties, depth));
    }
    return absl::OkStatus();
  }

  void FillNode(const Node& node, NodeDef* def) {
    *def = node.def();
    def->clear_input();
    def->clear_device();
    if (!IsFed(node)) return;
    std::vector<TensorShapeProto> shapes = DeclaredShapes(node);
    bool filled = false;
    for (TensorShapeProto& shape : shapes) filled |= FillShape(options_.batch_size, &shape);
    filled_feeds_ += filled;
    if (shapes.empty()) return;
    const bool holds_data =
        node.num_outputs() > 0 && node.output_type(0) != tensorflow::DT_RESOURCE;
    if (node.IsArg() && holds_data) {
      def->set_op("Placeholder");
      (*def->mutable_attr())["dtype"].set_type(node.output_type(0));
      *(*def->mutable_attr())["shape"].mutable_shape() = shapes[0];
    } else if (def->attr().contains("output_shapes")) {
      auto* list = (*def->mutable_attr())["output_shapes"].mutable_list();
      list->clear_shape();
      for (const TensorShapeProto& shape : shapes) *list->add_shape() = shape;
    } else if (def->attr().contains("shape")) {
      *(*def->mutable_attr())["shape"].mutable_shape() = shapes[0];
    }
  }

  static void FillInputs(const Node& node, const absl::flat_hash_map<const Node*, int>& index,
                         NodeDef* def) {
    std::vector<std::string> inputs(node.num_inputs());
    std::vector<std::string> controls;
    for (const Edge* edge : node.in_edges()) {
      if (!index.contains(edge->src())) continue;
      if (edge->IsControlEdge()) {
        controls.push_back(absl::StrCat("^", edge->src()->name()));
      } else {
        inputs[edge->dst_input()] = absl::StrCat(edge->src()->name(), ":", edge->src_output());
      }
    }
    for (std::string& input : inputs) def->add_input(std::move(input));
    for (std::string& control : controls) def->add_input(std::move(control));
  }

  OpCosts EstimateNode(const Node& node, const NodeDef& def,
                       const tensorflow::grappler::GraphProperties& properties, int depth) {
    OpCosts costs;
    costs.persistent_bytes = VariableBytes(node);
    tensorflow::grappler::OpContext context;
    context.name = def.name();
    OpInfo& info = context.op_info;
    info.set_op(def.op());
    *info.mutable_attr() = def.attr();
    if (properties.HasInputProperties(def.name())) {
      for (OpInfo::TensorProperties input : properties.GetInputProperties(def.name())) {
        FillShape(options_.batch_size, input.mutable_shape());
        *info.add_inputs() = std::move(input);
      }
    }
    std::vector<OpInfo::TensorProperties> outputs;
    if (properties.HasOutputProperties(def.name())) {
      outputs = properties.GetOutputProperties(def.name());
    }
    for (int k = 0; k < node.num_outputs(); ++k) {
      OpInfo::TensorProperties output;
      if (k < static_cast<int>(outputs.size())) {
        output = outputs[k];
      } else {
        output.mutable_shape()->set_unknown_rank(true);
      }
      output.set_dtype(node.output_type(k));
      const bool holds_data = NumBytes(node.output_type(k), TensorShapeProto()) != kHandleBytes ||
                              tensorflow::DataTypeSize(node.output_type(k)) == kHandleBytes;
      if (FillShape(options_.batch_size, output.mutable_shape()) && holds_data) ++unknown_shapes_;
      costs.output_bytes.push_back(NumBytes(node.output_type(k), output.shape()));
      *info.add_outputs() = std::move(output);
    }
    for (size_t kind = 0; kind < devices_.size(); ++kind) {
      *info.mutable_device() = devices_[kind];
      const int64_t estimate = estimator_.PredictCosts(context).execution_time.count();
      costs.cost_ns.push_back((*options_.kinds)[kind].launch_overhead_ns +
                              std::clamp<int64_t>(estimate, 0, int64_t{1} << 50));
    }
    AddCalls(def, info, depth, &costs);
    return costs;
  }

  // A call that stays a call costs the sum of its body; a functional loop its trips.
  void AddCalls(const NodeDef& def, const OpInfo& info, int depth, OpCosts* costs) {
    if (library_ == nullptr || depth >= kMaxCallDepth) return;
    const bool is_loop = absl::StrContains(def.op(), "While") || def.op() == "For";
    const int64_t trips = is_loop ? options_.loop_trip_count : 1;
    const auto add = [&](const tensorflow::NameAttrList& function) {
      const std::vector<int64_t>& body = BodyCost(function, info, depth);
      for (size_t kind = 0; kind < body.size(); ++kind) costs->cost_ns[kind] += trips * body[kind];
    };
    for (const auto& [name, value] : def.attr()) {
      if (value.has_func()) add(value.func());
      for (const auto& function : value.list().func()) add(function);
    }
    if (library_->Find(def.op()) != nullptr) {
      tensorflow::NameAttrList function;
      function.set_name(def.op());
      *function.mutable_attr() = def.attr();
      add(function);
    }
  }

  const std::vector<int64_t>& BodyCost(const tensorflow::NameAttrList& function, const OpInfo& call,
                                       int depth) {
    const auto known = bodies_.find(function.name());
    if (known != bodies_.end()) return *known->second;
    auto& total = bodies_[function.name()];
    total = std::make_unique<std::vector<int64_t>>(devices_.size(), 0);
    std::vector<int64_t>* const sum = total.get();  // `total` moves when the map grows
    const tensorflow::FunctionDef* def = library_->Find(function.name());
    std::unique_ptr<tensorflow::FunctionBody> body;
    if (def == nullptr || !tensorflow::FunctionDefToBodyHelper(
                               *def, tensorflow::AttrSlice(&function.attr()), library_, &body)
                               .ok()) {
      return *sum;
    }
    for (size_t i = 0; i < body->arg_nodes.size(); ++i) {
      if (static_cast<int>(i) >= call.inputs_size()) break;
      tensorflow::AttrValue shapes;
      *shapes.mutable_list()->add_shape() = call.inputs(static_cast<int>(i)).shape();
      body->arg_nodes[i]->ClearAttr("_output_shapes");
      body->arg_nodes[i]->AddAttr("_output_shapes", shapes);
    }
    std::vector<Node*> nodes;
    tensorflow::GetReversePostOrder(*body->graph, &nodes);
    nodes.erase(std::remove_if(nodes.begin(), nodes.end(), [](Node* n) { return !n->IsOp(); }),
                nodes.end());
    std::vector<OpCosts> costs;
    if (Estimate(nodes, depth + 1, &costs).ok()) {
      for (const OpCosts& op : costs) {
        for (size_t kind = 0; kind < sum->size(); ++kind) (*sum)[kind] += op.cost_ns[kind];
      }
    }
    return *sum;
  }

  const FunctionLibraryDefinition* library_;
  CostOptions options_;
  std::vector<tensorflow::DeviceProperties> devices_;
  tensorflow::grappler::OpLevelCostEstimator estimator_;
  absl::flat_hash_map<std::string, std::unique_ptr<std::vector<int64_t>>> bodies_;
  int64_t filled_feeds_ = 0;
  int64_t unknown_shapes_ = 0;
};

}  // namespace

absl::Status EstimateCosts(const std::vector<Node*>& nodes,
                           const FunctionLibraryDefinition* library, const CostOptions& options,
                           std::vector<OpCosts>* costs, std::vector<std::string>* assumptions) {
  CostEstimation estimation(library, options);
  absl::Status status = estimation.Run(nodes, costs);
  for (std::string& sentence : estimation.Assumptions()) assumptions->push_back(sentence);
  return status;
}

}  // namespace hplacer
