"""One fuzz case: a mutated file, loaded and, if it loads, put to use.

Case `index` of a seed is the same file whatever runs beside it. A case is correct if nothing but
the typed errors named here comes out, and if what was loaded survives saving.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer.errors import InfeasibleError, MachineError, PlanError, ProblemError
from hplacer_optimizer.machines import load_machine, save_machine
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.problem.files import Problem, load_problem_file, save_problem
from hplacer_optimizer.problem.simulator import simulate
from tests.fuzz.mutations import (
    mutate_bytes,
    mutate_gzip,
    mutate_problem,
    mutate_text,
    mutate_tree,
)
from tests.fuzz.plan_files import plan_bytes, use_plan
from tests.fuzz.seeds import golden_problem, machine_text, problem_on, random_problem

__all__ = ["TARGETS", "case_file", "run_case"]

_MAX_PLANNED_OPS = 200
_YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NEVER = 2**63
_PLANNERS = ("etf", "heft", "topo")
_ARRAYS = [name for name, value in vars(_engine.Problem).items() if isinstance(value, property)]


def case_file(seed: int, index: int) -> tuple[str, bytes]:
    """The target's name and the bytes of the file."""
    random = Random(f"{seed}:{index}")
    target = list(TARGETS)[index % len(TARGETS)]
    return target, TARGETS[target][0](random)


def run_case(seed: int, index: int, folder: Path) -> str:
    """Runs one case with a file in `folder`.

    Returns "loaded", or what the file was refused for, without names and numbers. Raises what
    should not have come out.
    """
    target, data = case_file(seed, index)
    path = folder / f"case.{target}"
    path.write_bytes(data)
    try:
        TARGETS[target][1](path, Random(index))
    except (MachineError, PlanError, ProblemError) as error:
        message = str(error).replace(str(path), "")
        return re.sub(r"'.*?'|\".*?\"|-?\d+|last read.*", "", message, flags=re.DOTALL)[:120]
    return "loaded"


# ---- problem files ----


def _problem_file(random: Random) -> bytes:
    document = golden_problem() if random.random() < 0.05 else random_problem(random)
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
        other = json.dumps(random_problem(random)).encode()
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


# ---- machine files ----


def _machine_file(random: Random) -> bytes:
    text = machine_text(random)
    level = random.randrange(4)
    if level == 0:
        for _ in range(random.randint(1, 3)):
            text = mutate_text(random, text)
    if level in (1, 2):
        tree = yaml.load(text, _YAML_LOADER)
        for _ in range(random.choice([1, 1, 2, 3])):
            mutate_tree(random, tree)
        flow = random.choice([None, True, False])
        text = yaml.dump(tree, None, _YAML_DUMPER, sort_keys=False, default_flow_style=flow)
    data = text.encode("utf-8", "surrogatepass")
    if level == 3:
        other = machine_text(random).encode()
        for _ in range(random.randint(1, 3)):
            data = mutate_bytes(random, data, other)
    return data


def _use_machine(path: Path, random: Random) -> None:
    machine = load_machine(path)
    saved = path.with_name("saved.yaml")
    save_machine(machine, saved)
    assert load_machine(saved) == machine
    _place(problem_on(machine), random)


# By name, which is the file's suffix too: what makes a file, and what uses it.
TARGETS: dict[str, tuple[Callable[[Random], bytes], Callable[[Path, Random], Any]]] = {
    "hplacer.json": (_problem_file, _use_problem),
    "yaml": (_machine_file, _use_machine),
    "hplan": (plan_bytes, use_plan),
}
