#include "engine_simulator.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/simulator/critical_chain.h"
#include "engine/simulator/memory_trace.h"
#include "engine/simulator/simulator.h"
#include "engine_arrays.h"

namespace py = pybind11;

namespace hplacer {
namespace {

py::object TimesOrNone(const std::vector<int64_t>& times, bool has_trace, const py::object& owner) {
  if (!has_trace) return py::none();
  return ReadOnlyView(times, {static_cast<py::ssize_t>(times.size())}, owner);
}

// A trace with what it was made from, to look closer on demand.
struct PlacedTrace : StepTrace {
  py::object problem;
  std::vector<int32_t> placement;
  int32_t launch_orders;
};

std::string NameOf(const MemoryUse& use) {
  switch (use.kind) {
    case MemoryKind::kPersistent:
      return "persistent";
    case MemoryKind::kTemp:
      return "temp";
    case MemoryKind::kOutput:
      return "output " + std::to_string(use.output);
    case MemoryKind::kCopy:
      return "copy of output " + std::to_string(use.output);
  }
  return "";
}

py::array MemoryTimelineArray(const PlacedTrace& trace) {
  const auto& problem = trace.problem.cast<const Problem&>();
  std::vector<HeldBytes> timeline;
  {
    const py::gil_scoped_release release;
    timeline = MemoryTimeline(problem, trace.placement, trace.launch_order);
  }
  return py::array(py::dtype::of<HeldBytes>(), static_cast<py::ssize_t>(timeline.size()),
                   timeline.data());
}

py::list PeakHolderList(const PlacedTrace& trace, int32_t device) {
  const auto& problem = trace.problem.cast<const Problem&>();
  std::vector<MemoryHolder> holders;
  {
    const py::gil_scoped_release release;
    holders = PeakHolders(problem, trace.placement, device, trace.launch_order);
  }
  py::list rows;
  for (const MemoryHolder& holder : holders) {
    rows.append(py::make_tuple(holder.use.op, NameOf(holder.use), holder.bytes));
  }
  return rows;
}

void AddMemoryDetail(py::class_<PlacedTrace>* cls) {
  PYBIND11_NUMPY_DTYPE(HeldBytes, time_ns, device, bytes);
  cls->def("memory_timeline", &MemoryTimelineArray,
           R"(Every change of what a device holds, in order; empty without a trace.

Fields: int64 time_ns, int32 device, int64 bytes (held on that device after the change). Simulates
the step once more.)");
  cls->def("peak_holders", &PeakHolderList, py::arg("device"),
           R"(What a device holds when its peak is first reached, as (op, what, bytes).

Largest first; `what` is "persistent", "temp", "output K" or "copy of output K". Empty without a
trace. Simulates the step once more. Raises ProblemError for no such device.)");
}

PlacedTrace SimulateArray(const py::object& problem, const Array<int32_t>& placement,
                          int32_t launch_orders) {
  if (placement.ndim() != 1) throw py::value_error("placement must have one dimension");
  const auto& simulated = problem.cast<const Problem&>();
  PlacedTrace trace;
  trace.problem = problem;
  trace.placement.assign(placement.data(), placement.data() + placement.size());
  trace.launch_orders = launch_orders;
  const py::gil_scoped_release release;
  static_cast<StepTrace&>(trace) = Simulate(simulated, trace.placement, launch_orders);
  return trace;
}

constexpr char kStepTraceDoc[] = R"(One simulated step, as `simulate` returns it.

Times are nanoseconds from the start of the step; n ops, m devices. It can be pickled, as its problem
and placement, of which it is simulated again; as it never changes, it is its own copy.

Attributes:
    problem: what was simulated.
    placement: int32[n], the device of each op.
    has_trace: whether every op has a kernel on its device and every transfer a link.
    feasible: whether the placement breaks no constraint: kernels, links, memory, allowed devices,
        colocation groups.
    infeasible_because: sentences that name the op, device or link and what is wrong.
    makespan_ns: the step time; None without a trace.
    start_ns, finish_ns: int64[n]; None without a trace.
    transfers: structured array in the order (src_op, output, dst_device), with the fields int32
        src_op, output (-1: a control signal), src_device, dst_device, channel (index into
        `Problem.channel_names`); int64 issue_ns (the op has finished), sent_ns, start_ns (on the
        channel), carried_ns, finish_ns (received), bytes.
    peak_bytes: int64[m]; zeros without a trace.

Example:
    >>> import hplacer_optimizer as hp
    >>> problem = hp.load_problem("example")
    >>> trace = hp.simulate(problem, [0, 1, 1, 1, 2, 2, 2, 2, 2])
    >>> trace.makespan_ns, trace.feasible
    (438000, True)
    >>> trace.finish_ns[[3, 6]].tolist()  # of both matmuls
    [370000, 420000]
    >>> trace.peak_holders(1)[0]  # what fills the first GPU most
    (1, 'persistent', 4000000))";

constexpr int32_t kOpsPerSlice = 4'000'000;  // between two looks for Ctrl-C

py::tuple SimulateBatchArray(const Problem& problem, const Array<int32_t>& placements, int threads,
                             int32_t launch_orders) {
  if (placements.ndim() != 2 || placements.shape(1) != problem.num_ops()) {
    throw ProblemError("placements: must have shape [batch, " + std::to_string(problem.num_ops()) +
                       "]");
  }
  const py::ssize_t count = placements.shape(0);
  py::array_t<int64_t> makespan_ns(count);
  py::array_t<bool> feasible(count);
  py::array_t<int64_t> peak_bytes({count, static_cast<py::ssize_t>(problem.num_devices())});
  const int32_t* devices = placements.data();
  int64_t* makespan_data = makespan_ns.mutable_data();
  bool* feasible_data = feasible.mutable_data();
  int64_t* peak_data = peak_bytes.mutable_data();
  {
    const py::gil_scoped_release release;
    const int64_t most = std::max(1, kOpsPerSlice / std::max(1, problem.num_ops()));
    for (int64_t row = 0; row < count; row += most) {
      SimulateBatch(problem, devices + row * problem.num_ops(), std::min(most, count - row),
                    threads, makespan_data + row, feasible_data + row,
                    peak_data + row * problem.num_devices(), launch_orders);
      const py::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
  }
  return py::make_tuple(makespan_ns, feasible, peak_bytes);
}

}  // namespace

void RegisterStepTrace(py::module_* module) {
  PYBIND11_NUMPY_DTYPE(Transfer, src_op, output, src_device, dst_device, channel, issue_ns, sent_ns,
                       start_ns, carried_ns, finish_ns, bytes);
  py::class_<PlacedTrace> cls(*module, "StepTrace", kStepTraceDoc);
  // The simulator is pure: the same problem and placement give the same trace again.
  cls.def(py::pickle(
      [](const PlacedTrace& trace) {
        return py::make_tuple(trace.problem, ToArray(trace.placement), trace.launch_orders);
      },
      [](const py::tuple& made_of) {
        return SimulateArray(made_of[0], made_of[1].cast<Array<int32_t>>(),
                             made_of[2].cast<int32_t>());
      }));
  AddValueMethods(&cls, "describe_trace");
  cls.def_readonly("problem", &PlacedTrace::problem);
  cls.def_property_readonly("placement", [](const py::object& self) {
    const auto& placement = self.cast<const PlacedTrace&>().placement;
    return ReadOnlyView(placement, {static_cast<py::ssize_t>(placement.size())}, self);
  });
  cls.def_readonly("has_trace", &PlacedTrace::has_trace);
  cls.def_readonly("feasible", &PlacedTrace::feasible);
  cls.def_readonly("infeasible_because", &PlacedTrace::infeasible_because);
  cls.def_property_readonly("makespan_ns", [](const PlacedTrace& trace) -> py::object {
    if (!trace.has_trace) return py::none();
    return py::int_(trace.makespan_ns);
  });
  cls.def_property_readonly("start_ns", [](const py::object& self) {
    const auto& trace = self.cast<const PlacedTrace&>();
    return TimesOrNone(trace.start_ns, trace.has_trace, self);
  });
  cls.def_property_readonly("finish_ns", [](const py::object& self) {
    const auto& trace = self.cast<const PlacedTrace&>();
    return TimesOrNone(trace.finish_ns, trace.has_trace, self);
  });
  cls.def_property_readonly("transfers", [](const py::object& self) {
    const auto& transfers = self.cast<const PlacedTrace&>().transfers;
    return ReadOnlyView(transfers, {static_cast<py::ssize_t>(transfers.size())}, self);
  });
  cls.def_property_readonly("peak_bytes", [](const py::object& self) {
    const auto& peak_bytes = self.cast<const PlacedTrace&>().peak_bytes;
    return ReadOnlyView(peak_bytes, {static_cast<py::ssize_t>(peak_bytes.size())}, self);
  });
  AddMemoryDetail(&cls);
}

void RegisterSimulator(py::module_* module) {
  module->def("simulate", &SimulateArray, py::arg("problem"), py::arg("placement"),
              py::arg("launch_orders") = kLaunchOrders);
  module->def("simulate_batch", &SimulateBatchArray, py::arg("problem"), py::arg("placements"),
              py::arg("threads"), py::arg("launch_orders") = kLaunchOrders);
  module->attr("LAUNCH_ORDERS") = kLaunchOrders;
  module->def(
      "op_places",
      [](const Problem& problem, const Array<int32_t>& placement) {
        return ToArray(OpPlaces(problem, ToVector(placement)));
      },
      py::arg("problem"), py::arg("placement"));
}

}  // namespace hplacer
