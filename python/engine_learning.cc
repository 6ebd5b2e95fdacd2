#include "engine_learning.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/learning/table_policy.h"
#include "engine/problem/problem.h"
#include "engine/simulator/placed_tails.h"
#include "engine_arrays.h"

namespace py = pybind11;

namespace hplacer {
namespace {

template <typename T>
std::vector<T> ToVector(const Array<T>& array) {
  return std::vector<T>(array.data(), array.data() + array.size());
}

Array<double> Matrix(const std::vector<double>& values, int32_t columns) {
  const py::ssize_t rows = columns == 0 ? 0 : static_cast<py::ssize_t>(values.size()) / columns;
  Array<double> array({rows, static_cast<py::ssize_t>(columns)});
  std::copy(values.begin(), values.end(), array.mutable_data());
  return array;
}

py::tuple Tables(const LogitTable& table) {
  return py::make_tuple(Matrix(table.logits, table.columns), Matrix(table.mean, table.columns),
                        Matrix(table.square, table.columns));
}

LogitTable ToTable(const py::tuple& arrays) {
  LogitTable table;
  const auto logits = arrays[0].cast<Array<double>>();
  table.columns = logits.ndim() == 2 ? static_cast<int32_t>(logits.shape(1)) : 0;
  table.logits = ToVector(logits);
  table.mean = ToVector(arrays[1].cast<Array<double>>());
  table.square = ToVector(arrays[2].cast<Array<double>>());
  return table;
}

}  // namespace

void RegisterLearning(py::module_* module) {
  module->def(
      "missing_links",
      [](const Problem& problem, const Array<int32_t>& placements) {
        std::vector<int64_t> missing;
        for (py::ssize_t row = 0; row < placements.shape(0); ++row) {
          const int32_t* placement = placements.data() + row * problem.num_ops();
          CheckPlacement(problem, placement, placements.shape(1));
          missing.push_back(CountMissingLinks(problem, placement));
        }
        return ToArray(missing);
      },
      py::arg("problem"), py::arg("placements"));
  py::class_<TablePolicy>(*module, "TablePolicy")
      .def(py::init([](const Problem& problem, const Array<int32_t>& item_of_unit,
                       const Array<int32_t>& candidates, const Array<double>& placer_logits,
                       const Array<double>& grouper_logits) {
             return std::make_unique<TablePolicy>(problem, ToVector(item_of_unit),
                                                  ToVector(candidates), ToVector(placer_logits),
                                                  ToVector(grouper_logits));
           }),
           py::arg("problem"), py::arg("item_of_unit"), py::arg("candidates"),
           py::arg("placer_logits"), py::arg("grouper_logits"), py::keep_alive<1, 2>())
      .def(
          "draw",
          [](TablePolicy* policy, uint64_t seed, int32_t count, int threads) {
            Array<int32_t> placements({static_cast<py::ssize_t>(count),
                                       static_cast<py::ssize_t>(policy->problem().num_ops())});
            int32_t* data = placements.mutable_data();
            {
              const py::gil_scoped_release release;
              policy->Draw(seed, count, threads, data);
            }
            return placements;
          },
          py::arg("seed"), py::arg("count"), py::arg("threads"))
      .def(
          "learn",
          [](TablePolicy* policy, const Array<double>& advantages, double placer_rate,
             double grouper_rate, double entropy_bonus, bool rao_blackwell, int threads) {
            const std::vector<double> values = ToVector(advantages);
            const LearningRule rule{placer_rate, grouper_rate, entropy_bonus, rao_blackwell};
            const py::gil_scoped_release release;
            policy->Learn(values, rule, threads);
          },
          py::arg("advantages"), py::kw_only(), py::arg("placer_rate"), py::arg("grouper_rate"),
          py::arg("entropy_bonus"), py::arg("rao_blackwell"), py::arg("threads"))
      .def_property_readonly("entropy", &TablePolicy::PlacerEntropy)
      .def_property_readonly("placer",
                             [](const TablePolicy& policy) { return Tables(policy.placer()); })
      .def_property_readonly("grouper",
                             [](const TablePolicy& policy) { return Tables(policy.grouper()); })
      .def_property_readonly("updates", &TablePolicy::updates)
      .def(
          "restore",
          [](TablePolicy* policy, const py::tuple& placer, const py::tuple& grouper,
             int64_t updates) { policy->Restore(ToTable(placer), ToTable(grouper), updates); },
          py::arg("placer"), py::arg("grouper"), py::arg("updates"));
}

}  // namespace hplacer
