"""Plans tried on the user's own script: its steps without and with them in turn, and a verdict.

    look     one start finds the stored plans, and what the script asks of the optimizer
    plan     another one plans what has none, as training would
    trial    in another one the calls of the training function take turns, without and with its plan
    turns    where that cannot be: a start without the optimizer and one with the plans, in turn

Every start is a process of its own, in a copy of the working directory. Until the end the plans are
in a store of their own; then they go into the script's store, with the verdict.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hplacer_optimizer.capture.loading import LoadedGraph
from hplacer_optimizer.capture.training_ops import applies_updates
from hplacer_optimizer.errors import HPlacerError, MeasuringError
from hplacer_optimizer.measuring import Devices, Measurer
from hplacer_optimizer.measuring.turns import (
    EFFORT,
    Turns,
    is_decided,
    take_turns,
    take_turns_of_placements,
)
from hplacer_optimizer.options import EVERY_PLAN, Options
from hplacer_optimizer.plans.matching import map_nodes, place_by_nodes
from hplacer_optimizer.plans.plan import Plan, load_plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plans.verdict import Verdict, emulated_here
from hplacer_optimizer.scripts.observed_run import script_name
from hplacer_optimizer.scripts.script_trial import try_in_script
from hplacer_optimizer.scripts.step_timing import SESSION, ScriptSteps, time_script
from hplacer_optimizer.support.own_directory import default_directory

__all__ = ["SAME", "UNCERTAIN", "Comparison", "Trial", "compare_steps", "try_script"]

WITHOUT, WITH = "without the plan", "with the plan"
UNCERTAIN, SAME = "uncertain", "same placement"  # outcomes besides those of a verdict
_IN_EFFECT = {"planned", "loaded", "shared"}
KEPT_REAL = "the plan keeps the verdict of real devices, which one of emulated ones never replaces"
_LEAST_TURNS = 3  # an interval of two is too wide to tell anything
_ANY_GAIN = -0.99  # EVERY_PLAN would have the plan take effect at once
_FEW = 1  # steps are enough where times do not matter

OnStart = Callable[[str], None]  # told what begins


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What is tried, and how."""

    command: Sequence[str]
    """`script.py ARGS` or `-m module ARGS`."""
    cache: str | None = None
    """The plan store; None: the one that the script uses."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Options of the planner; with any of these the script is planned anew."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Other options of the optimizer, instead of the script's."""
    steps: int | None = None
    """Timed in each start; None: for about two seconds."""
    limit_s: float = 300.0
    """No turn begins later, and no start takes longer."""
    in_place: bool = False
    """In the working directory itself."""
    directory: Path | None = None
    """The working directory; None: this process's."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the steps were.

    Attributes:
        plans: that were tried together, the one of the longest step first; with the verdict, where
            there is one.
        timed: what a step is, such as "function train_step".
        is_of_script: the steps were those of a script, and not run by themselves.
        baseline, planned: the steps without and with the plans; None: the placements are the same.
        first_step_s: how much later the first step ends with the plans, from the store; None:
            unknown.
        planned_now: whether the plans were made for this.
        outside_share: how much of a step without the plans is the script's own work, 0 to 1; None:
            unknown.
        own_s: real seconds a step of the script's own work, where steps are those of emulated
            devices and leave it out; None: they are not, or it is not known.
        emulated: the name of the machine that the devices were emulated as; None: real devices.
        stored: where the verdict is.
        notes: what else is to be told.
    """

    plans: list[Plan]
    timed: str
    is_of_script: bool = False
    baseline: Turns | None = None
    planned: Turns | None = None
    verdict: Verdict | None = None
    first_step_s: float | None = None
    planned_now: bool = False
    outside_share: float | None = None
    own_s: float | None = None
    emulated: str | None = None
    stored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """FASTER, SLOWER or NO_DIFFERENCE of the verdict, UNCERTAIN or SAME."""
        if self.planned is None:
            return SAME
        return self.verdict.outcome if self.verdict else UNCERTAIN


def try_script(trial: Trial, on_start: OnStart = lambda what: None) -> Comparison:
    """Plans the script if its store holds no plan, and measures.

    Raises MeasuringError if the script cannot be timed, or if nothing of it is planned.
    """
    ends = time.monotonic() + trial.limit_s
    name = script_name(trial.command)
    with tempfile.TemporaryDirectory(prefix="hplacer-") as kept:
        starts = _Starts(trial, name, Path(kept, "plans"))
        looked, plans, pinned = None, [], None
        if not trial.search:
            on_start("looking for a stored plan")
            looked = starts.look()
            pinned = (looked.options or {}).get("plan")
            plans = [load_plan(pinned)] if pinned else starts.plans()
        planned_now = looked is None or (not pinned and (not plans or _has_no_plan(looked)))
        if looked is None or planned_now:
            on_start("planning")
            looked = starts.plan()
            plans = starts.plans()
        if not plans:
            raise MeasuringError(f"{name}: {_why_no_plan(looked)}")
        if all(map(_is_default, plans)):
            return Comparison(
                plans=plans,
                timed=looked.name,
                planned_now=planned_now,
                emulated=emulated_here(),
            )

        starts.tried = plans
        runs: dict[str, list[ScriptSteps]] = {WITHOUT: [], WITH: []}

        def measure(which: str, number: int) -> Sequence[float]:
            on_start(f"{which}, turn {number}")
            runs[which].append(starts.run(which))
            return [runs[which][-1].step_s]

        turns = None
        if starts.may_be_tried_as_it_runs(looked.name):
            on_start("without the plan and with it, in turns")
            turns = starts.try_as_it_runs(limit_s=(ends - time.monotonic()) / 2)
        if turns is None:
            turns = take_turns(
                [WITHOUT, WITH],
                measure,
                limit_s=ends - time.monotonic(),
                is_known=is_decided,
                least=_LEAST_TURNS,
            )
            looked = runs[WITHOUT][-1]
            if looked.also:
                starts.notes.append(
                    f"a step is a whole round: {', '.join(looked.also)} trains, too"
                )
        found = _compared(plans, turns, f"hplacer try {name}", looked.name)
        stored: list[str] = []
        if found.verdict is not None:
            if not pinned:
                stored = starts.keep(found.plans)
            elif found.verdict.replaces(plans[0].verdict):
                found.plans[0].save(pinned)
                stored = [pinned]
            else:
                starts.notes.append(KEPT_REAL)
        return replace(
            found,
            stored=stored,
            planned_now=planned_now,
            notes=starts.notes,
            is_of_script=True,
            **_around(runs),
        )


def _around(runs: Mapping[str, Sequence[ScriptSteps]]) -> dict[str, Any]:
    """What there is of a script besides its steps; emulated devices leave all that out.

    One start with both placements tells nothing of it.
    """
    if not runs[WITHOUT]:
        return {}
    if emulated_here() is not None:
        known = [run.own_s for run in runs[WITHOUT] if run.own_s is not None]
        return {"own_s": float(np.median(known)) if known else None}
    inside = [run.inside_share for run in runs[WITHOUT] if run.inside_share is not None]
    delays_s = [np.median([run.first_step_s for run in runs[w]]) for w in (WITHOUT, WITH)]
    return {
        "first_step_s": float(delays_s[1] - delays_s[0]),
        "outside_share": 1 - float(np.median(inside)) if inside else None,
    }


def compare_steps(
    plan: Plan,
    loaded: LoadedGraph,
    *,
    name: str,
    devices: Devices = None,
    limit_s: float,
    on_start: OnStart = lambda what: None,
) -> Comparison:
    """Measures a plan beside TensorFlow's placement without a script.

    Args:
        plan: of the graph.
        loaded: with `keep_graph=True`, for the devices of the plan.
        name: of the graph, for people.
        devices: of a TensorFlow cluster, see `Devices`; None: this machine's.
        limit_s: begins no third turn after so many seconds.
        on_start: told what begins.

    Raises PlanError for a plan of another graph, MeasuringError if TensorFlow's placement is not
    known or one of the two does not run.
    """
    problem = loaded.problem
    if problem.default_device is None:
        raise MeasuringError(f"{name}: TensorFlow's own placement of it is not known")
    assert loaded.step is not None
    node_devices = map_nodes(plan, loaded.captured)
    placements = {
        WITHOUT: problem.default_device,
        WITH: place_by_nodes(problem, loaded.captured.node_op, node_devices),
    }
    if np.array_equal(placements[WITHOUT], placements[WITH]):
        return Comparison(plans=[plan], timed=name, emulated=emulated_here())
    with Measurer(loaded.step, problem, devices=devices, effort=EFFORT) as measurer:
        turns = take_turns_of_placements(
            measurer,
            placements,
            WITHOUT,
            limit_s=limit_s,
            on_start=on_start,
            is_known=is_decided,
        )
    return _compared([plan], turns, f"hplacer measure --graph {name}", name)


def _compared(plans: list[Plan], turns: Mapping[str, Turns], by: str, timed: str) -> Comparison:
    """With a verdict, if the ratio is known."""
    baseline, planned = turns[WITHOUT], turns[WITH]
    verdict = None
    if planned.known is not None or is_decided(planned.logarithms):
        verdict = Verdict.of_turns(baseline, planned, by)
        plans = [replace(plan, verdict=verdict) for plan in plans]
    return Comparison(
        plans=plans,
        timed=timed,
        baseline=baseline,
        planned=planned,
        verdict=verdict,
        emulated=emulated_here(),
    )


class _Starts:
    """Starts of the script, with a plan store of their own."""

    def __init__(self, trial: Trial, name: str, private: Path) -> None:
        self._trial, self._name, self._private = trial, name, private
        self._own: Options | None = None  # of the script
        self.tried: list[Plan] = []
        self.notes: list[str] = []

    def look(self) -> ScriptSteps:
        """With what is stored."""
        changes, behind = {"on_miss": "skip"} | self._changes(), None
        if self._trial.cache:
            changes["cache"] = f"{self._private};{self._trial.cache}"
        else:
            behind = str(default_directory())
        return self._switched_on(self._start(changes, steps=_FEW, behind=behind))

    def plan(self) -> ScriptSteps:
        """Plans what has no plan, as training would."""
        changes = {"on_miss": "plan"} | self._changes() | dict(self._trial.search)
        return self._switched_on(self._start(changes, steps=_FEW))

    def _switched_on(self, found: ScriptSteps) -> ScriptSteps:
        """Remembers the script's own options; raises MeasuringError if it has none."""
        if found.options is None:
            raise MeasuringError(
                f"{self._name}: switches the optimizer off, so that there is nothing to try"
            )
        self._own = Options.from_parameters(found.options)
        return found

    def run(self, which: str) -> ScriptSteps:
        """A timed start."""
        try:
            if which == WITHOUT:
                return self._start(None, steps=self._trial.steps)
            found = self._start({"on_miss": "skip"} | self._changes(), steps=self._trial.steps)
        except MeasuringError as error:
            raise MeasuringError(f"{error}; this was a start {which}") from None
        self._check_effect(found)
        return found

    def may_be_tried_as_it_runs(self, timed: str) -> bool:
        """Whether the plan of what is timed may be tried within one start, as far as is known now.

        Emulated devices leave out the script's own work, which starts tell.
        """
        is_one_function = len(self.tried) == 1 and timed != SESSION
        return is_one_function and self._trial.steps is None and emulated_here() is None

    def try_as_it_runs(self, limit_s: float) -> dict[str, Turns] | None:
        """Within one start; None: it could not be, or did not come to an end."""
        changes = self._changes() | {"on_miss": "trial", "min_gain": _ANY_GAIN}
        found = try_in_script(
            self._trial.command,
            directory=self._trial.directory,
            in_place=self._trial.in_place,
            free=[self._private],
            changes=changes,
            limit_s=limit_s,
        )
        if found is None:
            return None
        without_s, with_s = map(list, found.blocks_s)
        return {
            WITHOUT: Turns(times_s=without_s or [found.observed.baseline_s]),
            WITH: Turns(
                times_s=with_s or [found.observed.plan_s],
                logarithms=list(found.observed.logarithms),
                known=(found.speedup, found.low, found.high),
            ),
        }

    def plans(self) -> list[Plan]:
        """Those of training steps, without verdicts, the longest step first."""
        if not self._private.exists():
            return []
        store = PlanStore(str(self._private))
        found = []
        for fingerprint in store.fingerprints():
            data = store.read(fingerprint)
            assert data is not None
            plan = Plan.from_bytes(data, store.path(fingerprint))  # outlives this store
            if plan.verdict:
                store.restore(fingerprint)
            found.append(replace(plan, verdict=None))
        training = [plan for plan in found if _trains(plan)]
        return sorted(training, key=lambda plan: -(plan.baseline_ns or 0))

    def keep(self, plans: Sequence[Plan]) -> list[str]:
        """Puts them into the script's store; returns the paths."""
        assert self._own is not None
        cache = self._trial.cache or self._own.cache
        own = replace(self._own, cache=cache, **self._trial.options)
        store = PlanStore.from_options(own)
        paths = []
        for plan in plans:
            try:
                written = store.put(plan)
            except HPlacerError as error:
                self.notes.append(f"the verdict is not kept: {error}")
                continue
            if written:
                paths.append(store.path(plan.fingerprint))
            elif self._keeps_a_real_verdict(store, plan):
                self.notes.append(KEPT_REAL)
            else:
                self.notes.append(
                    f"the store keeps another plan for {plan.label} than the one that was measured"
                )
        return paths

    @staticmethod
    def _keeps_a_real_verdict(store: PlanStore, plan: Plan) -> bool:
        kept = store.get(plan.fingerprint)
        if kept is None or plan.verdict is None or not plan.places_as(kept):
            return False
        return not plan.verdict.replaces(kept.verdict) and plan.verdict.emulated is not None

    def _changes(self) -> dict[str, Any]:
        changes = {"cache": str(self._private), "min_gain": float(EVERY_PLAN)}
        return changes | dict(self._trial.options)

    def _start(
        self, changes: Mapping[str, Any] | None, *, steps: int | None, behind: str | None = None
    ) -> ScriptSteps:
        return time_script(
            self._trial.command,
            directory=self._trial.directory,
            in_place=self._trial.in_place,
            free=[self._private],
            steps=steps,
            changes=changes,
            behind=behind,
            limit_s=self._trial.limit_s,
        )

    def _check_effect(self, found: ScriptSteps) -> None:
        """Raises MeasuringError if a plan did not take effect."""
        fingerprints = {plan.fingerprint for plan in self.tried}
        seen = [report for report in found.reports if report["fingerprint"] in fingerprints]
        for report in seen:
            if report["outcome"] not in _IN_EFFECT:
                raise MeasuringError(
                    f"{self._name}: the plan for {report['label']} did not take effect: "
                    f"{report['reason'] or report['outcome']}"
                )
        if seen:
            return
        if any(report["trains"] for report in found.reports):
            raise MeasuringError(
                f"{self._name}: no graph of this start is that of the plan: it differs from start "
                "to start, or the plan is of another one"
            )
        if not found.devices:
            note = "the graph is placed elsewhere: whether the plan took effect is not known"
            self.notes = [note]
        elif not any(_is_executed(plan, found.devices) for plan in self.tried):
            raise MeasuringError(
                f"{self._name}: the plan did not take effect: the servers have placed the nodes "
                "that it moves elsewhere. The server behind a session's target needs this package"
            )


def _is_executed(plan: Plan, devices: Mapping[str, str]) -> bool:
    """Whether most of the nodes that a plan moves are where it wants them."""
    problem, node_op = plan.problem(), plan.node_op
    moved = np.ones(len(plan.node_names), bool)
    if problem is not None and node_op is not None and problem.default_device is not None:
        moved = plan.node_devices != problem.default_device[node_op]
    wanted = zip(plan.node_names, plan.node_devices.tolist(), moved.tolist(), strict=True)
    agree = [
        plan.device_names[device] == devices[name]
        for name, device, is_moved in wanted
        if is_moved and name in devices
    ]
    return bool(agree) and sum(agree) > len(agree) / 2


def _has_no_plan(found: ScriptSteps) -> bool:
    """Whether a graph that trains was looked up and not found."""
    return any(
        report["trains"] and report["reason"].startswith("no stored plan")
        for report in found.reports
    )


def _why_no_plan(found: ScriptSteps) -> str:
    reasons = list(_reasons(found))
    if reasons:
        return f"nothing was planned: {'; '.join(reasons)}"
    return (
        "nothing was planned: the optimizer saw no graph of it that could be placed. It needs two "
        "devices; of a session on servers, the one behind its target needs this package"
    )


def _reasons(found: ScriptSteps) -> Iterator[str]:
    for report in found.reports:
        if report["trains"] and report["outcome"] not in _IN_EFFECT:
            yield f"{report['label']}: {report['reason'] or report['outcome']}"


def _trains(plan: Plan) -> bool:
    """A plan without its problem is taken for one."""
    problem = plan.problem()
    return problem is None or applies_updates(problem.op_types)


def _is_default(plan: Plan) -> bool:
    """Whether it is TensorFlow's own placement."""
    problem, placement = plan.problem(), plan.placement
    if problem is None or problem.default_device is None or placement is None:
        return False
    return np.array_equal(problem.default_device, placement)
