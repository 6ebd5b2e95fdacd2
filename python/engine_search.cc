#include "engine_search.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/rollout/rollout_search.h"
#include "engine/search/local_search.h"
#include "engine/search/search_clock.h"
#include "engine/simulator/placement_scorer.h"

namespace py = pybind11;

namespace hplacer {
namespace {

using Table = py::array_t<int32_t, py::array::c_style>;
using Weights = py::array_t<double, py::array::c_style | py::array::forcecast>;

void CheckShape(const Table& rows, int32_t width, const std::string& name) {
  if (rows.ndim() == 2 && rows.shape(1) == width) return;
  throw ProblemError(name + ": must have shape [count, " + std::to_string(width) + "]");
}

std::vector<std::vector<int32_t>> Rows(const Table& table) {
  std::vector<std::vector<int32_t>> rows;
  for (py::ssize_t row = 0; row < table.shape(0); ++row) {
    const int32_t* first = table.data() + row * table.shape(1);
    rows.emplace_back(first, first + table.shape(1));
  }
  return rows;
}

py::object MakespanOrNone(const Score& score) {
  if (!score.feasible()) return py::none();
  return py::int_(score.makespan_ns);
}

SearchLimits Limits(std::optional<double> seconds, std::optional<int64_t> max_evaluations,
                    std::optional<int64_t> patience, const py::object& on_progress) {
  SearchLimits limits;
  limits.seconds = seconds.value_or(limits.seconds);
  limits.max_evaluations = max_evaluations.value_or(limits.max_evaluations);
  limits.patience = patience.value_or(limits.patience);
  limits.on_progress = [&on_progress](const SearchProgress& progress) {
    const py::gil_scoped_acquire acquire;
    return on_progress(progress.evaluations, MakespanOrNone(progress.best)).cast<bool>();
  };
  return limits;
}

py::array_t<int32_t> PlacementOf(const SearchResult& result) {
  return py::array_t<int32_t>(static_cast<py::ssize_t>(result.placement.size()),
                              result.placement.data());
}

py::tuple RunLocalSearch(const Problem& problem, const Table& starts, const Table& clusterings,
                         uint64_t seed, int threads, std::optional<double> seconds,
                         std::optional<int64_t> max_evaluations, std::optional<int64_t> patience,
                         const py::object& on_progress) {
  SearchOptions options;
  options.seed = seed;
  options.threads = threads;
  options.limits = Limits(seconds, max_evaluations, patience, on_progress);
  CheckShape(starts, problem.num_ops(), "starts");
  options.starts = Rows(starts);
  CheckShape(clusterings, problem.num_units(), "clusterings");
  options.clusterings = Rows(clusterings);
  SearchResult result;
  {
    const py::gil_scoped_release release;
    result = LocalSearch(problem, options);
  }
  return py::make_tuple(PlacementOf(result), result.evaluations, result.ended_by_time,
                        result.is_optimal);
}

// A row has the weight of each feature, then whether the policy is lazy.
std::vector<PlacementPolicy> Policies(const Weights& rows) {
  if (rows.ndim() != 2 || rows.shape(0) < 1 || rows.shape(1) != kNumRolloutFeatures + 1) {
    throw ProblemError("policies: must have shape [count, " +
                       std::to_string(kNumRolloutFeatures + 1) + "], count at least 1");
  }
  std::vector<PlacementPolicy> policies;
  for (py::ssize_t row = 0; row < rows.shape(0); ++row) {
    PlacementPolicy policy;
    for (py::ssize_t i = 0; i < kNumRolloutFeatures; ++i) policy.weight[i] = rows.at(row, i);
    policy.is_lazy = rows.at(row, kNumRolloutFeatures) != 0;
    policies.push_back(policy);
  }
  return policies;
}

py::tuple RunRolloutSearch(const Problem& problem, const std::vector<int32_t>& scope,
                           const Weights& policies, uint64_t seed, int threads,
                           std::optional<double> seconds, std::optional<int64_t> max_evaluations,
                           std::optional<int64_t> patience, int32_t passes, bool clusters,
                           bool sweeps, const py::object& on_progress) {
  RolloutOptions options;
  options.seed = seed;
  options.threads = threads;
  options.limits = Limits(seconds, max_evaluations, patience, on_progress);
  options.scope = scope;
  options.policies = Policies(policies);
  options.passes = passes;
  options.clusters = clusters;
  options.sweeps = sweeps;
  SearchResult result;
  {
    const py::gil_scoped_release release;
    result = RolloutSearch(problem, options);
  }
  return py::make_tuple(PlacementOf(result), result.evaluations, result.ended_by_time);
}

py::array_t<int64_t> Below(const Problem& problem, const Table& placements, int64_t cutoff_ns,
                           int threads) {
  CheckShape(placements, problem.num_ops(), "placements");
  const py::ssize_t count = placements.shape(0);
  py::array_t<int64_t> makespan_ns(count);
  const int32_t* devices = placements.data();
  int64_t* makespan_data = makespan_ns.mutable_data();
  {
    const py::gil_scoped_release release;
    SimulateBelow(problem, devices, count, cutoff_ns, threads, makespan_data);
  }
  return makespan_ns;
}

}  // namespace

void RegisterSearches(py::module_* module) {
  module->def("local_search", &RunLocalSearch, py::arg("problem"), py::arg("starts"),
              py::arg("clusterings"), py::kw_only(), py::arg("seed"), py::arg("threads"),
              py::arg("seconds"), py::arg("max_evaluations"), py::arg("patience"),
              py::arg("on_progress"));
  module->def("rollout_search", &RunRolloutSearch, py::arg("problem"), py::arg("scope"),
              py::arg("policies"), py::kw_only(), py::arg("seed"), py::arg("threads"),
              py::arg("seconds"), py::arg("max_evaluations"), py::arg("patience"),
              py::arg("passes"), py::arg("clusters"), py::arg("sweeps"), py::arg("on_progress"));
  module->attr("ROLLOUT_FEATURES") = py::tuple(py::cast(
      std::vector<std::string>(std::begin(kRolloutFeatureNames), std::end(kRolloutFeatureNames))));
  module->def("simulate_below", &Below, py::arg("problem"), py::arg("placements"),
              py::arg("cutoff_ns"), py::arg("threads"));
}

}  // namespace hplacer
