#include "engine_problem.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <istream>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/problem/problem.h"
#include "engine_arrays.h"
#include "engine_problem_file.h"
#include "engine_streams.h"

namespace py = pybind11;

namespace hplacer {
namespace {

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
    if constexpr (std::is_same_v<T, std::string>) return Utf8(value, name);
    try {
      return value.cast<T>();
    } catch (const py::cast_error&) {
    } catch (const py::error_already_set& error) {  // numpy's word on a lossy conversion
      if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError)) throw;
    }
    Refuse(name);
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

  // Empty if the argument is None or missing.
  template <typename T>
  std::vector<T> TakeOptionalArray(const char* name, py::ssize_t columns = 0) {
    if (kwargs_.contains(name) && !kwargs_[name].is_none()) return TakeArray<T>(name, columns);
    kwargs_.attr("pop")(name, py::none());
    return {};
  }

  std::vector<std::string> TakeStrings(const char* name) {
    const auto values = Take<py::sequence>(name);
    if (PyUnicode_Check(values.ptr())) Refuse(name);
    std::vector<std::string> strings(values.size());
    for (size_t i = 0; i < strings.size(); ++i) strings[i] = Utf8(py::object(values[i]), name);
    return strings;
  }

  template <typename T>
  T TakeOptional(const char* name, T otherwise) {
    return kwargs_.contains(name) ? Take<T>(name) : otherwise;
  }

  std::vector<std::string> TakeOptionalStrings(const char* name) {
    if (kwargs_.contains(name) && !kwargs_[name].is_none()) return TakeStrings(name);
    kwargs_.attr("pop")(name, py::none());
    return {};
  }

  void CheckEmpty() const {
    if (kwargs_.empty()) return;
    const auto name = py::str(kwargs_.begin()->first).cast<std::string>();
    throw py::type_error("Problem() got an unexpected keyword argument '" + name + "'");
  }

 private:
  [[noreturn]] static void Refuse(const char* name) {
    throw py::type_error(std::string("Problem() argument '") + name + "' has the wrong type");
  }

  // Of a str alone: bytes need not be UTF-8.
  static std::string Utf8(py::handle value, const char* name) {
    Py_ssize_t size = 0;
    const char* text =
        PyUnicode_Check(value.ptr()) ? PyUnicode_AsUTF8AndSize(value.ptr(), &size) : nullptr;
    if (text == nullptr) {
      PyErr_Clear();
      Refuse(name);
    }
    return {text, static_cast<size_t>(size)};
  }

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
  spec.device_cores = keywords.TakeOptionalStrings("device_cores");
  spec.device_start_ns = keywords.TakeOptionalArray<int64_t>("device_start_ns");
  spec.device_turn_ns = keywords.TakeOptionalArray<int64_t>("device_turn_ns");
  spec.device_cold_ns = keywords.TakeOptionalArray<int64_t>("device_cold_ns");
  spec.device_launch_ns = keywords.TakeOptionalArray<int64_t>("device_launch_ns");
  spec.launch_seed = keywords.TakeOptional<int64_t>("launch_seed", 0);
  spec.inter_op_threads = keywords.TakeOptional<int32_t>("inter_op_threads", kInterOpThreads);
  spec.link_src = keywords.TakeArray<int32_t>("link_src");
  spec.link_dst = keywords.TakeArray<int32_t>("link_dst");
  spec.link_channel = keywords.TakeStrings("link_channel");
  spec.link_latency_ns = keywords.TakeArray<int64_t>("link_latency_ns");
  spec.link_bytes_per_s = keywords.TakeArray<int64_t>("link_bytes_per_s");
  spec.link_send_ns = keywords.TakeOptionalArray<int64_t>("link_send_ns");
  spec.link_send_bytes_per_s = keywords.TakeOptionalArray<int64_t>("link_send_bytes_per_s");
  spec.link_receive_ns = keywords.TakeOptionalArray<int64_t>("link_receive_ns");
  spec.link_receive_bytes_per_s = keywords.TakeOptionalArray<int64_t>("link_receive_bytes_per_s");
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
  spec.same_as = keywords.TakeOptionalArray<int32_t>("same_as");
  spec.default_device = keywords.TakeOptionalArray<int32_t>("default_device");
  spec.order_op = keywords.TakeOptionalArray<int32_t>("order_op");
  spec.order_input_ptr = keywords.TakeOptionalArray<int64_t>("order_input_ptr");
  spec.order_inputs = keywords.TakeOptionalArray<int32_t>("order_inputs", 2);
  spec.order_targets = keywords.TakeOptionalArray<int32_t>("order_targets");
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
                           "device_cores",
                           "device_start_ns",
                           "device_turn_ns",
                           "device_cold_ns",
                           "device_launch_ns",
                           "launch_seed",
                           "inter_op_threads",
                           "link_src",
                           "link_dst",
                           "link_channel",
                           "link_latency_ns",
                           "link_bytes_per_s",
                           "link_send_ns",
                           "link_send_bytes_per_s",
                           "link_receive_ns",
                           "link_receive_bytes_per_s",
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
                           "colocation_group_names",
                           "same_as",
                           "default_device",
                           "order_op",
                           "order_input_ptr",
                           "order_inputs",
                           "order_targets"}) {
    keywords[name] = problem.attr(name);
  }
  return keywords;
}

Problem ReplaceArrays(const py::object& problem, const py::kwargs& changes) {
  py::kwargs keywords(KeywordsOf(problem));
  keywords.attr("update")(changes);
  return MakeProblem(keywords);
}

using ProblemClass = py::class_<Problem>;

constexpr char kProblemDoc[] = R"(One training step and one machine, checked and immutable.

`load_problem` makes one of a graph or a file; the keywords of `Problem(...)` are the attributes
below but `num_*`, `units`, `candidate*`, `device_pool` and `channel_names`. Threads may share a problem. Arrays
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
    device_cores: m names; devices of one name share their slots, as the CPU devices of a process
        do. Empty, the default: the device has its own.
    device_start_ns: int64[m], no op starts on a device before; 0 by default.
    device_turn_ns: int64[m], how long the work of a transfer waits at most for a slot, for each op
        that runs or is ready there; equal for devices that share their slots; 0 by default.
    device_cold_ns: int64[m], how much longer the work of a transfer takes at most after ops, which
        filled the caches; equal for devices that share their slots; 0 by default.
    device_launch_ns: int64[m], what it takes the host to launch an op there, ahead of the time
        when it starts; 0 by default: ops are not launched ahead.
    launch_seed: draws the order of launches where TensorFlow's own differs from start to start;
        0 by default. Problem files do not have it.
    inter_op_threads: how many threads run or launch ops at once, of the host of each task;
        16 by default.
    device_pool: int32[m], equal for devices that share their slots; numbered from 0.
    link_src, link_dst: int32[L], devices.
    link_channel: L names; links of one channel take turns.
    link_latency_ns, link_bytes_per_s: int64[L], of the channel.
    link_send_ns, link_send_bytes_per_s: int64[L], how long the work of a transfer takes a slot of
        its source before it occupies the channel, and at which rate this works on its bytes; a rate
        of 0: bytes are no work. All 0 by default.
    link_receive_ns, link_receive_bytes_per_s: int64[L], the same of its destination, afterwards.
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
    same_as: int32[n], the first op that is the same constant, which TensorFlow merges where both are
        on one device, -1: none; -1 by default.
    default_device: int32[n], where TensorFlow's own Placer would put each op, or None, the default,
        if that is not known.
    order_op: int32[N], the ops that N nodes of the graph are parts of, by the names of nodes. The
        order in which TensorFlow has the ops follows from these nodes and the placement. Empty, the
        default: it is that of the ops' numbers.
    order_input_ptr: int64[N + 1], the inputs of each node.
    order_inputs: int32[I, 2], (node, output that is read), or -1 as output of what is only waited
        for, which comes last.
    order_targets: int32[F], nodes that are fetched.
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

// The same for an array that may be left out: None then.
void AddOptionalArray(ProblemClass* cls, const char* name,
                      std::vector<int32_t> ProblemSpec::* member) {
  cls->def_property_readonly(name, [member](const py::object& self) -> py::object {
    const std::vector<int32_t>& values = self.cast<const Problem&>().spec().*member;
    if (values.empty()) return py::none();
    return ReadOnlyView(values, {static_cast<py::ssize_t>(values.size())}, self);
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
  AddStrings(cls, "device_cores", &ProblemSpec::device_cores);
  AddArray(cls, "device_start_ns", &ProblemSpec::device_start_ns);
  AddArray(cls, "device_turn_ns", &ProblemSpec::device_turn_ns);
  AddArray(cls, "device_cold_ns", &ProblemSpec::device_cold_ns);
  AddArray(cls, "device_launch_ns", &ProblemSpec::device_launch_ns);
  cls->def_property_readonly("launch_seed",
                             [](const Problem& problem) { return problem.spec().launch_seed; });
  cls->def_property_readonly(
      "inter_op_threads", [](const Problem& problem) { return problem.spec().inter_op_threads; });
  AddIndex(cls, "device_pool", &Problem::device_pool);
  AddArray(cls, "link_src", &ProblemSpec::link_src);
  AddArray(cls, "link_dst", &ProblemSpec::link_dst);
  AddStrings(cls, "link_channel", &ProblemSpec::link_channel);
  AddArray(cls, "link_latency_ns", &ProblemSpec::link_latency_ns);
  AddArray(cls, "link_bytes_per_s", &ProblemSpec::link_bytes_per_s);
  AddArray(cls, "link_send_ns", &ProblemSpec::link_send_ns);
  AddArray(cls, "link_send_bytes_per_s", &ProblemSpec::link_send_bytes_per_s);
  AddArray(cls, "link_receive_ns", &ProblemSpec::link_receive_ns);
  AddArray(cls, "link_receive_bytes_per_s", &ProblemSpec::link_receive_bytes_per_s);
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
  AddArray(cls, "same_as", &ProblemSpec::same_as);
  AddOptionalArray(cls, "default_device", &ProblemSpec::default_device);
  AddArray(cls, "order_op", &ProblemSpec::order_op);
  AddArray(cls, "order_input_ptr", &ProblemSpec::order_input_ptr);
  AddArray(cls, "order_inputs", &ProblemSpec::order_inputs, 2);
  AddArray(cls, "order_targets", &ProblemSpec::order_targets);
}

}  // namespace

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

}  // namespace hplacer
