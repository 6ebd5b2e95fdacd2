"""The `exact` planner: for small problems, the best placement of all or a proved gap, with CP-SAT.

    schedule_model.py --CP-SAT--> a placement --simulator--> its step time
            ^------- not this one again, and shorter than the best -------'

The program is a relaxation, so its optimum bounds every placement that was not simulated yet. When
it has no solution left that beats the best simulated one, that one is optimal (logic-based Benders
decomposition: Hooker and Ottosson, Mathematical Programming 2003).
"""

from __future__ import annotations

import math
import sys
import time

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem, lower_bound
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.planners.budget import Budget, Progress, ProgressCallback
from hplacer_optimizer.planners.result import PlannerResult, Watch
from hplacer_optimizer.planners.schedule_model import ScheduleModel, num_intervals
from hplacer_optimizer.problem.bounds import Proof
from hplacer_optimizer.problem.simulator import simulate_batch

MAX_INTERVALS = 10_000  # of the program; above that CP-SAT hardly gets anywhere
_DEFAULT_BUDGET = Budget(seconds=30)
_STEP_TIME = 0.25, 2.0  # CP-SAT's deterministic time: of the first step, doubled up to the last
_MAX_TIME_NS = 1 << 52  # CP-SAT tells its bound as a float

_Int32 = NDArray[np.int32]


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """Plans as any `Planner`.

    A step of the budget is one run of CP-SAT, of a limited deterministic time; by default up to 30
    seconds. A note tells what was proved, a proof has it as a number.

    Raises PlannerUnavailableError without OR-Tools, in a process that has loaded TensorFlow, or if
    the problem is too large, or has work of transfers or devices that start late.
    """
    _check_ortools()
    _check_expressible(problem)
    _engine.check_candidates(problem)
    if not problem.num_ops:
        return PlannerResult(placement=np.zeros(0, np.int32))
    size = num_intervals(problem)
    if size > MAX_INTERVALS:
        raise PlannerUnavailableError(
            f"exact: {problem.num_ops} ops on {problem.num_devices} devices make {size} possible "
            f"runs and transfers, more than {MAX_INTERVALS}; choose another planner"
        )
    search = _Search(problem, seed, Watch(on_progress))
    search.run((budget or Budget()).or_default(_DEFAULT_BUDGET))
    return search.result()


class _Search:
    """Keeps the best simulated placement and the best bound for those not simulated yet."""

    def __init__(self, problem: Problem, seed: int, watch: Watch) -> None:
        self._problem, self._seed, self._watch = problem, seed, watch
        self._steps = self._placements = 0
        self._step_time = _STEP_TIME[0]
        self._best_ns: int | None = None
        self._done = False
        bound = lower_bound(problem)
        self._bound_ns = bound.ns or 0
        self.best = _engine.place_etf(problem)
        self._impossible = bound.ns is None
        self._simulate([self.best, _engine.place_heft(problem)])

    def run(self, budget: Budget) -> None:
        begin_s, last_better = time.monotonic(), 0
        if self._is_over() or self._impossible:
            return
        model = ScheduleModel(self._problem, self._bound_ns)
        if model.horizon_ns > _MAX_TIME_NS:
            raise PlannerUnavailableError(
                f"exact: a step of this problem can last {model.horizon_ns} ns, more than CP-SAT "
                f"can count ({_MAX_TIME_NS}); choose another planner"
            )
        model.start_from(self.best)
        if self._best_ns is not None:
            model.beat(self._best_ns)
        while not (self._is_over() or budget.stopped):
            left_s = None
            if budget.seconds is not None:
                left_s = budget.seconds - (time.monotonic() - begin_s)
                if left_s <= 0:
                    return
            before = self._best_ns
            self._step(model, left_s)
            if self._best_ns != before:
                last_better = self._steps
            if budget.steps is not None and self._steps >= budget.steps:
                return
            if budget.patience is not None and self._steps - last_better >= budget.patience:
                return

    def _step(self, model: ScheduleModel, left_s: float | None) -> None:
        """One run; what it finds is simulated with its neighbours and not looked for again."""
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1  # or the answer would depend on the threads
        solver.parameters.catch_sigint_signal = False  # Ctrl-C ends the search, not the step
        solver.parameters.random_seed = self._seed % (1 << 31)
        solver.parameters.max_deterministic_time = self._step_time
        if left_s is not None:
            solver.parameters.max_time_in_seconds = left_s
        status = solver.solve(model.model)
        assert status != cp_model.MODEL_INVALID, model.model.validate()
        self._steps += 1
        self._step_time = min(2 * self._step_time, _STEP_TIME[1])
        if status == cp_model.INFEASIBLE:
            self._done = True
        elif status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            self._learn(model, model.placement(solver))
        if status != cp_model.INFEASIBLE:
            self._bound_ns = max(self._bound_ns, math.floor(solver.best_objective_bound + 1e-3))
        self._report()

    def _learn(self, model: ScheduleModel, placement: _Int32) -> None:
        before, tried = self._best_ns, self._neighbours(placement)
        self._simulate(tried)
        for row in tried:
            model.exclude(row)
        if self._best_ns is not None and self._best_ns != before:
            model.beat(self._best_ns)
            model.start_from(self.best)

    def _neighbours(self, placement: _Int32) -> list[_Int32]:
        """The placement, and those that differ in one unit."""
        problem = self._problem
        ptr, found = problem.candidate_ptr, [placement]
        for unit in range(problem.num_units):
            mine = problem.units == unit
            now = placement[mine][0]
            for device in problem.candidates[ptr[unit] : ptr[unit + 1]].tolist():
                if device != now:
                    moved = placement.copy()
                    moved[mine] = device
                    found.append(moved)
        return found

    def _simulate(self, placements: list[_Int32]) -> None:
        makespans, feasible, _ = simulate_batch(self._problem, np.stack(placements))
        self._placements += len(placements)
        for placement, step_ns, fits in zip(placements, makespans.tolist(), feasible, strict=True):
            if fits and (self._best_ns is None or step_ns < self._best_ns):
                self.best, self._best_ns = placement, step_ns

    def _is_over(self) -> bool:
        return self._done or (self._best_ns is not None and self._best_ns <= self._bound_ns)

    def _report(self) -> None:
        self._watch(Progress(steps=self._steps, best_ns=self._best_ns, placements=self._placements))

    def result(self) -> PlannerResult:
        """With what is proved now."""
        if self._best_ns is None:
            if self._done or self._impossible:
                note = "exact: it is proved that no placement fits"
            else:
                note = f"exact: nothing that fits was found in {self._steps} steps"
            return self._watch.result(self.best, notes=[note])
        bound_ns = self._best_ns if self._done else min(self._best_ns, self._bound_ns)
        if bound_ns == self._best_ns:
            note = f"exact: {self._best_ns} ns is optimal: no placement takes less"
        else:
            gap = self._best_ns / max(bound_ns, 1) - 1
            note = (
                f"exact: no placement takes less than {bound_ns} ns; the best found, "
                f"{self._best_ns} ns, is {gap:.1%} above, after {self._steps} steps"
            )
        proof = Proof(bound_ns, f"{self._problem.num_units} units in any order (exact)")
        return self._watch.result(self.best, notes=[note], proofs=[proof])


def _check_expressible(problem: Problem) -> None:
    """Raises PlannerUnavailableError, which names the first field that the program leaves out."""
    work = "transfers that are work for a device"
    for path, values, what in (
        ("devices[{}].start_ns", problem.device_start_ns, "devices that start late"),
        ("devices[{}].launch_ns", problem.device_launch_ns, "ops that are launched ahead"),
        ("links[{}].send_ns", problem.link_send_ns, work),
        ("links[{}].send_bytes_per_s", problem.link_send_bytes_per_s, work),
        ("links[{}].receive_ns", problem.link_receive_ns, work),
        ("links[{}].receive_bytes_per_s", problem.link_receive_bytes_per_s, work),
    ):
        if values.any():
            raise PlannerUnavailableError(
                f"exact: {path.format(np.flatnonzero(values)[0])}: cannot express {what}; "
                "choose another planner"
            )


def _check_ortools() -> None:
    try:
        import ortools.sat.python.cp_model  # noqa: F401
    except ImportError as error:
        raise PlannerUnavailableError(
            f"exact: the package ortools is missing ({error}); "
            "pip install 'hplacer-optimizer[exact]'"
        ) from error
    # Each brings its own copies of the same native libraries; together they crash.
    if "tensorflow" in sys.modules:
        raise PlannerUnavailableError(
            "exact: OR-Tools cannot run in a process that has loaded TensorFlow; plan with "
            "`hplacer pretrain --planner exact`, and the training script finds the plan"
        )
