// The Python module hplacer_optimizer._engine: cc/engine for Python, nothing else.
//
// Arrays that a Problem or a StepTrace owns are seen as read-only numpy views that keep their owner
// alive. Computation runs without the GIL. hplacer_optimizer/_engine.pyi has the types.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <exception>
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
#include "engine_arrays.h"
#include "engine_learning.h"
#include "engine_problem.h"
#include "engine_search.h"
#include "engine_simulator.h"

namespace py = pybind11;

namespace hplacer {
namespace {

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
  hplacer::RegisterSearches(&module);
  hplacer::RegisterLearning(&module);
}
