#include "engine_search.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/rollout/rollout_search.h"
#include "engine/search/local_search.h"
#include "engine/search/random_moves.h"
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

SearchParts PartsWithout(const std::set<std::string>& names) {
  SearchParts parts;
  const std::map<std::string, bool*> by_name = {
      {"screen", &parts.annealing.screens_moves},
      {"launch_orders", &parts.annealing.scores_orders},
      {"other_starts", &parts.other_starts},
  };
  for (const std::string& name : names) {
    const auto part = by_name.find(name);
    if (part == by_name.end()) throw ProblemError("without: there is no part '" + name + "'");
    *part->second = false;
  }
  return parts;
}

py::tuple RunLocalSearch(const Problem& problem, const Table& starts, uint64_t seed, int threads,
                         std::optional<double> seconds, std::optional<int64_t> max_evaluations,
                         std::optional<int64_t> patience, bool until_stalled,
                         const std::set<std::string>& without, const py::object& on_progress) {
  SearchOptions options;
  options.parts = PartsWithout(without);
  options.seed = seed;
  options.threads = threads;
  options.limits = Limits(seconds, max_evaluations, patience, on_progress);
  options.limits.until_stalled = until_stalled;
  CheckShape(starts, problem.num_ops(), "starts");
  options.starts = Rows(starts);
  SearchResult result;
  {
    const py::gil_scoped_release release;
    result = LocalSearch(problem, options);
  }
  return py::make_tuple(PlacementOf(result), result.evaluations, result.ended_by_time,
                        result.was_stalled);
}

Table DrawMoves(RandomMoves* moves, const std::vector<int32_t>& placement, int32_t count,
                uint64_t seed) {
  std::vector<std::vector<int32_t>> drawn;
  {
    const py::gil_scoped_release release;
    drawn = moves->Draw(placement, count, seed);
  }
  Table rows({drawn.size(), placement.size()});
  int32_t* next = rows.mutable_data();
  for (const std::vector<int32_t>& row : drawn) next = std::copy(row.begin(), row.end(), next);
  return rows;
}

// A row has the weight of each feature, then whether the policy is lazy.
std::vector<PlacementPolicy> Policies(const Weights& rows) {
  constexpr py::ssize_t kWidth = kNumRolloutFeatures + 1;
  if (rows.ndim() != 2 || rows.shape(0) < 1 || rows.shape(1) != kWidth) {
    throw ProblemError("policies: must have shape [count, " + std::to_string(kWidth) +
                       "], count at least 1");
  }
  std::vector<PlacementPolicy> policies;
  for (py::ssize_t row = 0; row < rows.shape(0); ++row) {
    const double* next = rows.data() + row * kWidth;
    PlacementPolicy policy;
    for (double& weight : policy.weight) weight = *next++;
    policy.is_lazy = *next != 0;
    policies.push_back(policy);
  }
  return policies;
}

std::vector<RolloutChain> Chains(const Table& rows, size_t num_policies) {
  CheckShape(rows, 2, "chains");
  if (rows.shape(0) < 1) throw ProblemError("chains: there is none");
  std::vector<RolloutChain> chains;
  for (py::ssize_t row = 0; row < rows.shape(0); ++row) {
    const int32_t policy = rows.at(row, 0), items = rows.at(row, 1);
    if (policy < 0 || policy >= static_cast<int32_t>(num_policies) || items < 0 ||
        items >= static_cast<int32_t>(ItemKind::kNumKinds)) {
      throw ProblemError("chains: row " + std::to_string(row) + " names no policy or no kind");
    }
    chains.push_back({policy, static_cast<ItemKind>(items)});
  }
  return chains;
}

constexpr int32_t kMostPasses = 1 << 20;

py::tuple RunRolloutSearch(const Problem& problem, const std::vector<int32_t>& scope,
                           const Weights& policies, const Table& chains, uint64_t seed, int threads,
                           std::optional<double> seconds, std::optional<int64_t> max_evaluations,
                           std::optional<int64_t> patience, int32_t passes, bool sweeps,
                           const py::object& on_progress) {
  if (passes < 1 || passes > kMostPasses) {
    throw ProblemError("passes: must be from 1 to " + std::to_string(kMostPasses) + ", got " +
                       std::to_string(passes));
  }
  RolloutOptions options;
  options.seed = seed;
  options.threads = threads;
  options.limits = Limits(seconds, max_evaluations, patience, on_progress);
  options.scope = scope;
  options.policies = Policies(policies);
  options.chains = Chains(chains, options.policies.size());
  options.passes = passes;
  options.sweeps = sweeps;
  SearchResult result;
  {
    const py::gil_scoped_release release;
    result = RolloutSearch(problem, options);
  }
  return py::make_tuple(PlacementOf(result), result.evaluations, result.ended_by_time);
}

}  // namespace

void RegisterSearches(py::module_* module) {
  module->def("local_search", &RunLocalSearch, py::arg("problem"), py::arg("starts"), py::kw_only(),
              py::arg("seed"), py::arg("threads"), py::arg("seconds"), py::arg("max_evaluations"),
              py::arg("patience"), py::arg("until_stalled"), py::arg("without"),
              py::arg("on_progress"));
  py::class_<RandomMoves>(*module, "RandomMoves")
      .def(py::init([](const Problem& problem, const Table& clusterings) {
             CheckShape(clusterings, problem.num_units(), "clusterings");
             return std::make_unique<RandomMoves>(problem, Rows(clusterings));
           }),
           py::arg("problem"), py::arg("clusterings"), py::keep_alive<1, 2>())
      .def("draw", &DrawMoves, py::arg("placement"), py::arg("count"), py::arg("seed"));
  module->def("rollout_search", &RunRolloutSearch, py::arg("problem"), py::arg("scope"),
              py::arg("policies"), py::arg("chains"), py::kw_only(), py::arg("seed"),
              py::arg("threads"), py::arg("seconds"), py::arg("max_evaluations"),
              py::arg("patience"), py::arg("passes"), py::arg("sweeps"), py::arg("on_progress"));
  module->attr("ROLLOUT_ITEMS") = py::tuple(
      py::cast(std::vector<std::string>(std::begin(kItemKindNames), std::end(kItemKindNames))));
  module->attr("ROLLOUT_FEATURES") = py::tuple(py::cast(
      std::vector<std::string>(std::begin(kRolloutFeatureNames), std::end(kRolloutFeatureNames))));
}

}  // namespace hplacer
