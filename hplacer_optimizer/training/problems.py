"""The problems that policies are trained on and compared on, by family.

Generated ones (`bench/generated.py`), and training graphs of `workloads/` in small sizes, which are
captured once and kept. A family has both: what is trained without a family sees nothing like it.
Or those of a plan store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.experiment import prepare
from hplacer_optimizer.bench.generated import generate
from hplacer_optimizer.bench.tasks import Task
from hplacer_optimizer.errors import OptionError, PlanError
from hplacer_optimizer.planners.colocation import scopes_of_units
from hplacer_optimizer.planners.native_search import cores
from hplacer_optimizer.planners.policies import BY_HAND, Portfolio
from hplacer_optimizer.plans.store import PlanStore

FAMILIES = {  # what `bench/generated.py` calls it, and the workloads that are like it
    "convolutional": ("branching", ("inception_v3", "resnet", "mobilenet_v2", "efficientnet_b0")),
    "layered": ("layered", ()),
    "recurrent": ("recurrent", ("rnnlm", "nmt")),
    "towers": ("towers", ("two_tower",)),
    "transformer": ("transformer", ("transformer", "bert_base")),
}
FIRST_SEED = 2000
"""Of generated problems to train on. Those below are for tests and comparisons."""
MOST_OPS = 3_000  # of generated problems to train on
_GRAPHS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("rnnlm", "papers-2xk40", {"layers": 2, "steps": 10, "hidden": 1024}),
    ("rnnlm", "8xa100", {"layers": 3, "steps": 8, "batch_size": 128}),
    ("rnnlm", "papers-4xk40", {"layers": 4, "steps": 8}),
    ("nmt", "papers-2xk40", {"layers": 2, "steps": 6}),
    ("nmt", "papers-4xk40", {"layers": 3, "steps": 5, "hidden": 512}),
    ("nmt", "8xv100", {"layers": 4, "steps": 4}),
    ("transformer", "8xa100", {"layers": 2}),
    ("transformer", "papers-2xk40", {"layers": 2, "batch_size": 16, "length": 128}),
    ("transformer", "papers-4xk40", {"layers": 3, "width": 1024, "heads": 16, "units": 4096}),
    ("bert_base", "papers-4xk40", {"layers": 3}),
    ("bert_base", "8xh200", {"layers": 4, "batch_size": 8}),
    ("two_tower", "papers-4xk40", {"features": 4, "batch_size": 8192}),
    ("two_tower", "8xv100", {"features": 12, "rows": 1_000_000}),
    ("two_tower", "papers-2xk40", {"features": 6, "layers": 5}),
    ("resnet", "papers-4xk40", {"depth": 50, "batch_size": 16}),
    ("inception_v3", "papers-4xk40", {"batch_size": 16}),
    ("mobilenet_v2", "papers-2xk40", {"batch_size": 16}),
)


@dataclass(frozen=True, kw_only=True)
class TrainingProblem:
    """A problem, and what policies set by hand reach on it.

    Attributes:
        name: of the problem.
        problem: to be placed.
        scope: int32[U], see `scopes_of_units`.
        reference_ns: the best step of policies set by hand with all kinds of items, and of single
            devices; infinite if none of them fits.
    """

    name: str
    problem: Problem
    scope: NDArray[np.int32]
    reference_ns: float

    @classmethod
    def of(cls, name: str, problem: Problem) -> TrainingProblem:
        """With the reference, which takes 60 rollouts."""
        scope = scopes_of_units(problem)
        step_ns = chain_steps_ns(problem, scope, Portfolio.of_all(*BY_HAND.policies))
        return cls(name=name, problem=problem, scope=scope, reference_ns=float(step_ns.min()))


def chain_steps_ns(
    problem: Problem, scope: NDArray[np.int32], portfolio: Portfolio, *, passes: int = 3
) -> NDArray[np.float64]:
    """What each chain reaches alone, or the best single device if that is quicker.

    float64[chains], ns; infinite if nothing fits the memories.
    """
    step_ns = _engine.rollout_chain_steps(
        problem,
        scope,
        portfolio.rows(),
        portfolio.chain_table(),
        passes=passes,
        threads=cores(),
    )
    at_most: NDArray[np.float64] = np.minimum(step_ns[1:], step_ns[0])
    return at_most


def training_set(
    directory: Path,
    *,
    generated: int = 12,
    leave_out: Collection[str] = (),
    on_problem: Callable[[str], None] = lambda name: None,
) -> list[TrainingProblem]:
    """The problems to train on.

    Args:
        directory: where captured graphs are kept as problem files, and looked for.
        generated: how many of each family are generated.
        leave_out: families (keys of FAMILIES) of which nothing is taken.
        on_problem: told the name of each.

    Raises OptionError for an unknown family.
    """
    for family in leave_out:
        if family not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise OptionError(f"family: unknown name '{family}'; there are {known}")
    families = [family for family in FAMILIES if family not in leave_out]

    def each() -> Iterator[tuple[str, Problem]]:
        yield from _generated(families, generated)
        for task in _captured(families):
            on_problem(task.name)
            yield task.name, prepare(task, directory)

    directory.mkdir(parents=True, exist_ok=True)
    return usable(each(), on_problem=on_problem)


def usable(
    named: Iterable[tuple[str, Problem]],
    *,
    on_problem: Callable[[str], None] = lambda name: None,
) -> list[TrainingProblem]:
    """With their references; left out is where policies set by hand find nothing that fits."""
    found = []
    for name, problem in named:
        on_problem(name)
        found.append(TrainingProblem.of(name, problem))
    return [problem for problem in found if np.isfinite(problem.reference_ns)]


def stored(
    store: PlanStore, *, on_left_out: Callable[[str], None] = lambda why: None
) -> Iterator[tuple[str, Problem]]:
    """The problem of each plan in a store, named by the plan's label and fingerprint.

    Args:
        store: of any number of layers; a plan that several have counts once.
        on_left_out: told of each file that cannot be read, or holds no problem, and why.

    Raises:
        StoreError: the store cannot be read.
    """
    seen = set()
    for entry in store.entries():
        try:
            problem = entry.plan.problem() if entry.plan else None
        except PlanError as error:
            on_left_out(str(error))
            continue
        if entry.plan is None or problem is None:
            on_left_out(entry.error or f"{entry.path}: the plan holds no problem")
        elif entry.fingerprint not in seen:
            seen.add(entry.fingerprint)
            yield f"{entry.plan.label} {entry.plan.short_fingerprint}", problem


def _generated(families: Sequence[str], count: int) -> Iterator[tuple[str, Problem]]:
    for family in families:
        for seed in range(FIRST_SEED, FIRST_SEED + count):
            problem = generate(FAMILIES[family][0], seed)
            if problem.num_ops <= MOST_OPS:
                yield f"{family}-{seed}", problem


def _captured(families: Sequence[str]) -> Iterator[Task]:
    workloads = [workload for family in families for workload in FAMILIES[family][1]]
    for workload, machine, parameters in _GRAPHS:
        if workload in workloads:
            sizes = "-".join(f"{key}{value}" for key, value in parameters.items())
            yield Task(
                name=f"{workload}-{sizes}-{machine}",
                title=workload,
                workload=workload,
                parameters=parameters,
                machine=machine,
            )
