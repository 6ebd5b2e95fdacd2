"""The `sct` planner: m-SCT, list scheduling with favourite children from a linear program.

Jeon et al., "Baechi: Fast Device Placement of Machine Learning Graphs", SoCC 2020, section 3; SCT
itself: Hanen and Munier, "An Approximation Algorithm for Scheduling Dependent Tasks on m Processors
with Small Communication Delays", ETFA 1995. In the relaxed schedule on unlimited devices, y = 1
says that an op follows its favourite parent and waits for no transfer:

    minimise w,  where  start[j] >= start[i] + cost[i] + transfer[i, j] * (1 - y[i, j])
                        w >= start[i] + cost[i]
                        an op has at most one favourite child and is that of at most one op

y > 1/2 makes a favourite (so there is at most one); the scheduler is in
`cc/engine/schedulers/etf.h`. HiGHS solves the program, for clusters of ops (`cluster_dag.py`) of
rising number: each solution gives one schedule, and the best one by the simulator is the answer.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.planners.budget import Budget, Progress, ProgressCallback
from hplacer_optimizer.planners.cluster_dag import ClusterDag, OpEdges, coarsened, op_dag
from hplacer_optimizer.planners.result import PlannerResult, Watch
from hplacer_optimizer.problem.simulator import simulate

_SIZES = (500, 2_000, 8_000, 1 << 62)  # clusters of one program after the other
_DEFAULT_BUDGET = Budget(seconds=30)
_NO_FAVOURITE = -1
_LIMIT_REACHED = 1  # linprog's status
_TIME_LIMIT_REASON = "the time limit was hit"
_TOLERANCE = 1e-6


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """Plans as any `Planner`.

    A step of the budget is one linear program; by default up to 30 seconds. It draws nothing: the
    seed changes nothing. A note says where a limit was hit, and how many clusters the largest
    solved program had. Raises PlannerUnavailableError without SciPy.
    """
    _check_scipy()
    budget = (budget or Budget()).or_default(_DEFAULT_BUDGET)
    deadline = None if budget.seconds is None else time.monotonic() + budget.seconds
    best = _BestSchedule(problem, Watch(on_progress))
    notes = []
    ops, op_edges = op_dag(problem)
    solved = None
    for size in _SIZES[: budget.steps]:
        dag = coarsened(ops, size)
        if budget.stopped:
            break
        if solved is not None and len(dag.cost_ns) == solved:
            continue
        left_s = None if deadline is None else deadline - time.monotonic()
        follows = _solve(dag, left_s)
        if isinstance(follows, str):
            notes.append(_unsolved_note(follows, dag, solved))
            break
        solved = len(dag.cost_ns)
        best.try_favourites(_favourites(problem, dag, op_edges, follows))
    if solved is None:
        best.try_favourites(np.full(problem.num_ops, _NO_FAVOURITE, np.int32))
    return best.result(notes)


class _BestSchedule:
    """Keeps the best schedule: one that fits before one that does not, then the shortest."""

    def __init__(self, problem: Problem, watch: Watch) -> None:
        self._problem = problem
        self._watch = watch
        self._steps = 0
        self._ranked: list[tuple[bool, float, int, NDArray[np.int32]]] = []

    def try_favourites(self, favourite_child: NDArray[np.int32]) -> None:
        placement = _engine.place_sct(self._problem, favourite_child)
        trace = simulate(self._problem, placement)
        makespan_ns = np.inf if trace.makespan_ns is None else trace.makespan_ns
        self._steps += 1
        self._ranked.append((not trace.feasible, makespan_ns, self._steps, placement))
        self._ranked.sort(key=lambda ranked: ranked[:3])
        misses, best_ns, _, _ = self._ranked[0]
        self._watch(
            Progress(
                steps=self._steps,
                best_ns=None if misses else int(best_ns),
                placements=self._steps,
            )
        )

    def result(self, notes: list[str]) -> PlannerResult:
        return self._watch.result(self._ranked[0][3], notes=notes)


def _solve(dag: ClusterDag, seconds: float | None) -> NDArray[np.bool_] | str:
    """Returns bool[E]: whether the end of each edge is its source's favourite child.

    Or the reason why that is not known, such as that the time ran out.
    """
    from scipy.optimize import linprog

    if seconds is not None and seconds <= 0:
        return _TIME_LIMIT_REASON
    follows = np.zeros(len(dag.edges), np.bool_)
    saving = np.flatnonzero(dag.transfer_ns > 0)
    if not len(saving):
        return follows
    unit_ns = float(max(dag.cost_ns.max(), dag.transfer_ns.max()))
    rows, limits = _constraints(dag, saving, unit_ns)
    size = len(dag.cost_ns)
    objective = np.zeros(rows.shape[1])
    objective[0] = 1
    bounds = np.zeros((rows.shape[1], 2))
    bounds[: 1 + size, 1] = np.inf
    bounds[1 + size :, 1] = 1
    solution = linprog(
        objective,
        A_ub=rows,
        b_ub=limits,
        bounds=bounds,
        method="highs",
        options={} if seconds is None else {"time_limit": seconds},
    )
    if solution.status == _LIMIT_REACHED:
        return _TIME_LIMIT_REASON
    if solution.status:
        return f"HiGHS says {solution.message!r}"
    follows[saving] = solution.x[1 + size :] > 0.5 + _TOLERANCE
    return follows


def _constraints(dag: ClusterDag, saving: NDArray[np.int64], unit_ns: float) -> tuple[Any, Any]:
    """Rows over (w, start[N], y of the saving edges), and their upper limits."""
    from scipy.sparse import coo_array, vstack

    size, count = len(dag.cost_ns), len(saving)
    src, dst = dag.edges.T
    row = np.arange(len(dag.edges))
    ones = np.ones(len(dag.edges))
    cost = dag.cost_ns / unit_ns
    transfer = dag.transfer_ns / unit_ns
    precedence = coo_array(
        (
            np.concatenate([ones, -ones, -transfer[saving]]),
            (
                np.concatenate([row, row, saving]),
                np.concatenate([1 + src, 1 + dst, 1 + size + np.arange(count)]),
            ),
        ),
        shape=(len(dag.edges), 1 + size + count),
    )
    sinks = np.setdiff1d(np.arange(size), src)
    ends = coo_array(
        (
            np.concatenate([np.ones(len(sinks)), -np.ones(len(sinks))]),
            (
                np.tile(np.arange(len(sinks)), 2),
                np.concatenate([1 + sinks, np.zeros(len(sinks), np.int64)]),
            ),
        ),
        shape=(len(sinks), 1 + size + count),
    )
    columns = 1 + size + np.arange(count)
    at_most_one = [
        coo_array((np.ones(count), (end[saving], columns)), shape=(size, 1 + size + count))
        for end in (src, dst)
    ]
    limits = np.concatenate([-cost[src] - transfer, -cost[sinks], np.ones(2 * size)])
    return vstack([precedence, ends, *at_most_one]).tocsr(), limits


def _favourites(
    problem: Problem, dag: ClusterDag, op_edges: OpEdges, follows: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """Returns int32[n]: of the edges within a cluster or to a favourite one, the heaviest first."""
    size = len(dag.cost_ns)
    ends = dag.cluster[op_edges.edges]
    favoured = np.isin(
        ends[:, 0] * size + ends[:, 1], dag.edges[follows, 0] * size + dag.edges[follows, 1]
    )
    usable = (favoured | (ends[:, 0] == ends[:, 1])) & (op_edges.transfer_ns > 0)
    child = np.full(problem.num_ops, _NO_FAVOURITE, np.int32)
    has_parent = np.zeros(problem.num_ops, np.bool_)
    for src, dst in op_edges.edges[usable].tolist():
        if child[src] == _NO_FAVOURITE and not has_parent[dst]:
            child[src] = dst
            has_parent[dst] = True
    return child


def _unsolved_note(reason: str, dag: ClusterDag, solved: int | None) -> str:
    known = (
        "no favourite children are known, the placement is that of m-ETF"
        if solved is None
        else f"favourite children are those of {solved} clusters"
    )
    return (
        f"sct: the linear program of {len(dag.cost_ns)} clusters is not solved: {reason}; {known}"
    )


def _check_scipy() -> None:
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise PlannerUnavailableError(
            f"sct: the package scipy is missing ({error}); "
            "pip install 'hplacer-optimizer[planners]'"
        ) from error
