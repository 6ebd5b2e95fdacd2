"""One fuzz case: a mutated file, loaded and, if it loads, put to use.

Case `index` of a seed is the same file whatever runs beside it. A case is correct if nothing but
the typed errors named here comes out, and if what was loaded survives saving.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer.errors import InfeasibleError, ProblemError
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.problem.problem_file import Problem, load_problem_file, save_problem
from hplacer_optimizer.problem.simulator import simulate
from tests.fuzz.mutations import (
    mutate_bytes,
    mutate_gzip,
    mutate_problem,
    mutate_text,
    mutate_tree,
)
from tests.fuzz.seeds import problem_document

__all__ = ["case_file", "run_case"]

_MAX_PLANNED_OPS = 200
_NEVER = 2**63
_PLANNERS = ("etf", "heft", "topo")
_ARRAYS = [name for name, value in vars(_engine.Problem).items() if isinstance(value, property)]


def case_file(seed: int, index: int) -> bytes:
    """The bytes of the file."""
    return _problem_file(Random(f"{seed}:{index}"))


def run_case(seed: int, index: int, folder: Path) -> str:
    """Runs one case with a file in `folder`.

    Returns "loaded", or what the file was refused for, without names and numbers. Raises what
    should not have come out.
    """
    path = folder / "case.hplacer.json"
    path.write_bytes(case_file(seed, index))
    try:
        _use_problem(path, Random(index))
    except ProblemError as error:
        message = str(error).replace(str(path), "")
        return re.sub(r"'.*?'|\".*?\"|-?\d+|last read.*", "", message, flags=re.DOTALL)[:120]
    return "loaded"


def _problem_file(random: Random) -> bytes:
    document = problem_document(random)
    tree_mutation = random.choice([mutate_problem, mutate_problem, mutate_tree])
    for _ in range(random.choice([0, 1, 1, 2, 3])):
        tree_mutation(random, document)
    text = json.dumps(document, ensure_ascii=random.random() < 0.5, indent=random.choice([None, 1]))
    level = random.randrange(6)
    if level == 0:
        for _ in range(random.randint(1, 3)):
            text = mutate_text(random, text)
    data = text.encode("utf-8", "surrogatepass")
    if level == 1:
        other = json.dumps(problem_document(random)).encode()
        for _ in range(random.randint(1, 3)):
            data = mutate_bytes(random, data, other)
    if level == 2:
        data = mutate_gzip(random, data)
    return data


def _use_problem(path: Path, random: Random) -> None:
    problem = load_problem_file(path)
    _place(problem, random)
    saved = path.with_name("saved.hplacer.json" + random.choice(["", ".gz"]))
    save_problem(problem, saved)
    again = load_problem_file(saved)
    for name in _ARRAYS:
        np.testing.assert_equal(getattr(again, name), getattr(problem, name), err_msg=name)


def _place(problem: Problem, random: Random) -> None:
    """Simulates a random placement and a planner's; neither may beat the lower bound."""
    placements: list[Sequence[int] | NDArray[np.int32]] = []
    if problem.num_devices > 0:
        devices = range(problem.num_devices)
        placements.append(random.choices(devices, k=problem.num_ops))
    bound_ns = 0
    if problem.num_ops <= _MAX_PLANNED_OPS:
        bound = _engine.lower_bound(problem)
        bound_ns = _NEVER if bound.ns is None else bound.ns
        with contextlib.suppress(InfeasibleError):
            placements.append(get_planner(random.choice(_PLANNERS)).plan(problem).placement)
    for placement in placements:
        trace = simulate(problem, placement)
        if trace.feasible:
            assert trace.makespan_ns is not None
            assert trace.makespan_ns >= bound_ns
