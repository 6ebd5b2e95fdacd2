"""The planners by name: `plan(problem, *, budget, seed, on_progress) -> int32[n]`."""

from __future__ import annotations

import importlib
import re
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.planners import (
    auto,
    etf,
    exact,
    heft,
    human_expert,
    learned,
    local_search,
    metis,
    scotch,
    sct,
    simple,
    topo,
)
from hplacer_optimizer.planners.budget import Budget, Planner, Progress, ProgressCallback
from hplacer_optimizer.planners.notes import collect_notes
from hplacer_optimizer.planners.proofs import collect_proofs
from hplacer_optimizer.problem.bounds import Proof, StepBound, strongest

__all__ = [
    "PLANNERS",
    "Budget",
    "Planner",
    "Progress",
    "ProgressCallback",
    "Proof",
    "StepBound",
    "collect_notes",
    "collect_proofs",
    "get_planner",
    "strongest",
]

_SEED = re.compile(r"0|[1-9][0-9]{0,17}")

PLANNERS: dict[str, Planner] = {
    "auto": auto.plan,
    "colocrl": learned.learned("colocrl"),
    "cpu_only": simple.cpu_only,
    "etf": etf.plan,
    "exact": exact.plan,
    "gpu_only": simple.gpu_only,
    "heft": heft.plan,
    "hierarchical": learned.learned("hierarchical"),
    "hierarchical_no_grouping": learned.learned("hierarchical_no_grouping"),
    "hierarchical_random_grouping": learned.learned("hierarchical_random_grouping"),
    "human_expert": human_expert.plan,
    "local_search": local_search.plan,
    "metis": metis.plan,
    "mincut": scotch.mincut,
    "random": simple.random,
    "round_robin": simple.round_robin,
    "scotch": scotch.scotch,
    "sct": sct.plan,
    "topo": topo.plan,
}


def get_planner(name: str) -> Planner:
    """Returns a planner of the table, or one's own as "package.module:function".

    "NAME:SEED" is the planner of that name with a seed that the caller's does not change,
    "human_expert:FILE" the expert with the rules of a file. Raises OptionError, which lists the
    valid names.
    """
    if name in PLANNERS:
        return PLANNERS[name]
    module_name, colon, function = name.partition(":")
    if module_name in PLANNERS and _SEED.fullmatch(function):
        return _with_seed(PLANNERS[module_name], int(function))
    if module_name == "human_expert" and function:
        return human_expert.with_rules(function)
    valid = (
        f"{', '.join(sorted(PLANNERS))}, 'NAME:SEED', 'human_expert:FILE' or "
        "'package.module:function'"
    )
    if not (module_name and colon and function):
        raise OptionError(f"planner: unknown name '{name}'; valid are {valid}")
    try:
        planner = getattr(importlib.import_module(module_name), function)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"planner: cannot load '{name}': {error}; valid are {valid}") from error
    if not callable(planner):
        raise OptionError(f"planner: '{name}' is not callable")
    return cast(Planner, planner)


def _with_seed(planner: Planner, pinned_seed: int) -> Planner:
    def plan(
        problem: Problem,
        *,
        budget: Budget | None = None,
        seed: int = 0,
        on_progress: ProgressCallback | None = None,
    ) -> NDArray[np.int32]:
        return planner(problem, budget=budget, seed=pinned_seed, on_progress=on_progress)

    return plan
