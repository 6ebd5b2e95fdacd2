// The Python module hplacer_optimizer._engine: cc/engine for Python, nothing else.
//
// Arrays that a Problem or a StepTrace owns are seen as read-only numpy views that keep their owner
// alive. Computation runs without the GIL. hplacer_optimizer/_engine.pyi has the types.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <istream>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "engine/bounds/lower_bound.h"
#include "engine/problem/candidates.h"
#include "engine/problem/mean_costs.h"
#include "engine/problem/problem.h"
#include "engine/schedulers/etf.h"
#include "engine/schedulers/heft.h"
#include "engine/schedulers/topo.h"
#include "engine/search/unit_clusters.h"
#include "engine/simulator/critical_chain.h"
#include "engine/simulator/memory_trace.h"
#include "engine/simulator/simulator.h"
#include "engine_local_search.h"
#include "engine_problem_file.h"
#include "engine_streams.h"

namespace py = pybind11;

namespace hplacer {
namespace {

// Without forcecast: an array that would lose information is refused.
template <typename T>
using Array = py::array_t<T, py::array::c_style>;

template <typename T>
py::array ReadOnlyView(const std::vector<T>& values, std::vector<py::ssize_t> shape,
                       const py::object& owner) {
  py::array view(py::dtype::of<T>(), std::move(shape), {}, values.data(), owner);
  view.attr("setflags")(py::arg("write") = false);
  return view;
}

template <typename T>
py::array_t<T> ToArray(const std::vector<T>& values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

// Takes the keyword arguments of Problem(...) one by one; each must be there and fit its type.
class Keywords {
 public:
  explicit Keywords(py::kwargs kwargs) : kwargs_(std::move(kwargs)) {}

  template <typename T>
  T Take(const char* name) {
    if (!kwargs_.contains(name)) {
      throw py::type_error(std::string("Problem() needs the keyword argument '") + name + "'");
    }
    const py::object value = kwargs_.attr("pop")(name);
    try {
      return value.cast<T>();
    } catch (const py::cast_error&) {
    } catch (const py::error_already_set& error) {  // numpy's word on a lossy conversion
      if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError)) throw;
    }
    throw py::type_error(std::string("Problem() argument '") + name + "' has the wrong type");
  }

  // A C-contiguous array of `columns` columns, or one-dimensional if that is 0.
  template <typename T, typename Stored = T>
  std::vector<Stored> TakeArray(const char* name, py::ssize_t columns = 0) {
    const auto array = Take<Array<T>>(name);
    const bool fits =
        columns == 0 ? array.ndim() == 1 : array.ndim() == 2 && array.shape(1) == columns;
    if (!fits) {
      throw py::value_error(std::string("Problem() argument '") + name + "' has the wrong shape");
    }
    return {array.data(), array.data() + array.size()};
  }

  std::vector<std::string> TakeStrings(const char* name) {
    return Take<std::vector<std::string>>(name);
  }

  void CheckEmpty() const {
    if (kwargs_.empty()) return;
    const auto name = py::str(kwargs_.begin()->first).cast<std::string>();
    throw py::type_error("Problem() got an unexpected keyword argument '" + name + "'");
  }

 private:
  py::kwargs kwargs_;
};

Problem MakeProblem(const py::kwargs& kwargs) {
  Keywords keywords(kwargs);
  ProblemSpec spec;
  spec.name = keywords.Take<std::string>("name");
  spec.device_kinds = keywords.TakeStrings("device_kinds");
  spec.device_names = keywords.TakeStrings("device_names");
  spec.device_kind = keywords.TakeArray<int32_t>("device_kind");
  spec.device_memory_bytes = keywords.TakeArray<int64_t>("device_memory_bytes");
  spec.device_slots = keywords.TakeArray<int32_t>("device_slots");
  spec.link_src = keywords.TakeArray<int32_t>("link_src");
  spec.link_dst = keywords.TakeArray<int32_t>("link_dst");
  spec.link_channel = keywords.TakeStrings("link_channel");
  spec.link_latency_ns = keywords.TakeArray<int64_t>("link_latency_ns");
  spec.link_bytes_per_s = keywords.TakeArray<int64_t>("link_bytes_per_s");
  spec.op_names = keywords.TakeStrings("op_names");
  spec.op_types = keywords.TakeStrings("op_types");
  const auto kinds = static_cast<py::ssize_t>(spec.device_kinds.size());
  // With no kinds at all, a [n, 0] array has no elements to take.
  if (kinds > 0) {
    spec.cost_ns = keywords.TakeArray<int64_t>("cost_ns", kinds);
  } else {
    keywords.Take<py::object>("cost_ns");
  }
  spec.output_ptr = keywords.TakeArray<int64_t>("output_ptr");
  spec.output_bytes = keywords.TakeArray<int64_t>("output_bytes");
  spec.output_alias_src = keywords.TakeArray<int32_t>("output_alias_src");
  spec.output_alias_output = keywords.TakeArray<int32_t>("output_alias_output");
  spec.temp_bytes = keywords.TakeArray<int64_t>("temp_bytes");
  spec.persistent_bytes = keywords.TakeArray<int64_t>("persistent_bytes");
  spec.edges = keywords.TakeArray<int32_t>("edges", 3);
  spec.control_edges = keywords.TakeArray<int32_t>("control_edges", 2);
  spec.allowed_ptr = keywords.TakeArray<int64_t>("allowed_ptr");
  spec.allowed_device = keywords.TakeArray<int32_t>("allowed_device");
  spec.allowed_given = keywords.TakeArray<bool, uint8_t>("allowed_given");
  spec.colocation_group = keywords.TakeArray<int32_t>("colocation_group");
  spec.colocation_group_names = keywords.TakeStrings("colocation_group_names");
  keywords.CheckEmpty();
  const py::gil_scoped_release release;
  return Problem::Build(std::move(spec));
}

// The keyword arguments that make an equal problem.
py::dict KeywordsOf(const py::object& problem) {
  py::dict keywords;
  for (const char* name : {"name",
                           "device_kinds",
                           "device_names",
                           "device_kind",
                           "device_memory_bytes",
                           "device_slots",
                           "link_src",
                           "link_dst",
                           "link_channel",
                           "link_latency_ns",
                           "link_bytes_per_s",
                           "op_names",
                           "op_types",
                           "cost_ns",
                           "output_ptr",
                           "output_bytes",
                           "output_alias_src",
                           "output_alias_output",
                           "temp_bytes",
                           "persistent_bytes",
                           "edges",
                           "control_edges",
                           "allowed_ptr",
                           "allowed_device",
                           "allowed_given",
                           "colocation_group",
                           "colocation_group_names"}) {
    keywords[name] = problem.attr(name);
  }
  return keywords;
}

Problem ReplaceArrays(const py::object& problem, const py::kwargs& changes) {
  py::kwargs keywords(KeywordsOf(problem));
  keywords.attr("update")(changes);
  return MakeProblem(keywords);
}

// For a class of values that never change: each is its own copy. What `repr` and notebooks show is
// made in Python, of what the function `describe` of problem/description.py says.
template <typename T>
void AddValueMethods(py::class_<T>* cls, const char* describe) {
  for (const auto& [name, form] : {std::pair("__repr__", "as_text"), {"_repr_html_", "as_html"}}) {
    cls->def(name, [describe, form = form](const py::object& self) {
      const auto description = py::module_::import("hplacer_optimizer.problem.description");
      const auto notebook = py::module_::import("hplacer_optimizer.support.notebook");
      return notebook.attr(form)(*description.attr(describe)(self));
    });
  }
  cls->def("__copy__", [](const py::object& self) { return self; });
  cls->def("__deepcopy__", [](const py::object& self, const py::dict&) { return self; });
}

using ProblemClass = py::class_<Problem>;

constexpr char kProblemDoc[] = R"(One training step and one machine, checked and immutable.

`load_problem` makes one of a graph or a file; the keywords of `Problem(...)` are the attributes
below but `num_*`, `units`, `candidate*` and `channel_names`. Threads may share a problem. Arrays
are read-only views. It can be pickled; as it never changes, it is its own copy.

n ops, T output tensors, U units, m devices of K kinds, L links, E data edges, C control edges,
A allowed devices. An array `*_ptr` holds offsets: what belongs to i is `ptr[i]:ptr[i + 1]`.

Attributes:
    name: of the graph, for people.
    num_ops, num_units, num_devices: n, U and m.
    device_kinds, device_names: K and m names.
    device_kind: int32[m], index into device_kinds.
    device_memory_bytes: int64[m].
    device_slots: int32[m], how many ops a device runs at once.
    link_src, link_dst: int32[L], devices.
    link_channel: L names; links of one channel take turns.
    link_latency_ns, link_bytes_per_s: int64[L].
    channel_names: distinct channels in the order in which links first name them.
    op_names, op_types: n names.
    cost_ns: int64[n, K], -1 where a kind has no kernel.
    output_ptr: int64[n + 1], the outputs of each op.
    output_bytes: int64[T].
    output_alias_src: int32[T], source op, -1: no alias, -2: persistent memory.
    output_alias_output: int32[T], output of the source op.
    temp_bytes: int64[n], held while the op runs.
    persistent_bytes: int64[n], held for the whole step, such as variables.
    edges: int32[E, 3], distinct (src, output, dst), sorted.
    control_edges: int32[C, 2], distinct (src, dst), sorted.
    allowed_ptr: int64[n + 1], the allowed devices of each op.
    allowed_device: int32[A].
    allowed_given: bool[n], False: every device with a kernel is allowed.
    colocation_group: int32[n], index into colocation_group_names, -1: none.
    colocation_group_names: names of groups; the ops of one share a device.
    units: int32[n], the unit of each op: a colocation group, or an op without one.
    candidate_ptr: int32[U + 1], the candidates of each unit.
    candidates: devices where every op of a unit is allowed and has a kernel, ascending.

Raises:
    ProblemError: a value is wrong; has the path of the faulty field, as in a problem file.
    TypeError: a keyword is missing, unknown, or of the wrong type.
    ValueError: an array has the wrong number of dimensions.

Example:
    >>> import hplacer_optimizer as hp
    >>> problem = hp.load_problem("example")
    >>> problem.num_ops, problem.num_units, problem.device_names
    (9, 7, ['/device:CPU:0', '/device:GPU:0', '/device:GPU:1'])
    >>> problem.op_names[3], dict(zip(problem.device_kinds, problem.cost_ns[3].tolist()))
    ('left/matmul', {'cpu': 3000000, 'gpu': 300000})
    >>> problem.edges[0].tolist()  # left/matmul reads output 0 of the op 0
    [0, 0, 3])";

// A read-only property that shows one array of the spec; two-dimensional if `columns` is not 0.
template <typename T>
void AddArray(ProblemClass* cls, const char* name, std::vector<T> ProblemSpec::* member,
              py::ssize_t columns = 0) {
  cls->def_property_readonly(name, [member, columns](const py::object& self) {
    const std::vector<T>& values = self.cast<const Problem&>().spec().*member;
    const auto size = static_cast<py::ssize_t>(values.size());
    if (columns == 0) return ReadOnlyView(values, {size}, self);
    return ReadOnlyView(values, {size / columns, columns}, self);
  });
}

// The same for an array that the problem derived.
void AddIndex(ProblemClass* cls, const char* name,
              const std::vector<int32_t>& (Problem::*getter)() const) {
  cls->def_property_readonly(name, [getter](const py::object& self) {
    const std::vector<int32_t>& values = (self.cast<const Problem&>().*getter)();
    return ReadOnlyView(values, {static_cast<py::ssize_t>(values.size())}, self);
  });
}

void AddStrings(ProblemClass* cls, const char* name,
                std::vector<std::string> ProblemSpec::* member) {
  cls->def_property_readonly(name,
                             [member](const Problem& problem) { return problem.spec().*member; });
}

void AddDeviceProperties(ProblemClass* cls) {
  AddStrings(cls, "device_kinds", &ProblemSpec::device_kinds);
  AddStrings(cls, "device_names", &ProblemSpec::device_names);
  AddArray(cls, "device_kind", &ProblemSpec::device_kind);
  AddArray(cls, "device_memory_bytes", &ProblemSpec::device_memory_bytes);
  AddArray(cls, "device_slots", &ProblemSpec::device_slots);
  AddArray(cls, "link_src", &ProblemSpec::link_src);
  AddArray(cls, "link_dst", &ProblemSpec::link_dst);
  AddStrings(cls, "link_channel", &ProblemSpec::link_channel);
  AddArray(cls, "link_latency_ns", &ProblemSpec::link_latency_ns);
  AddArray(cls, "link_bytes_per_s", &ProblemSpec::link_bytes_per_s);
  cls->def_property_readonly("channel_names", &Problem::channel_names);
}

void AddOpProperties(ProblemClass* cls) {
  AddStrings(cls, "op_names", &ProblemSpec::op_names);
  AddStrings(cls, "op_types", &ProblemSpec::op_types);
  cls->def_property_readonly("cost_ns", [](const py::object& self) {
    const auto& problem = self.cast<const Problem&>();
    return ReadOnlyView(problem.spec().cost_ns, {problem.num_ops(), problem.num_kinds()}, self);
  });
  AddArray(cls, "output_ptr", &ProblemSpec::output_ptr);
  AddArray(cls, "output_bytes", &ProblemSpec::output_bytes);
  AddArray(cls, "output_alias_src", &ProblemSpec::output_alias_src);
  AddArray(cls, "output_alias_output", &ProblemSpec::output_alias_output);
  AddArray(cls, "temp_bytes", &ProblemSpec::temp_bytes);
  AddArray(cls, "persistent_bytes", &ProblemSpec::persistent_bytes);
  AddArray(cls, "edges", &ProblemSpec::edges, 3);
  AddArray(cls, "control_edges", &ProblemSpec::control_edges, 2);
  AddArray(cls, "allowed_ptr", &ProblemSpec::allowed_ptr);
  AddArray(cls, "allowed_device", &ProblemSpec::allowed_device);
  cls->def_property_readonly("allowed_given", [](const py::object& self) {
    const auto& given = self.cast<const Problem&>().spec().allowed_given;
    return ReadOnlyView(given, {static_cast<py::ssize_t>(given.size())}, self).attr("view")("bool");
  });
  AddArray(cls, "colocation_group", &ProblemSpec::colocation_group);
  AddStrings(cls, "colocation_group_names", &ProblemSpec::colocation_group_names);
}

void RegisterProblem(py::module_* module) {
  ProblemClass cls(*module, "Problem", kProblemDoc);
  cls.def(py::init(&MakeProblem));
  cls.def("replace", &ReplaceArrays,
          "A problem with other values for some of the keywords; raises as `Problem(...)` does.");
  cls.def(py::pickle(&KeywordsOf, [](const py::dict& keywords) {
    return MakeProblem(py::kwargs(keywords.attr("copy")()));
  }));
  AddValueMethods(&cls, "describe_problem");
  cls.def_property_readonly("name", [](const Problem& problem) { return problem.spec().name; });
  cls.def_property_readonly("num_ops", &Problem::num_ops);
  cls.def_property_readonly("num_devices", &Problem::num_devices);
  cls.def_property_readonly("num_units", &Problem::num_units);
  AddIndex(&cls, "units", &Problem::units);
  AddIndex(&cls, "candidate_ptr", &Problem::candidate_ptr);
  AddIndex(&cls, "candidates", &Problem::candidates);
  AddDeviceProperties(&cls);
  AddOpProperties(&cls);
}

void RegisterProblemFile(py::module_* module) {
  module->def(
      "read_problem",
      [](py::object file) {
        InputBuffer buffer(std::move(file));
        std::istream input(&buffer);
        const py::gil_scoped_release release;
        return ReadProblem(&input);
      },
      py::arg("file"));
  module->def(
      "write_problem",
      [](const Problem& problem, py::object file) {
        OutputBuffer buffer(std::move(file));
        std::ostream output(&buffer);
        output.exceptions(std::ios::badbit);  // passes on what the file raised
        const py::gil_scoped_release release;
        WriteProblem(problem, &output);
        output.flush();
      },
      py::arg("problem"), py::arg("file"));
}

py::object TimesOrNone(const std::vector<int64_t>& times, bool has_trace, const py::object& owner) {
  if (!has_trace) return py::none();
  return ReadOnlyView(times, {static_cast<py::ssize_t>(times.size())}, owner);
}

// A trace with what it was made from, to look closer on demand.
struct PlacedTrace : StepTrace {
  py::object problem;
  std::vector<int32_t> placement;
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
    timeline = MemoryTimeline(problem, trace.placement);
  }
  return py::array(py::dtype::of<HeldBytes>(), static_cast<py::ssize_t>(timeline.size()),
                   timeline.data());
}

py::list PeakHolderList(const PlacedTrace& trace, int32_t device) {
  const auto& problem = trace.problem.cast<const Problem&>();
  std::vector<MemoryHolder> holders;
  {
    const py::gil_scoped_release release;
    holders = PeakHolders(problem, trace.placement, device);
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

PlacedTrace SimulateArray(const py::object& problem, const Array<int32_t>& placement) {
  if (placement.ndim() != 1) throw py::value_error("placement must have one dimension");
  const auto& simulated = problem.cast<const Problem&>();
  PlacedTrace trace;
  trace.problem = problem;
  trace.placement.assign(placement.data(), placement.data() + placement.size());
  const py::gil_scoped_release release;
  static_cast<StepTrace&>(trace) = Simulate(simulated, trace.placement);
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
        `Problem.channel_names`); int64 issue_ns, start_ns, finish_ns, bytes.
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

void RegisterStepTrace(py::module_* module) {
  PYBIND11_NUMPY_DTYPE(Transfer, src_op, output, src_device, dst_device, channel, issue_ns,
                       start_ns, finish_ns, bytes);
  py::class_<PlacedTrace> cls(*module, "StepTrace", kStepTraceDoc);
  // The simulator is pure: the same problem and placement give the same trace again.
  cls.def(py::pickle(
      [](const PlacedTrace& trace) {
        return py::make_tuple(trace.problem, ToArray(trace.placement));
      },
      [](const py::tuple& made_of) {
        return SimulateArray(made_of[0], made_of[1].cast<Array<int32_t>>());
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

py::tuple SimulateBatchArray(const Problem& problem, const Array<int32_t>& placements,
                             int threads) {
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
    SimulateBatch(problem, devices, count, threads, makespan_data, feasible_data, peak_data);
  }
  return py::make_tuple(makespan_ns, feasible, peak_bytes);
}

void RegisterSimulator(py::module_* module) {
  module->def("simulate", &SimulateArray, py::arg("problem"), py::arg("placement"));
  module->def("simulate_batch", &SimulateBatchArray, py::arg("problem"), py::arg("placements"),
              py::arg("threads"));
}

constexpr char kLowerBoundDoc[] = R"(A step time that no feasible placement beats, and why.

Attributes:
    ns: integer nanoseconds; None if it is proved that no placement is feasible.
    term: what binds, such as "critical path through decoder/MatMul" or "load of gpu"; None, too.
    terms: nanoseconds of all terms by name, by falling value.
    infeasible_because: sentences; empty unless it is proved that no placement is feasible.

Example:
    >>> import hplacer_optimizer as hp
    >>> bound = hp.lower_bound(hp.load_problem("example"))
    >>> for term, ns in bound.terms.items():
    ...     print(ns, term)
    438000 critical path through add
    431667 load of cpu and gpu
    373000 load of cpu)";

void RegisterLowerBound(py::module_* module) {
  py::class_<LowerBound> cls(*module, "LowerBound", kLowerBoundDoc);
  cls.def_property_readonly("ns", [](const LowerBound& bound) -> py::object {
    if (bound.terms.empty()) return py::none();
    return py::int_(bound.terms.front().ns);
  });
  cls.def_property_readonly("term", [](const LowerBound& bound) -> py::object {
    if (bound.terms.empty()) return py::none();
    return py::str(bound.terms.front().name);
  });
  cls.def_property_readonly("terms", [](const LowerBound& bound) {
    py::dict terms;
    for (const LowerBound::Term& term : bound.terms) terms[py::str(term.name)] = term.ns;
    return terms;
  });
  cls.def_readonly("infeasible_because", &LowerBound::infeasible_because);
  module->def("lower_bound", &BoundStep, py::arg("problem"),
              py::call_guard<py::gil_scoped_release>(),
              R"(Proves a step time that no feasible placement of the problem can beat.

Args:
    problem: the graph and the machine.

Returns:
    A LowerBound: `ns` (integer nanoseconds), `term` (the name of the term that gives it), `terms`
    (all of them by falling value) and `infeasible_because` (sentences if it is proved that no
    placement is feasible; then `ns` and `term` are None).

Example:
    >>> import hplacer_optimizer as hp
    >>> problem = hp.load_problem("example")
    >>> bound = hp.lower_bound(problem)
    >>> bound.ns, bound.term
    (438000, 'critical path through add')
    >>> hp.simulate(problem, [0, 1, 1, 1, 2, 2, 2, 2, 2]).makespan_ns == bound.ns  # it is optimal
    True)");
}

template <typename Planner>
py::array_t<int32_t> Place(Planner planner) {
  std::vector<int32_t> placement;
  {
    const py::gil_scoped_release release;
    placement = planner();
  }
  return ToArray(placement);
}

void RegisterPlanners(py::module_* module) {
  module->def("check_candidates", &CheckCandidates, py::arg("problem"));
  module->def(
      "place_etf", [](const Problem& problem) { return Place([&] { return PlaceEtf(problem); }); },
      py::arg("problem"));
  module->def(
      "place_sct",
      [](const Problem& problem, const Array<int32_t>& favourite_child) {
        const std::vector<int32_t> children(favourite_child.data(),
                                            favourite_child.data() + favourite_child.size());
        const auto is_wrong = [&](int32_t op) { return op < -1 || op >= problem.num_ops(); };
        if (children.size() != static_cast<size_t>(problem.num_ops()) ||
            std::any_of(children.begin(), children.end(), is_wrong)) {
          throw py::value_error("favourite_child must have an op or -1 for each op");
        }
        return Place([&] { return PlaceSct(problem, children); });
      },
      py::arg("problem"), py::arg("favourite_child"));
  module->def(
      "place_heft",
      [](const Problem& problem) { return Place([&] { return PlaceHeft(problem); }); },
      py::arg("problem"));
  module->def(
      "place_topo",
      [](const Problem& problem, const std::vector<int32_t>& devices) {
        return Place([&] { return PlaceTopo(problem, devices); });
      },
      py::arg("problem"), py::arg("devices"));
  module->def(
      "cluster_units",
      [](const Problem& problem, const std::vector<int32_t>& sizes, int32_t clusters_per_device) {
        if (clusters_per_device < 1) throw py::value_error("clusters_per_device must be positive");
        std::vector<std::vector<int32_t>> labels;
        {
          const py::gil_scoped_release release;
          labels = ClusterUnits(problem, sizes, clusters_per_device);
        }
        std::vector<py::array_t<int32_t>> arrays;
        for (const std::vector<int32_t>& of_size : labels) arrays.push_back(ToArray(of_size));
        return arrays;
      },
      py::arg("problem"), py::arg("sizes"), py::arg("clusters_per_device"));
  module->def(
      "critical_ops",
      [](const Problem& problem, const std::vector<int32_t>& placement) {
        const py::gil_scoped_release release;
        StepTrace trace = Simulate(problem, placement);
        const Schedule schedule{std::move(trace.start_ns), std::move(trace.finish_ns),
                                std::move(trace.transfers)};
        CriticalChain chain = FindCriticalChain(problem, placement.data(), schedule);
        chain.ops.insert(chain.ops.end(), chain.senders.begin(), chain.senders.end());
        const py::gil_scoped_acquire acquire;
        return ToArray(chain.ops);
      },
      py::arg("problem"), py::arg("placement"));
  module->def("mean_costs", [](const Problem& problem) {
    CheckCandidates(problem);
    const MeanCosts costs(problem);
    return py::make_tuple(ToArray(costs.op_ns), ToArray(costs.tensor_ns), costs.signal_ns);
  });
}

void RegisterErrors() {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    const auto set_error = [](const char* type, const std::exception& error) {
      const py::object errors = py::module_::import("hplacer_optimizer.errors");
      // A message may quote what is no UTF-8.
      const auto message = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
          error.what(), static_cast<py::ssize_t>(std::strlen(error.what())), "backslashreplace"));
      if (message) PyErr_SetObject(errors.attr(type).ptr(), message.ptr());
    };
    try {
      std::rethrow_exception(pointer);
    } catch (const ProblemError& error) {
      set_error("ProblemError", error);
    } catch (const InfeasibleError& error) {
      set_error("InfeasibleError", error);
    }
  });
}

}  // namespace
}  // namespace hplacer

PYBIND11_MODULE(_engine, module) {
  module.doc() = "The planning engine: problems, the step simulator, list schedulers.";
  hplacer::RegisterErrors();
  hplacer::RegisterProblem(&module);
  hplacer::RegisterProblemFile(&module);
  hplacer::RegisterStepTrace(&module);
  hplacer::RegisterSimulator(&module);
  hplacer::RegisterLowerBound(&module);
  hplacer::RegisterPlanners(&module);
  hplacer::RegisterLocalSearch(&module);
}
