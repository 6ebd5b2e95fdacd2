#include "tf/offline_capture.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/graph_execution_state.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/public/session_options.h"
#include "tf/capture.h"
#include "tf/default_placement.h"
#include "tf/fed_shapes.h"
#include "tf/fingerprint.h"
#include "tf/identity_n.h"
#include "tf/pass_input.h"
#include "tf/step.h"

#if __has_include("tensorflow/core/common_runtime/optimize_function_graph_utils.h")
#include "tensorflow/core/common_runtime/optimize_function_graph_utils.h"
#else
// TensorFlow 2.16 has the function, but its wheels leave out the header.
#include "tensorflow/core/common_runtime/composite_device.h"
#include "tensorflow/core/common_runtime/optimized_function_graph_info.h"
namespace tensorflow {
absl::StatusOr<OptimizedFunctionGraphInfo> OptimizeFunctionGraphOrReadFromFileCache(
    const std::string& function_name, AttrSlice attrs,
    const FunctionLibraryRuntime::InstantiateOptions& options, const DeviceSet& dev_set,
    const FunctionLibraryDefinition* input_lib_def,
    const std::vector<CompositeDevice*>& composite_devices, Device* cpu_device,
    Device* default_device, Env* env, absl::Duration caching_threshold_duration);
}  // namespace tensorflow
#endif

namespace hplacer {
namespace {

using tensorflow::Device;
using tensorflow::GraphDef;
using tensorflow::GraphOptimizationPassOptions;

// A device that can be named, but not used.
class NamedDevice : public Device {
 public:
  explicit NamedDevice(const SessionDevice& device)
      : Device(tensorflow::Env::Default(),
               BuildDeviceAttributes(device.name, tensorflow::DeviceType(device.type),
                                     tensorflow::Bytes(device.memory_bytes), {},
                                     device.description)) {}
  absl::Status Sync() override { return absl::OkStatus(); }
};

class NamedDevices {
 public:
  absl::Status Add(const std::vector<SessionDevice>& devices) {
    for (const SessionDevice& device : devices) {
      tensorflow::DeviceNameUtils::ParsedName parsed;
      if (!tensorflow::DeviceNameUtils::ParseFullName(device.name, &parsed) || !parsed.has_job ||
          !parsed.has_replica || !parsed.has_task || !parsed.has_type || !parsed.has_id) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", device.name, "' is not a full device name"));
      }
      devices_.push_back(std::make_unique<NamedDevice>(device));
      set_.AddDevice(devices_.back().get());
      if (cpu_ == nullptr && device.type == tensorflow::DEVICE_CPU) cpu_ = devices_.back().get();
    }
    if (cpu_ == nullptr) {
      return absl::InvalidArgumentError("the machine has no CPU device, which TensorFlow needs");
    }
    set_.set_client_device(cpu_);
    return absl::OkStatus();
  }

  const tensorflow::DeviceSet& set() const { return set_; }
  Device* cpu() const { return cpu_; }

 private:
  std::vector<std::unique_ptr<Device>> devices_;
  tensorflow::DeviceSet set_;
  Device* cpu_ = nullptr;
};

absl::Status KeepGraph(const GraphOptimizationPassOptions& options, const Step& step,
                       const OfflineCosts& costs, FlatGraph* flat) {
  const tensorflow::Graph& graph = **options.graph;
  GraphDef graph_def;
  graph.ToGraphDef(&graph_def);
  *graph_def.mutable_library() = options.flib_def->ReachableDefinitions(graph_def).ToProto();
  flat->graph_def = graph_def.SerializeAsString();
  for (const tensorflow::Node* node : step.nodes) {
    const auto& consumers = node->out_nodes();
    const bool is_sink = std::none_of(consumers.begin(), consumers.end(),
                                      [](const tensorflow::Node* next) { return next->IsOp(); });
    if (step.targets.empty() && is_sink) flat->targets.push_back(node->name());
  }
  for (const tensorflow::Node* node : step.targets) flat->targets.push_back(node->name());
  FedShapes fed;
  absl::Status status = fed.Resolve(step.nodes, costs.shapes, costs.batch_size);
  if (!status.ok()) return status;
  for (const tensorflow::Node* node : step.nodes) {
    for (const tensorflow::TensorShapeProto& shape : fed.Filled(*node)) {
      std::vector<int64_t>& sizes = flat->fed_shapes[node->name()].emplace_back();
      for (const auto& dim : shape.dim()) sizes.push_back(dim.size());
    }
  }
  return absl::OkStatus();
}

// What the capturing pass does for the CaptureGraph call of its thread.
class Capturing {
 public:
  Capturing(const OfflineGraph& graph, const OfflineMachine& machine, const OfflineCosts& costs,
            bool keep_graph, OfflineCapture* capture)
      : graph_(graph),
        machine_(machine),
        costs_(costs),
        keep_graph_(keep_graph),
        capture_(capture) {
    for (const SessionDevice& device : machine.devices) {
      if (device.may_plan) plannable_.push_back(device.name);
    }
    current_ = this;
  }
  ~Capturing() { current_ = nullptr; }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;

  static Capturing* Current() { return current_; }

  void Run(const GraphOptimizationPassOptions& options) {
    reached_ = true;
    status_ = Capture(options);
  }

  // `set_up` is what TensorFlow said, which only matters if it failed before the pass.
  absl::Status Result(absl::Status set_up) const {
    if (reached_) return status_;
    if (!set_up.ok()) return set_up;
    return absl::InternalError("TensorFlow set the graph up without running its passes");
  }

 private:
  absl::Status Capture(const GraphOptimizationPassOptions& options) {
    TakenApart taken_apart(options);
    FreeArguments(options.graph->get());
    Step step;
    absl::Status status =
        FindStep(**options.graph, options.is_function_graph, graph_.targets, &step);
    if (!status.ok()) return status;
    if (step.nodes.empty()) return absl::InvalidArgumentError("the graph has no ops");
    if (const std::string type = CollectiveOp(step); !type.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          type,
          " is in the graph: its replicas have their devices already, and no plan takes effect"));
    }
    capture_->label = GraphLabel(options);
    capture_->num_ops = static_cast<int>(step.nodes.size());
    const std::vector<SessionDevice> sorted = SessionDevices(options, plannable_);
    std::vector<uint64_t> node_hashes;
    capture_->fingerprint = ComputeFingerprint(
        {options.graph->get(), &step, options.flib_def, &sorted, AllowsSoftPlacement(options)},
        &node_hashes);
    const UnitsInput input = MakeUnitsInput(options, &step, &machine_.devices);
    const CostOptions costs{&machine_.kinds, costs_.batch_size, costs_.loop_trip_count,
                            costs_.shapes};
    status = CaptureStep(input, node_hashes, DefaultDevices(options, step, machine_.devices), costs,
                         &capture_->step);
    if (!status.ok() || !keep_graph_) return status;
    return KeepGraph(options, step, costs_, &capture_->flat);
  }

  // TensorFlow has assigned each argument the device that its caller named.
  void FreeArguments(tensorflow::Graph* graph) const {
    for (tensorflow::Node* node : graph->op_nodes()) {
      int32_t index = -1;
      if (node->IsArg() && tensorflow::TryGetNodeAttr(node->attrs(), "index", &index) &&
          absl::c_linear_search(graph_.free_arguments, index)) {
        const std::string device = node->assigned_device_name();
        node->set_assigned_device_name("");
        FreeCopies(node, device);
      }
    }
  }

  // Inlining a function puts a copy of each handle in front of it, on the device of the argument.
  static void FreeCopies(const tensorflow::Node* node, const std::string& device) {
    for (const tensorflow::Edge* edge : node->out_edges()) {
      tensorflow::Node* copy = edge->dst();
      if (edge->IsControlEdge() || !copy->IsIdentity() || copy->requested_device() != device) {
        continue;
      }
      copy->set_requested_device("");
      FreeCopies(copy, device);
    }
  }

  static thread_local Capturing* current_;

  const OfflineGraph& graph_;
  const OfflineMachine& machine_;
  const OfflineCosts& costs_;
  const bool keep_graph_;
  OfflineCapture* capture_;
  std::vector<std::string> plannable_;
  bool reached_ = false;
  absl::Status status_;
};

thread_local Capturing* Capturing::current_ = nullptr;

class CapturingPass : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const GraphOptimizationPassOptions& options) override {
    Capturing* const capturing = Capturing::Current();
    if (capturing == nullptr) return absl::OkStatus();
    capturing->Run(options);
    return absl::CancelledError("captured");  // placing the graph would be wasted work
  }
};

void RegisterCapturingPass() {
  static const bool registered = [] {
    auto pass = std::make_unique<CapturingPass>();
    pass->set_name("HierarchicalPlacerCapturingPass");
    tensorflow::OptimizationPassRegistry::Global()->Register(
        tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, kPhase, std::move(pass));
    return true;
  }();
  static_cast<void>(registered);
}

// Importing a graph into a session drops this attribute; a MetaGraphDef has it on every node.
void DropInferredShapes(GraphDef* graph_def) {
  for (auto& node : *graph_def->mutable_node()) node.mutable_attr()->erase("_output_shapes");
}

absl::Status SetUpSession(GraphDef graph_def, const NamedDevices& devices, bool soft_placement) {
  DropInferredShapes(&graph_def);
  tensorflow::SessionOptions session;
  session.config.set_allow_soft_placement(soft_placement);
  tensorflow::GraphExecutionStateOptions options;
  options.device_set = &devices.set();
  options.session_options = &session;
  std::unique_ptr<tensorflow::GraphExecutionState> state;
  return tensorflow::GraphExecutionState::MakeForBaseGraph(std::move(graph_def), options, &state);
}

absl::Status SetUpFunction(const GraphDef& graph_def, const OfflineGraph& graph,
                           const NamedDevices& devices) {
  const tensorflow::FunctionLibraryDefinition library(tensorflow::OpRegistry::Global(),
                                                      graph_def.library());
  tensorflow::FunctionLibraryRuntime::InstantiateOptions options;
  options.is_multi_device_function = true;
  options.input_devices = graph.argument_devices;
  options.lib_def = &library;
  options.config_proto.set_allow_soft_placement(graph.allow_soft_placement);
  options.allow_soft_placement = graph.allow_soft_placement;
  // As an eager call does.
  auto* const graph_options = options.config_proto.mutable_graph_options();
  graph_options->mutable_optimizer_options()->set_do_function_inlining(true);
  for (const ArgumentHandle& handle : graph.handles) {
    tensorflow::PartialTensorShape shape;
    if (handle.known_rank) {
      absl::Status status = tensorflow::PartialTensorShape::MakePartialShape(
          handle.shape.data(), static_cast<int>(handle.shape.size()), &shape);
      if (!status.ok()) return status;
    }
    options.input_resource_dtypes_and_shapes[handle.argument] = {
        static_cast<tensorflow::DataType>(handle.dtype), shape};
  }
  return tensorflow::OptimizeFunctionGraphOrReadFromFileCache(
             graph.function, tensorflow::AttrSlice(), options, devices.set(), &library,
             /*composite_devices=*/{}, devices.cpu(), /*default_device=*/nullptr,
             tensorflow::Env::Default(), absl::InfiniteDuration())
      .status();
}

void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw std::invalid_argument(std::string(status.message()));
}

}  // namespace

OfflineCapture CaptureGraph(std::string_view graph_def, const OfflineGraph& graph,
                            const OfflineMachine& machine, const OfflineCosts& costs,
                            bool keep_graph) {
  GraphDef parsed;
  if (graph_def.size() > INT32_MAX ||
      !parsed.ParseFromArray(graph_def.data(), static_cast<int>(graph_def.size()))) {
    throw std::invalid_argument("not a serialised GraphDef");
  }
  RegisterCapturingPass();
  NamedDevices devices;
  ThrowIfError(devices.Add(machine.devices));
  OfflineCapture capture;
  Capturing capturing(graph, machine, costs, keep_graph, &capture);
  ThrowIfError(capturing.Result(
      graph.function.empty() ? SetUpSession(std::move(parsed), devices, graph.allow_soft_placement)
                             : SetUpFunction(parsed, graph, devices)));
  return capture;
}

}  // namespace hplacer
