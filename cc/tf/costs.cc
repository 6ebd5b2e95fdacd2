#include "tf/costs.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensorflow/core/common_runtime/function_body.h"
#include "tensorflow/core/common_runtime/function_def_utils.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.pb.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/grappler/costs/graph_properties.h"
#include "tensorflow/core/grappler/grappler_item.h"
#include "tensorflow/core/lib/strings/proto_serialization.h"
#include "tensorflow/core/public/version.h"
#include "tf/copied_reads.h"
#include "tf/host_tensors.h"
#include "tf/op_signature.h"
#include "tf/op_work.h"
#include "tf/static_ops.h"
#include "tf/tensor_bytes.h"

namespace hplacer {
namespace {

using tensorflow::DataType;
using tensorflow::DataTypeVector;
using tensorflow::Edge;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::GraphDef;
using tensorflow::Node;
using tensorflow::NodeDef;
using tensorflow::OpInfo;
using tensorflow::Tensor;
using tensorflow::TensorShapeProto;
using tensorflow::grappler::GraphProperties;
using tensorflow::grappler::GrapplerItem;
using Tensors = std::vector<OpInfo::TensorProperties>;

constexpr int kMaxCallDepth = 16;
constexpr int kMaxListedNames = 5;
constexpr int64_t kMaxCostNs = int64_t{1} << 50;
// Rounds of assumptions: what follows from one may lead to where the next one is needed.
constexpr int kMaxAssumedRounds = 4;
// Of a tensor whose shape is assumed, so many dimensions are taken as the batch size, others as 1:
// shapes that are computed in the step may have six unknown ones, of which few are large.
constexpr int kMaxBatchDims = 2;

bool HasFunction(const NodeDef& def, const FunctionLibraryDefinition* library) {
  for (const auto& [name, value] : def.attr()) {
    if (value.has_func() || value.list().func_size() > 0) return true;
  }
  return library != nullptr && library->Find(def.op()) != nullptr;
}

// A Reshape has as many elements as what it reads: the first unknown dimension has the rest.
void AssumeReshaped(const TensorShapeProto& from, TensorShapeProto* shape) {
  int64_t elements = NumBytes(tensorflow::DT_BOOL, from);  // of one byte each
  if (shape->unknown_rank()) {
    shape->Clear();
    shape->add_dim()->set_size(elements);
    return;
  }
  for (const auto& dim : shape->dim()) {
    if (dim.size() > 0) elements /= dim.size();
  }
  for (auto& dim : *shape->mutable_dim()) {
    if (dim.size() >= 0) continue;
    dim.set_size(elements);
    elements = 1;
  }
}

// True for scratch that one op hands to its gradient, output 5 and there input 5. Only the kernel
// knows its size; it counts as empty.
bool IsReserveSpace(const Node& node, size_t index) {
  return index == 5 && absl::StartsWith(node.type_string(), "FusedBatchNorm");
}

// The sources of initial values that are not among `nodes`, with their ancestors.
std::vector<Node*> InitialisingNodes(const std::vector<Node*>& nodes) {
  absl::flat_hash_set<const Node*> seen(nodes.begin(), nodes.end());
  std::vector<Node*> found;
  const auto add = [&](Node* node) {
    if (node->IsOp() && seen.insert(node).second) found.push_back(node);
  };
  for (const Node* node : nodes) {
    for (const Edge* edge : FindPersistentMemory(*node).initial_values) add(edge->src());
  }
  for (size_t i = 0; i < found.size(); ++i) {
    for (const Edge* edge : found[i]->in_edges()) {
      if (!edge->IsControlEdge()) add(edge->src());
    }
  }
  return found;
}

class CostEstimation {
 public:
  CostEstimation(const FunctionLibraryDefinition* library, const CostOptions& options)
      : library_(library),
        options_(options),
        has_gpu_(absl::c_any_of(*options.kinds,
                                [](const KindRates& kind) { return kind.type == "GPU"; })) {}

  absl::Status Run(const std::vector<Node*>& nodes, std::vector<OpCosts>* costs, GraphDef* graph) {
    FedShapes fed;
    if (absl::Status status = fed.Resolve(nodes, options_.shapes, options_.batch_size);
        !status.ok()) {
      return status;
    }
    options_.batch_size = fed.batch_size();
    Estimate(nodes, InitialisingNodes(nodes), /*depth=*/0, &fed, costs, graph);
    num_filled_feeds_ = fed.num_filled();
    return absl::OkStatus();
  }

  std::vector<std::string> Assumptions() const {
    std::vector<std::string> sentences;
    if (num_filled_feeds_ > 0) {
      sentences.push_back(absl::StrCat("unknown dimensions of ", num_filled_feeds_,
                                       " fed tensors taken as ", options_.batch_size,
                                       " (option batch_size)"));
    }
    if (num_unknown_ > 0) {
      std::vector<std::string> names = unknown_names_;
      std::sort(names.begin(), names.end());  // the order of nodes may change from run to run
      const size_t listed = std::min<size_t>(names.size(), kMaxListedNames);
      names.resize(listed);
      const int64_t others = num_unknown_ - static_cast<int64_t>(listed);
      sentences.push_back(
          absl::StrCat(num_unknown_, " tensors have no known shape (", absl::StrJoin(names, ", "),
                       others > 0 ? absl::StrCat(" and ", others, " more") : "",
                       "): two unknown dimensions of each taken as ", options_.batch_size,
                       ", others as 1, unknown ranks as scalars"));
    }
    return sentences;
  }

 private:
  // `others` are there for the shapes of initial values only. `graph` may be null.
  void Estimate(const std::vector<Node*>& nodes, const std::vector<Node*>& others, int depth,
                FedShapes* fed, std::vector<OpCosts>* costs, GraphDef* graph) {
    GrapplerItem item;
    item.id = "hplacer";
    std::vector<Node*> inferred = nodes;
    inferred.insert(inferred.end(), others.begin(), others.end());
    absl::flat_hash_map<const Node*, int> index;
    bool has_calls = false;
    for (Node* node : inferred) {
      index[node] = item.graph.node_size();
      NodeDef* def = item.graph.add_node();
      FillNode(*node, fed, def);
      has_calls |= HasFunction(*def, library_);
    }
    for (Node* node : inferred) FillInputs(*node, index, item.graph.mutable_node(index[node]));
    for (Node* node : inferred) FoldPermutation(*node, item.graph.mutable_node(index[node]));
    if (has_calls && library_ != nullptr) {
      *item.graph.mutable_library() = library_->ReachableDefinitions(item.graph).ToProto();
    }
    item.graph.mutable_versions()->set_producer(TF_GRAPH_DEF_VERSION);
    auto properties = InferShapes(item, /*with_values=*/true);
    CountUnknown(nodes, *properties, depth);
    bool any_assumed = false;
    for (int round = 0; round < kMaxAssumedRounds; ++round) {
      if (!AssumeWhereTheUnknownBegins(inferred, *properties, &item.graph)) break;
      any_assumed = true;
      properties = InferShapes(item, /*with_values=*/true);
    }
    costs->clear();
    for (size_t i = 0; i < nodes.size(); ++i) {
      const NodeDef& def = item.graph.node(static_cast<int>(i));
      costs->push_back(EstimateNode(*nodes[i], def, *properties, depth));
    }
    if (graph != nullptr) *graph = item.graph;
    if (depth == 0) {
      FindWhatFollowsFromShapes(inferred, *properties, any_assumed, &item, costs);
    }
  }

  // What cannot be inferred is assumed: a failure costs accuracy only.
  static std::unique_ptr<GraphProperties> InferShapes(const GrapplerItem& item, bool with_values) {
    auto properties = std::make_unique<GraphProperties>(item);
    properties
        ->InferStatically(/*assume_valid_feeds=*/true, /*aggressive_shape_inference=*/true,
                          /*include_tensor_values=*/with_values)
        .IgnoreError();
    return properties;
  }

  // Counts the tensors without a known shape, and names the ops where the unknown begins.
  void CountUnknown(const std::vector<Node*>& nodes, const GraphProperties& properties, int depth) {
    for (const Node* node : nodes) {
      num_unknown_ += NumUnknownOutputs(*node, properties);
      if (depth == 0 && BeginsTheUnknown(*node, properties)) {
        unknown_names_.push_back(node->name());
      }
    }
  }

  // Gives what nodes make where the unknown begins a shape. It is an annotation, from which
  // inference goes on. False if there are no such nodes.
  bool AssumeWhereTheUnknownBegins(const std::vector<Node*>& nodes,
                                   const GraphProperties& properties, GraphDef* graph) const {
    bool any = false;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = *nodes[i];
      if (!BeginsTheUnknown(node, properties)) continue;
      auto& attrs = *graph->mutable_node(static_cast<int>(i))->mutable_attr();
      if (attrs.contains(tensorflow::grappler::kOutputSame)) continue;
      const Tensors inputs = Inputs(node, properties);
      auto* const shapes = attrs[tensorflow::grappler::kOutputShapes].mutable_list();
      for (const OpInfo::TensorProperties& output : Outputs(node, properties)) {
        TensorShapeProto* const shape = shapes->add_shape();
        *shape = output.shape();
        AssumeOutput(node, inputs, shape);
      }
      attrs[tensorflow::grappler::kOutputSame].set_b(true);
      any = true;
    }
    return any;
  }

  void AssumeOutput(const Node& node, const Tensors& inputs, TensorShapeProto* shape) const {
    if (node.type_string() == "Reshape") {
      AssumeReshaped(inputs[0].shape(), shape);
    } else if (node.type_string() == "Transpose") {
      *shape = inputs[0].shape();  // in some order
    } else {
      FillShape(options_.batch_size, shape, kMaxBatchDims);
    }
  }

  // Of what a node reads or makes.
  static int64_t NumUnknown(const Node& node, const DataTypeVector& types,
                            const Tensors& properties) {
    int64_t unknown = 0;
    for (size_t k = 0; k < types.size(); ++k) {
      if (IsHandle(types[k]) || IsReserveSpace(node, k)) continue;
      unknown += k >= properties.size() || !IsKnownShape(properties[k].shape());
    }
    return unknown;
  }

  static int64_t NumUnknownOutputs(const Node& node, const GraphProperties& properties) {
    return NumUnknown(node, node.output_types(), properties.GetOutputProperties(node.name()));
  }

  // Whether inference knows what the node reads, and not what it makes.
  static bool BeginsTheUnknown(const Node& node, const GraphProperties& properties) {
    return NumUnknownOutputs(node, properties) > 0 &&
           NumUnknown(node, node.input_types(), properties.GetInputProperties(node.name())) == 0;
  }

  // `properties` are those of `item`. If shapes of it are assumed, fed ones or `any_assumed` of
  // others, all are inferred once more, with what TensorFlow knows.
  static void FindWhatFollowsFromShapes(const std::vector<Node*>& nodes,
                                        const GraphProperties& properties, bool any_assumed,
                                        GrapplerItem* item, std::vector<OpCosts>* costs) {
    std::vector<size_t> candidates;
    for (size_t i = 0; i < costs->size(); ++i) {
      if (MayFollowFromShapes(nodes[i]->type_string())) candidates.push_back(i);
    }
    if (candidates.empty()) return;
    const auto mark = [&](const GraphProperties& known) {
      for (const size_t i : candidates) {
        const std::string& name = nodes[i]->name();
        if (!known.HasInputProperties(name) || !known.HasOutputProperties(name)) continue;
        (*costs)[i].follows_from_shapes =
            FollowsFromShapes(nodes[i]->type_string(), known.GetInputProperties(name),
                              known.GetOutputProperties(name));
      }
    };
    if (!ForgetFedShapes(nodes, &item->graph) && !any_assumed) {
      mark(properties);
      return;
    }
    for (NodeDef& def : *item->graph.mutable_node()) {
      def.mutable_attr()->erase(tensorflow::grappler::kOutputSame);
    }
    mark(*InferShapes(*item, /*with_values=*/false));
  }

  // Gives fed nodes the shapes that TensorFlow knows. False if all of these are complete.
  static bool ForgetFedShapes(const std::vector<Node*>& nodes, GraphDef* graph) {
    bool any = false;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const std::vector<TensorShapeProto> shapes = KnownFedShapes(*nodes[i]);
      if (absl::c_all_of(shapes, IsKnownShape)) continue;
      SetFedShapes(*nodes[i], shapes, graph->mutable_node(static_cast<int>(i)));
      any = true;
    }
    return any;
  }

  static void FillNode(const Node& node, FedShapes* fed, NodeDef* def) {
    *def = node.def();
    def->clear_input();
    def->clear_device();
    const std::vector<TensorShapeProto> shapes = fed->Filled(node);
    if (!shapes.empty()) SetFedShapes(node, shapes, def);
  }

  static void SetFedShapes(const Node& node, const std::vector<TensorShapeProto>& shapes,
                           NodeDef* def) {
    auto& attrs = *def->mutable_attr();
    if (node.IsArg()) {
      def->set_op("Placeholder");
      attrs["dtype"].set_type(node.output_type(0));
      *attrs["shape"].mutable_shape() = shapes[0];
    } else if (attrs.contains("output_shapes")) {
      auto* list = attrs["output_shapes"].mutable_list();
      list->clear_shape();
      for (const TensorShapeProto& shape : shapes) *list->add_shape() = shape;
    } else {
      *attrs["shape"].mutable_shape() = shapes[0];
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

  // The gradient of a transpose reads the inverse of its permutation. Inference computes no such
  // values, and would not know the gradient's shape.
  static void FoldPermutation(const Node& node, NodeDef* def) {
    if (node.type_string() != "InvertPermutation") return;
    const Node* source = nullptr;
    if (!node.input_node(0, &source).ok() || !source->IsConstant()) return;
    const tensorflow::TensorProto* proto = nullptr;
    Tensor permutation;
    if (!tensorflow::GetNodeAttr(source->attrs(), "value", &proto).ok() ||
        !permutation.FromProto(*proto)) {
      return;
    }
    Tensor inverse(permutation.dtype(), permutation.shape());
    if (!(permutation.dtype() == tensorflow::DT_INT32 ? Invert<int32_t>(permutation, &inverse)
                                                      : Invert<int64_t>(permutation, &inverse))) {
      return;
    }
    def->set_op("Const");
    def->clear_input();
    def->clear_attr();
    (*def->mutable_attr())["dtype"].set_type(inverse.dtype());
    inverse.AsProtoTensorContent((*def->mutable_attr())["value"].mutable_tensor());
  }

  // False if it is no permutation.
  template <typename T>
  static bool Invert(const Tensor& permutation, Tensor* inverse) {
    if (permutation.dtype() != tensorflow::DataTypeToEnum<T>::value || permutation.dims() != 1) {
      return false;
    }
    const auto from = permutation.flat<T>();
    auto to = inverse->flat<T>();
    to.setConstant(-1);
    for (int64_t i = 0; i < from.size(); ++i) {
      if (from(i) < 0 || from(i) >= from.size() || to(from(i)) >= 0) return false;
      to(from(i)) = static_cast<T>(i);
    }
    return true;
  }

  OpCosts EstimateNode(const Node& node, const NodeDef& def, const GraphProperties& properties,
                       int depth) {
    OpCosts costs;
    costs.persistent_bytes = PersistentBytes(node, properties);
    tensorflow::grappler::OpContext context;
    context.name = def.name();
    OpInfo& info = context.op_info;
    info.set_op(def.op());
    *info.mutable_attr() = def.attr();
    AddTensors(node, properties, &info);
    for (const auto& output : info.outputs()) {
      costs.output_bytes.push_back(NumBytes(output.dtype(), output.shape()));
    }
    costs.signature = OpSignature(info);
    if (def.op() == "Reshape" || def.op() == "BroadcastTo") {
      costs.keeps_shape =
          absl::c_equal(info.inputs(0).shape().dim(), info.outputs(0).shape().dim(),
                        [](const auto& a, const auto& b) { return a.size() == b.size(); });
    }
    if (HasFunction(def, library_)) {
      // The call itself moves no data.
      SetWork({/*flops=*/0, /*bytes=*/0, /*kernels=*/0}, &costs);
      AddCalls(def, info, depth, &costs);
      costs.signature.clear();
    } else if (IsCopiedRead(node)) {
      OpWork copy;
      for (const int64_t bytes : costs.output_bytes) copy.bytes += 2.0 * static_cast<double>(bytes);
      SetWork(copy, &costs);
      costs.signature.clear();
    } else {
      OpWork work = estimator_.Estimate(std::move(context));
      if (has_gpu_ && work.kernels > 0 && !work.is_host_only) {
        work.is_host_only = IsOnHostOfGpu(node);
      }
      SetWork(work, &costs);
    }
    return costs;
  }

  // Adds inputs and outputs. What is unknown even now, in loops that lead back to it, is assumed.
  void AddTensors(const Node& node, const GraphProperties& properties, OpInfo* info) const {
    const auto add = [this](Tensors tensors, auto* added) {
      for (OpInfo::TensorProperties& tensor : tensors) {
        FillShape(options_.batch_size, tensor.mutable_shape(), kMaxBatchDims);
        *added->Add() = std::move(tensor);
      }
    };
    add(Inputs(node, properties), info->mutable_inputs());
    add(Outputs(node, properties), info->mutable_outputs());
  }

  static Tensors Inputs(const Node& node, const GraphProperties& properties) {
    return Completed(node, node.input_types(), properties.GetInputProperties(node.name()));
  }

  static Tensors Outputs(const Node& node, const GraphProperties& properties) {
    return Completed(node, node.output_types(), properties.GetOutputProperties(node.name()));
  }

  // One of each type, of unknown rank where inference has none.
  static Tensors Completed(const Node& node, const DataTypeVector& types, Tensors tensors) {
    const size_t known = tensors.size();
    tensors.resize(types.size());
    for (size_t k = 0; k < types.size(); ++k) {
      if (IsReserveSpace(node, k)) {
        tensors[k].mutable_shape()->Clear();
        tensors[k].mutable_shape()->add_dim()->set_size(0);
      } else if (k >= known) {
        tensors[k].mutable_shape()->set_unknown_rank(true);
      }
      tensors[k].set_dtype(types[k]);
    }
    return tensors;
  }

  int64_t PersistentBytes(const Node& node, const GraphProperties& properties) const {
    const PersistentMemory memory = FindPersistentMemory(node);
    int64_t bytes = memory.bytes;
    for (const Edge* edge : memory.initial_values) {
      const std::string& source = edge->src()->name();
      if (!properties.HasOutputProperties(source)) continue;
      const auto& outputs = properties.GetOutputProperties(source);
      if (edge->src_output() >= static_cast<int>(outputs.size())) continue;
      const auto& value = outputs[edge->src_output()];
      if (!value.shape().unknown_rank()) bytes += NumBytes(value.dtype(), value.shape());
    }
    return bytes;
  }

  void SetWork(const OpWork& work, OpCosts* costs) const {
    for (const KindRates& kind : *options_.kinds) costs->cost_ns.push_back(WorkTimeNs(work, kind));
    costs->launches = NumLaunches(work);
  }

  // A call that stays a call costs the sum of its body; a functional loop its trips.
  void AddCalls(const NodeDef& def, const OpInfo& info, int depth, OpCosts* costs) {
    if (library_ == nullptr || depth >= kMaxCallDepth) return;
    const bool is_loop = absl::StrContains(def.op(), "While") || def.op() == "For";
    const int64_t trips = is_loop ? options_.loop_trip_count : 1;
    const auto add = [&](const tensorflow::NameAttrList& function) {
      AddTrips(BodyCost(function, info, depth), trips, costs);
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

  // A body costs the same at each call of the same attributes and shapes.
  static std::string BodyKey(const tensorflow::NameAttrList& function, const OpInfo& call) {
    std::map<std::string, std::string> attributes;  // in an order
    for (const auto& [name, value] : function.attr()) {
      if (absl::StartsWith(name, "_")) continue;  // of the node
      tensorflow::SerializeToStringDeterministic(value, &attributes[name]);
    }
    std::string key = function.name();
    const auto append = [&key](const std::string& part) {
      absl::StrAppend(&key, "|", part.size(), ":", part);
    };
    for (const auto& [name, value] : attributes) {
      append(name);
      append(value);
    }
    for (const auto& input : call.inputs()) append(input.shape().SerializeAsString());
    return key;
  }

  // Its costs and launches.
  const OpCosts& BodyCost(const tensorflow::NameAttrList& function, const OpInfo& call, int depth) {
    const auto [known, is_new] = bodies_.try_emplace(BodyKey(function, call));
    if (!is_new) return *known->second;
    // Empty before its end, for a body that calls itself. The map may move its pointers meanwhile.
    known->second = std::make_unique<OpCosts>();
    OpCosts* const sum = known->second.get();
    sum->cost_ns.assign(options_.kinds->size(), 0);
    sum->launches = 0;
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
    FedShapes fed;
    if (!fed.Resolve(nodes, {}, options_.batch_size).ok()) return *sum;
    std::vector<OpCosts> costs;
    Estimate(nodes, {}, depth + 1, &fed, &costs, /*graph=*/nullptr);
    for (const OpCosts& op : costs) AddTrips(op, /*trips=*/1, sum);
    return *sum;
  }

  const FunctionLibraryDefinition* library_;
  CostOptions options_;
  const bool has_gpu_;
  WorkEstimator estimator_;
  absl::flat_hash_map<std::string, std::unique_ptr<OpCosts>> bodies_;  // by BodyKey
  int64_t num_filled_feeds_ = 0;
  int64_t num_unknown_ = 0;
  std::vector<std::string> unknown_names_;  // where the unknown begins
};

}  // namespace

void AddTrips(const OpCosts& body, int64_t trips, OpCosts* sum) {
  const auto add = [trips](int64_t one, int64_t* all) {
    *all = one > (kMaxCostNs - *all) / trips ? kMaxCostNs : *all + trips * one;
  };
  for (size_t kind = 0; kind < body.cost_ns.size(); ++kind) {
    add(body.cost_ns[kind], &sum->cost_ns[kind]);
  }
  add(body.launches, &sum->launches);
}

int64_t CostOnKind(const OpCosts& costs, size_t kind, const KindRates& rates) {
  const int64_t cost_ns = costs.cost_ns[kind];
  if (!rates.launches_ahead || costs.launches < 2) return cost_ns;
  const int64_t further = costs.launches - 1, each_ns = rates.launch_overhead_ns;
  return each_ns > 0 && further > kMaxCostNs / each_ns ? kMaxCostNs
                                                       : std::max(cost_ns, further * each_ns);
}

absl::Status EstimateCosts(const std::vector<Node*>& nodes,
                           const FunctionLibraryDefinition* library, const CostOptions& options,
                           std::vector<OpCosts>* costs, GraphDef* graph,
                           std::vector<std::string>* assumptions) {
  CostEstimation estimation(library, options);
  absl::Status status = estimation.Run(nodes, costs, graph);
  for (std::string& sentence : estimation.Assumptions()) assumptions->push_back(sentence);
  return status;
}

}  // namespace hplacer
