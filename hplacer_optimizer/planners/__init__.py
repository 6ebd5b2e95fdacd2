"""The planners by name: `PLANNERS[name].plan(problem, *, budget, seed, on_progress)`.

A planner of one's own has the same signature, and may return a plain int32[n].
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.planners import (
    auto,
    etf,
    heft,
    human_expert,
    local_search,
    metis,
    rollout,
    scotch,
    sct,
    simple,
    topo,
)
from hplacer_optimizer.planners.budget import Budget, Progress, ProgressCallback
from hplacer_optimizer.planners.learning import PRESETS, learn
from hplacer_optimizer.planners.result import Planner, PlannerResult, Watch
from hplacer_optimizer.support.keywords import close_name

__all__ = [
    "PLANNERS",
    "Budget",
    "Planner",
    "PlannerEntry",
    "PlannerResult",
    "Progress",
    "ProgressCallback",
    "check_planner_name",
    "get_planner",
    "is_own",
]

_SEED = re.compile(r"0|[1-9][0-9]{0,17}")
_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_OWN = re.compile(rf"{_DOTTED}:[A-Za-z_]\w*")


@dataclass(frozen=True, kw_only=True)
class PlannerEntry:
    """A planner and what it can do beyond planning by simulation."""

    plan: Callable[..., PlannerResult]
    """A `Planner`; one that learns also takes the keywords of `learn`."""
    summary: str = ""
    """What it does, in one line; of those in the table."""
    for_studies: bool = False
    """It shows what a part of another planner is worth; messages do not offer it."""
    learns: bool = False
    """It has hyperparameters, by `preset`, and its steps are updates of a policy."""
    preset: str | None = None
    """That of "NAME:PRESET", which the caller's does not change."""
    resumes: bool = False
    """It keeps what it learned in a `checkpoint`, and goes on from there."""
    logs: bool = False
    """It writes TensorBoard's event files to a `logdir`."""
    measures: bool = False
    """It can score placements by the time of steps that are run."""
    uses_host: bool = False
    """It may put on the host's CPU what can run on an accelerator, whatever that gains."""


def _learned(model: str, summary: str, *, for_studies: bool = False) -> PlannerEntry:
    return PlannerEntry(
        plan=functools.partial(learn, model=model),
        summary=summary,
        for_studies=for_studies,
        learns=True,
        resumes=True,
        logs=True,
        measures=True,
    )


PLANNERS: dict[str, PlannerEntry] = {
    "auto": PlannerEntry(
        plan=auto.plan,
        measures=True,
        summary="rollouts, then local search; the one to use",
    ),
    "colocrl": _learned(
        "colocrl", "learns to place groups that are given in advance (Mirhoseini et al., 2017)"
    ),
    "cpu_only": PlannerEntry(
        plan=simple.cpu_only,
        uses_host=True,
        summary="all on the first CPU",
    ),
    "etf": PlannerEntry(
        plan=etf.plan,
        summary="list scheduling by earliest start, within the memories; takes milliseconds",
    ),
    "gpu_only": PlannerEntry(
        plan=simple.gpu_only,
        uses_host=True,
        summary="all on the first GPU, and on the CPU what has no kernel there",
    ),
    "heft": PlannerEntry(
        plan=heft.plan,
        summary="list scheduling by earliest finish, most urgent op first",
    ),
    "hierarchical": _learned(
        "hierarchical", "learns to group ops and to place the groups, by policy gradient alone"
    ),
    "hierarchical_no_grouping": _learned(
        "hierarchical_no_grouping",
        "hierarchical, but it places each op by itself",
        for_studies=True,
    ),
    "hierarchical_random_grouping": _learned(
        "hierarchical_random_grouping",
        "hierarchical, but its groups are drawn at random",
        for_studies=True,
    ),
    "human_expert": PlannerEntry(
        plan=human_expert.plan,
        uses_host=True,
        summary="the rules that people use for known workloads, or those of a file",
    ),
    "local_search": PlannerEntry(
        plan=local_search.plan,
        measures=True,
        summary="moves parts of the best placement as long as the step gets shorter",
    ),
    "metis": PlannerEntry(
        plan=metis.plan,
        summary="one part of the graph for each accelerator, by METIS",
    ),
    "mincut": PlannerEntry(
        plan=scotch.mincut,
        summary="the graph mapped onto the machine without the CPU, by Scotch",
    ),
    "random": PlannerEntry(
        plan=simple.random,
        uses_host=True,
        summary="a device for each unit, drawn at random",
    ),
    "round_robin": PlannerEntry(
        plan=simple.round_robin,
        uses_host=True,
        summary="the devices in turn",
    ),
    "rollout": PlannerEntry(
        plan=rollout.plan,
        summary="placements along the step by a score of each device, parts decided again",
    ),
    "scotch": PlannerEntry(
        plan=scotch.scotch,
        summary="the graph mapped onto the machine, by Scotch",
    ),
    "sct": PlannerEntry(
        plan=sct.plan,
        summary="list scheduling with favourite children, from a linear program",
    ),
    "topo": PlannerEntry(
        plan=topo.plan,
        summary="ops in topological order fill one accelerator after the other",
    ),
}


def get_planner(name: str) -> PlannerEntry:
    """Returns an entry of the table, or one for one's own "package.module:function".

    "NAME:SEED" is the planner of that name with a seed that the caller's does not change,
    "NAME:PRESET" one that learns with the hyperparameters of a preset, "human_expert:FILE" the
    expert with the rules of a file. Raises OptionError, which lists the valid names, and what the
    reader of that file raises.
    """
    if name in PLANNERS:
        return PLANNERS[name]
    module_name, colon, function = name.partition(":")
    if module_name in PLANNERS and _SEED.fullmatch(function):
        return _with_seed(PLANNERS[module_name], int(function))
    if module_name in PLANNERS and PLANNERS[module_name].learns and function in PRESETS:
        return _with_preset(PLANNERS[module_name], function)
    if module_name == "human_expert" and function:
        return PlannerEntry(plan=human_expert.with_rules(function), uses_host=True)
    if not (module_name and colon and function):
        raise _unknown(name)
    try:
        planner = getattr(importlib.import_module(module_name), function)
    except (ImportError, AttributeError) as error:
        raise OptionError(
            f"planner: cannot load '{name}': {error}; valid are {_valid()}"
        ) from error
    if not callable(planner):
        raise OptionError(f"planner: '{name}' is not callable")
    return PlannerEntry(plan=_with_result(planner), uses_host=True)


def check_planner_name(name: str) -> None:
    """Raises OptionError for a name that no planner has; files and modules are not looked for."""
    known, colon, detail = name.partition(":")
    if not (name in PLANNERS or (known in PLANNERS and colon and detail) or is_own(name)):
        raise _unknown(name)


def _unknown(name: str) -> OptionError:
    close = close_name(name, PLANNERS)
    hint = f"did you mean '{close}'? " if close else ""
    return OptionError(f"planner: unknown name '{name}'; {hint}valid are {_valid()}")


def _valid() -> str:
    names = (name for name, entry in PLANNERS.items() if not entry.for_studies)
    return (
        f"{', '.join(sorted(names))}, 'NAME:SEED', 'hierarchical:paper', 'human_expert:FILE' "
        "or 'package.module:function'"
    )


def is_own(name: str) -> bool:
    """Whether it has the form of one's own planner; it may be missing, nothing is imported."""
    return name.partition(":")[0] not in PLANNERS and _OWN.fullmatch(name) is not None


def _with_seed(entry: PlannerEntry, pinned_seed: int) -> PlannerEntry:
    def plan(problem: Problem, *, seed: int = 0, **options: Any) -> PlannerResult:
        return entry.plan(problem, seed=pinned_seed, **options)

    return replace(entry, plan=plan)


def _with_preset(entry: PlannerEntry, preset: str) -> PlannerEntry:
    def plan(problem: Problem, **options: Any) -> PlannerResult:
        return entry.plan(problem, **{**options, "preset": preset})

    return replace(entry, plan=plan, preset=preset)


def _with_result(planner: Callable[..., Any]) -> Planner:
    """One's own planner, whatever it returns: a result or a plain placement."""

    def plan(
        problem: Problem,
        *,
        budget: Budget | None = None,
        seed: int = 0,
        on_progress: ProgressCallback | None = None,
    ) -> PlannerResult:
        watch = Watch(on_progress)
        answer = planner(problem, budget=budget, seed=seed, on_progress=watch)
        return answer if isinstance(answer, PlannerResult) else watch.result(answer)

    return plan
