"""Families of problems: generated ones, and small training graphs that are like them.

Generated ones are those of `generated.py`; training graphs of `workloads/` in small sizes are
captured once and kept. A family has both: what was made without a family has seen nothing like it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.experiment import prepare
from hplacer_optimizer.bench.generated import generate
from hplacer_optimizer.bench.tasks import Task
from hplacer_optimizer.errors import OptionError

FAMILIES = {  # what `generated.py` calls it, and the workloads that are like it
    "convolutional": ("branching", ("inception_v3", "resnet", "mobilenet_v2", "efficientnet_b0")),
    "layered": ("layered", ()),
    "recurrent": ("recurrent", ("rnnlm", "nmt")),
    "towers": ("towers", ("two_tower",)),
    "transformer": ("transformer", ("transformer", "bert_base")),
}
FIRST_SEED = 2000
"""Of the generated problems here. Those below are for tests and comparisons."""
MOST_OPS = 3_000  # of the generated problems here
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


def problems_of(
    directory: Path, *, generated: int = 12, leave_out: Collection[str] = ()
) -> Iterator[tuple[str, Problem]]:
    """Problems by name, family by family.

    Args:
        directory: where captured graphs are kept as problem files, and looked for.
        generated: how many of each family are generated.
        leave_out: families (keys of FAMILIES) of which nothing is taken.

    Raises OptionError for an unknown family.
    """
    for family in leave_out:
        if family not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise OptionError(f"family: unknown name '{family}'; there are {known}")
    families = [family for family in FAMILIES if family not in leave_out]
    yield from _generated(families, generated)
    directory.mkdir(parents=True, exist_ok=True)
    for task in _captured(families):
        yield task.name, prepare(task, directory)


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
