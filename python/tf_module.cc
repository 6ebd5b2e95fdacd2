// Python bindings of the TensorFlow side: the planner's end of the bridge, and what the pass did.
//
// Includes nothing of TensorFlow: the same object file serves all releases.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tf/api.h"
#include "tf/bridge.h"
#include "tf/grappler_optimizer.h"
#include "tf/offline_capture.h"
#include "tf/op_estimate_table.h"

namespace py = pybind11;

namespace hplacer {
namespace {

// "2.21" of "2.21.1"; a pre-release is a release of its own.
std::string_view Release(std::string_view version) {
  if (version.find('-') != std::string_view::npos) return version;
  return version.substr(0, version.find('.', version.find('.') + 1));
}

// Releases that differ in their third number alone have the same class layouts.
void CheckTensorFlowVersion() {
  const std::string built = BuiltForTensorFlow();
  const std::string running = RunningTensorFlow();
  if (Release(built) == Release(running)) return;
  throw py::import_error("hplacer_optimizer was built for TensorFlow " + built +
                         ", but TensorFlow " + running + " is running");
}

template <typename T>
py::array_t<T> Copy(const std::vector<T>& values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

py::array_t<bool> Flags(const std::vector<uint8_t>& values) {
  static_assert(sizeof(bool) == sizeof(uint8_t));
  return py::array_t<bool>(static_cast<py::ssize_t>(values.size()),
                           reinterpret_cast<const bool*>(values.data()));
}

template <typename T>
py::array_t<T> CopyRows(const std::vector<T>& values, py::ssize_t columns) {
  const auto rows = columns == 0 ? 0 : static_cast<py::ssize_t>(values.size()) / columns;
  return py::array_t<T>({rows, columns}, values.data());
}

// Releases the GIL for as long as it lives, if the calling thread holds it.
std::shared_ptr<void> ReleaseGil() {
  if (!Py_IsInitialized() || !PyGILState_Check()) return nullptr;
  PyThreadState* const state = PyEval_SaveThread();
  return std::shared_ptr<void>(static_cast<void*>(state), [](void* saved) {
    // The interpreter is ending: it would end this thread by unwinding frames that forbid it.
    while (!Bridge::Get().IsOpen()) pause();
    PyEval_RestoreThread(static_cast<PyThreadState*>(saved));
  });
}

py::dict StepArrays(const CapturedStep& step) {
  py::dict arrays;
  arrays["op_names"] = step.op_names;
  arrays["op_types"] = step.op_types;
  arrays["cost_ns"] = CopyRows(step.cost_ns, step.num_kinds);
  arrays["output_ptr"] = Copy(step.output_ptr);
  arrays["output_bytes"] = Copy(step.output_bytes);
  arrays["output_alias_src"] = Copy(step.output_alias_src);
  arrays["output_alias_output"] = Copy(step.output_alias_output);
  arrays["temp_bytes"] = Copy(step.temp_bytes);
  arrays["persistent_bytes"] = Copy(step.persistent_bytes);
  arrays["same_as"] = Copy(step.same_as);
  arrays["edges"] = CopyRows(step.edges, 3);
  arrays["control_edges"] = CopyRows(step.control_edges, 2);
  arrays["allowed_ptr"] = Copy(step.allowed_ptr);
  arrays["allowed_device"] = Copy(step.allowed_device);
  arrays["order_op"] = Copy(step.order_op);
  arrays["order_input_ptr"] = Copy(step.order_input_ptr);
  arrays["order_inputs"] = CopyRows(step.order_inputs, 2);
  arrays["order_targets"] = Copy(step.order_targets);
  if (!step.default_device.empty()) arrays["default_device"] = Copy(step.default_device);
  return arrays;
}

void FinishAssigned(PlannerRequest& request, std::string names,
                    const py::array_t<uint64_t, py::array::c_style | py::array::forcecast>& hashes,
                    const py::array_t<uint32_t, py::array::c_style | py::array::forcecast>& ranks,
                    uint64_t structure,
                    const py::array_t<uint16_t, py::array::c_style | py::array::forcecast>& devices,
                    std::vector<std::string> device_names, MachineRates machine) {
  if (hashes.size() != devices.size()) throw py::value_error("hashes and devices differ in length");
  if (ranks.size() != 0 && ranks.size() != hashes.size()) {
    throw py::value_error("hashes and ranks differ in length");
  }
  auto assignment = std::make_shared<Assignment>();
  assignment->names = std::move(names);
  assignment->hashes.assign(hashes.data(), hashes.data() + hashes.size());
  assignment->ranks.assign(ranks.data(), ranks.data() + ranks.size());
  assignment->structure = structure;
  assignment->devices.assign(devices.data(), devices.data() + devices.size());
  assignment->device_names = std::move(device_names);
  PlannerRequest::Reply reply;
  reply.result = PlannerRequest::Result::kAssigned;
  reply.assignment = std::move(assignment);
  reply.machine = std::move(machine);
  request.Finish(std::move(reply));
}

void FinishMissing(PlannerRequest& request, MachineRates machine) {
  PlannerRequest::Reply reply;
  reply.result = PlannerRequest::Result::kMissing;
  reply.machine = std::move(machine);
  request.Finish(std::move(reply));
}

void FinishWithout(PlannerRequest::Result result, PlannerRequest& request, std::string reason) {
  PlannerRequest::Reply reply;
  reply.result = result;
  reply.reason = std::move(reason);
  request.Finish(std::move(reply));
}

const char* StageName(const PlannerRequest& request) {
  switch (request.stage) {
    case PlannerRequest::Stage::kLookup:
      return "lookup";
    case PlannerRequest::Stage::kPlan:
      return "plan";
    case PlannerRequest::Stage::kReport:
      return "report";
  }
  return "";
}

void AddKind(MachineRates& machine, std::string name, std::string type,
             std::map<std::string, double> flops_per_s, double memory_bytes_per_s,
             int64_t launch_overhead_ns, int64_t executor_overhead_ns, bool launches_ahead) {
  if (flops_per_s.count("float32") == 0) {
    throw py::value_error("flops_per_s of kind '" + name + "': float32 is missing");
  }
  machine.kinds.push_back({std::move(name), std::move(type), std::move(flops_per_s),
                           memory_bytes_per_s, launch_overhead_ns, executor_overhead_ns,
                           launches_ahead});
}

// What is counted for each op type of our own table, in words.
std::map<std::string, std::string> OpEstimates() {
  std::map<std::string, std::string> estimates;
  for (const std::string& op_type : EstimatedOpTypes()) {
    estimates.emplace(op_type, DescribeOpEstimate(*FindOpEstimate(op_type)));
  }
  return estimates;
}

void RegisterRecords(py::module_& m) {
  py::class_<SessionDevice>(m, "SessionDevice")
      .def(py::init([](std::string name, std::string type, std::string description,
                       int64_t memory_bytes, bool may_plan) {
             return SessionDevice{std::move(name), std::move(type), std::move(description),
                                  memory_bytes, may_plan};
           }),
           py::kw_only(), py::arg("name"), py::arg("type"), py::arg("description") = "",
           py::arg("memory_bytes") = 0, py::arg("may_plan") = true)
      .def_readonly("name", &SessionDevice::name)
      .def_readonly("type", &SessionDevice::type)
      .def_readonly("description", &SessionDevice::description)
      .def_readonly("memory_bytes", &SessionDevice::memory_bytes)
      .def_readonly("may_plan", &SessionDevice::may_plan);
  m.def("keep_one_kind", &OneKindOf);
  py::class_<MachineRates>(m, "MachineRates")
      .def(py::init<>())
      .def("add_kind", &AddKind, py::arg("name"), py::arg("type"), py::arg("flops_per_s"),
           py::arg("memory_bytes_per_s"), py::arg("launch_overhead_ns"),
           py::arg("executor_overhead_ns") = KindRates().executor_overhead_ns,
           py::arg("launches_ahead") = false)
      .def("add_device",
           [](MachineRates& self, int32_t kind) { self.device_kind.push_back(kind); });
  py::class_<PassReport>(m, "PassReport")
      .def_readonly("label", &PassReport::label)
      .def_readonly("outcome", &PassReport::outcome)
      .def_readonly("reason", &PassReport::reason)
      .def_readonly("fingerprint", &PassReport::fingerprint)
      .def_readonly("trains", &PassReport::trains)
      .def_readonly("num_ops", &PassReport::num_ops)
      .def_readonly("num_devices", &PassReport::num_devices)
      .def_readonly("num_placed", &PassReport::num_placed)
      .def_readonly("pass_s", &PassReport::pass_s)
      .def_readonly("step_s", &PassReport::step_s)
      .def_readonly("fingerprint_s", &PassReport::fingerprint_s)
      .def_readonly("lookup_s", &PassReport::lookup_s)
      .def_readonly("capture_s", &PassReport::capture_s)
      .def_readonly("plan_s", &PassReport::plan_s)
      .def_readonly("rewrite_s", &PassReport::rewrite_s);
  py::class_<StepCheck>(m, "StepCheck")
      .def_readonly("fingerprint", &StepCheck::fingerprint)
      .def_readonly("fetches", &StepCheck::fetches)
      .def_readonly("num_nodes", &StepCheck::num_nodes)
      .def_readonly("num_planned", &StepCheck::num_planned)
      .def_property_readonly("differences", [](const StepCheck& self) {
        std::vector<std::tuple<std::string, std::string, std::string>> rows;
        for (const auto& d : self.differences) rows.emplace_back(d.node, d.planned, d.actual);
        return rows;
      });
}

void RegisterRequest(py::module_& m) {
  py::class_<PlannerRequest, std::shared_ptr<PlannerRequest>>(m, "PlannerRequest")
      .def_property_readonly("stage", &StageName)
      .def_readonly("label", &PlannerRequest::label)
      .def_readonly("function", &PlannerRequest::function)
      .def_property_readonly("entry",
                             [](const PlannerRequest& self) { return py::bytes(self.entry); })
      .def_readonly("trains", &PlannerRequest::trains)
      .def_readonly("num_ops", &PlannerRequest::num_ops)
      .def_property_readonly("fingerprint",
                             [](const PlannerRequest& self) { return self.fingerprint.key; })
      .def_property_readonly("fingerprint_parts",
                             [](const PlannerRequest& self) { return self.fingerprint.parts; })
      .def_readonly("devices", &PlannerRequest::devices)
      .def_readonly("report", &PlannerRequest::report)
      .def_property_readonly("arrays",
                             [](const PlannerRequest& self) { return StepArrays(*self.step); })
      .def_property_readonly("op_signatures",
                             [](const PlannerRequest& self) { return self.step->op_signatures; })
      .def_property_readonly("is_static",
                             [](const PlannerRequest& self) { return Flags(self.step->is_static); })
      .def_property_readonly(
          "is_removed", [](const PlannerRequest& self) { return Flags(self.step->is_removed); })
      .def_property_readonly(
          "is_repeated", [](const PlannerRequest& self) { return Flags(self.step->is_repeated); })
      .def_property_readonly("units",
                             [](const PlannerRequest& self) { return Copy(self.step->unit); })
      .def_property_readonly("num_units",
                             [](const PlannerRequest& self) { return self.step->num_units; })
      .def_property_readonly("node_names",
                             [](const PlannerRequest& self) { return self.step->node_names; })
      .def_property_readonly(
          "node_hashes", [](const PlannerRequest& self) { return Copy(self.step->node_hashes); })
      .def_property_readonly("node_ranks",
                             [](const PlannerRequest& self) { return Copy(self.step->node_ranks); })
      .def_property_readonly("structure",
                             [](const PlannerRequest& self) { return self.step->structure; })
      .def_property_readonly("node_op",
                             [](const PlannerRequest& self) { return Copy(self.step->node_op); })
      .def_property_readonly("assumptions",
                             [](const PlannerRequest& self) { return self.step->assumptions; })
      .def_property_readonly("is_abandoned", &PlannerRequest::IsAbandoned)
      .def("finish_assigned", &FinishAssigned)
      .def("finish_missing", &FinishMissing)
      .def("finish_kept",
           [](PlannerRequest& request, std::string reason) {
             FinishWithout(PlannerRequest::Result::kKept, request, std::move(reason));
           })
      .def("finish_declined", [](PlannerRequest& request, std::string reason) {
        FinishWithout(PlannerRequest::Result::kDeclined, request, std::move(reason));
      });
}

void RegisterOfflineCapture(py::module_& m) {
  py::class_<OfflineCapture>(m, "OfflineCapture")
      .def_readonly("label", &OfflineCapture::label)
      .def_readonly("num_ops", &OfflineCapture::num_ops)
      .def_property_readonly("fingerprint",
                             [](const OfflineCapture& self) { return self.fingerprint.key; })
      .def_property_readonly("fingerprint_parts",
                             [](const OfflineCapture& self) { return self.fingerprint.parts; })
      .def_property_readonly("arrays",
                             [](const OfflineCapture& self) { return StepArrays(self.step); })
      .def_property_readonly("op_signatures",
                             [](const OfflineCapture& self) { return self.step.op_signatures; })
      .def_property_readonly("is_static",
                             [](const OfflineCapture& self) { return Flags(self.step.is_static); })
      .def_property_readonly("is_removed",
                             [](const OfflineCapture& self) { return Flags(self.step.is_removed); })
      .def_property_readonly(
          "is_repeated", [](const OfflineCapture& self) { return Flags(self.step.is_repeated); })
      .def_property_readonly("units",
                             [](const OfflineCapture& self) { return Copy(self.step.unit); })
      .def_property_readonly("num_units",
                             [](const OfflineCapture& self) { return self.step.num_units; })
      .def_property_readonly("node_names",
                             [](const OfflineCapture& self) { return self.step.node_names; })
      .def_property_readonly("node_hashes",
                             [](const OfflineCapture& self) { return Copy(self.step.node_hashes); })
      .def_property_readonly("node_ranks",
                             [](const OfflineCapture& self) { return Copy(self.step.node_ranks); })
      .def_property_readonly("structure",
                             [](const OfflineCapture& self) { return self.step.structure; })
      .def_property_readonly("node_op",
                             [](const OfflineCapture& self) { return Copy(self.step.node_op); })
      .def_property_readonly("assumptions",
                             [](const OfflineCapture& self) { return self.step.assumptions; })
      .def_property_readonly(
          "flat_graph", [](const OfflineCapture& self) { return py::bytes(self.flat.graph_def); })
      .def_property_readonly("targets",
                             [](const OfflineCapture& self) { return self.flat.targets; })
      .def_property_readonly("fed_shapes",
                             [](const OfflineCapture& self) { return self.flat.fed_shapes; });
  m.def(
      "capture_graph",
      [](const py::bytes& graph_def, const std::vector<SessionDevice>& devices,
         const MachineRates& rates, std::string function, std::vector<std::string> argument_devices,
         const std::vector<std::tuple<int32_t, int32_t, std::optional<std::vector<int64_t>>>>&
             handles,
         std::vector<int32_t> free_arguments, std::vector<std::string> targets,
         bool allow_soft_placement, int64_t batch_size, int64_t loop_trip_count,
         std::map<std::string, std::vector<int64_t>> shapes, bool keep_graph) {
        OfflineGraph graph{
            std::move(function),       std::move(argument_devices), {},
            std::move(free_arguments), std::move(targets),          allow_soft_placement};
        for (const auto& [argument, dtype, shape] : handles) {
          graph.handles.push_back(
              {argument, dtype, shape.has_value(), shape.value_or(std::vector<int64_t>())});
        }
        const std::string_view bytes = graph_def;
        const py::gil_scoped_release release;
        return CaptureGraph(bytes, graph, {devices, rates.kinds},
                            {batch_size, loop_trip_count, std::move(shapes)}, keep_graph);
      },
      py::arg("graph_def"), py::kw_only(), py::arg("devices"), py::arg("rates"),
      py::arg("function"), py::arg("argument_devices"), py::arg("handles"),
      py::arg("free_arguments"), py::arg("targets"), py::arg("allow_soft_placement"),
      py::arg("batch_size"), py::arg("loop_trip_count"), py::arg("shapes"),
      py::arg("keep_graph") = false);
  m.def("register_placeholder_kernels", &RegisterPlaceholderKernelsOf);
}

}  // namespace
}  // namespace hplacer

PYBIND11_MODULE(_tf, m) {
  using namespace hplacer;  // NOLINT: the module's own names
  CheckTensorFlowVersion();
  m.doc() = "The TensorFlow side of hplacer_optimizer: pass, capture, fingerprint, rewrite.";
  RegisterRecords(m);
  RegisterRequest(m);
  RegisterOfflineCapture(m);
  m.def("register_passes", [](const py::bytes& defaults) { RegisterPassesWith(defaults); });
  m.def("open", [] {
    Bridge::Get().SetWaitGuard(&ReleaseGil);
    Bridge::Get().Open();
  });
  m.def("close", [] { Bridge::Get().Close(); });
  m.def(
      "next_request", [] { return Bridge::Get().Next(); },
      py::call_guard<py::gil_scoped_release>());
  m.def("reports", [] { return Bridge::Get().Reports(); });
  m.def("step_checks", &StepChecks);
  m.def("op_estimates", &OpEstimates);
  m.def("tensorflow_cost_functions", &TensorFlowCostFunctions);
}
