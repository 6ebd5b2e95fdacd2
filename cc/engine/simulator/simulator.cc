#include "engine/simulator/simulator.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "engine/simulator/infeasibility.h"
#include "engine/simulator/step_simulation.h"
#include "engine/simulator/worker_team.h"

namespace hplacer {
namespace {

// Above this size the arrays do not stay in a cache, nor does the thread keep them.
constexpr int32_t kMaxOpsKept = 1 << 17;

// Calls visit(simulation) with a simulation that fits, whose arrays earlier calls of this thread
// have made.
template <typename EventKey, typename Visit>
void WithThreadSimulation(const Problem& problem, Visit visit) {
  using Simulation = StepSimulation<EventKey, false>;
  thread_local Simulation simulation;
  visit(simulation);
  if (problem.num_ops() > kMaxOpsKept) simulation = Simulation();
}

template <typename Visit>
void WithSimulation(const Problem& problem, Visit visit) {
  if (StepSimulation<ShortEventKey, false>::Fits(problem)) {
    WithThreadSimulation<ShortEventKey>(problem, visit);
  } else {
    WithThreadSimulation<LongEventKey>(problem, visit);
  }
}

// Calls on_worst(order) after the run of each order that is worse than those before it: by the
// bytes that do not fit, then by the step time. Returns whether there is a trace.
template <typename Simulation, typename OnWorst>
bool RunOrders(const Problem& problem, const int32_t* placement, int32_t launch_orders,
               Simulation* simulation, OnWorst on_worst) {
  std::pair<int64_t, int64_t> worst;
  for (int64_t order = 0; order < launch_orders; ++order) {
    if (!simulation->Run(problem, placement, nullptr, order)) return false;
    const std::pair found{MissingBytes(problem, simulation->peak_bytes().data()),
                          simulation->makespan_ns()};
    if (order == 0 || worst < found) {
      worst = found;
      on_worst(order);
    }
    if (!simulation->has_drawn()) break;  // all orders are the same
  }
  return true;
}

}  // namespace

StepTrace Simulate(const Problem& problem, const std::vector<int32_t>& placement,
                   int32_t launch_orders) {
  CheckPlacement(problem, placement);
  StepTrace trace;
  trace.peak_bytes.assign(problem.num_devices(), 0);
  WithSimulation(problem, [&](auto& simulation) {
    const auto keep = [&](int64_t order) {
      if (problem.num_ops() > kMaxOpsKept) simulation.DropRunState();
      trace.launch_order = order;
      trace.makespan_ns = simulation.makespan_ns();
      simulation.CopyTimes(&trace.start_ns, &trace.finish_ns);
      trace.transfers = simulation.Transfers();
      trace.peak_bytes = simulation.peak_bytes();
    };
    trace.has_trace = RunOrders(problem, placement.data(), launch_orders, &simulation, keep);
  });
  trace.feasible = trace.has_trace && HonoursConstraints(problem, placement.data()) &&
                   FitsMemory(problem, trace.peak_bytes.data());
  if (!trace.feasible) {
    trace.infeasible_because = DescribeInfeasibility(problem, placement, trace.peak_bytes);
  }
  return trace;
}

std::vector<int32_t> FirstTransfers(const std::vector<Transfer>& transfers, int32_t num_ops) {
  std::vector<int32_t> first(num_ops + 1, 0);
  for (const Transfer& transfer : transfers) ++first[transfer.src_op + 1];
  for (int32_t op = 0; op < num_ops; ++op) first[op + 1] += first[op];
  return first;
}

void SimulateBatch(const Problem& problem, const int32_t* placements, int64_t count, int threads,
                   int64_t* makespan_ns, bool* feasible, int64_t* peak_bytes,
                   int32_t launch_orders) {
  const int64_t n = problem.num_ops(), m = problem.num_devices();
  for (int64_t row = 0; row < count; ++row) CheckPlacement(problem, placements + row * n, n);
  std::atomic<int64_t> next = 0;
  const auto score = [&](auto& simulation, int64_t row) {
    const int32_t* placement = placements + row * n;
    makespan_ns[row] = -1;
    std::fill_n(peak_bytes + row * m, m, 0);
    const auto keep = [&](int64_t) {
      makespan_ns[row] = simulation.makespan_ns();
      std::copy_n(simulation.peak_bytes().begin(), m, peak_bytes + row * m);
    };
    const bool has_trace = RunOrders(problem, placement, launch_orders, &simulation, keep);
    feasible[row] = has_trace && HonoursConstraints(problem, placement) &&
                    FitsMemory(problem, peak_bytes + row * m);
  };
  WorkerTeam team(static_cast<int>(std::min<int64_t>(threads, count)));
  // One item per worker, so that each keeps its simulation from row to row.
  team.ForEach(team.size(), [&](int, int32_t) {
    WithSimulation(problem, [&](auto& simulation) {
      for (int64_t row = next++; row < count; row = next++) score(simulation, row);
    });
  });
}

}  // namespace hplacer
