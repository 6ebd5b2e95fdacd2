"""TensorFlow's own placement as a capture knows it, beside what runs without the optimizer.

A script runs without the optimizer, where TensorFlow's placer prints the device of every op, and
with it, where every graph keeps TensorFlow's placement and its stored plan holds the default device
of every op. Both have to agree, op by op.
"""

from __future__ import annotations

import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from hplacer_optimizer.capture import native
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore
from tests import processes
from tests.test_scripts import CASES, LAUNCHER, SCRIPTS

pytestmark = pytest.mark.skipif(native.is_missing(), reason="needs the native module _tf")

OPTIONS = "planner=random,min_ops=5,min_gain=1000000,cache={cache}"  # no plan gains that much
FAST = {"device_annotations.py", "v1_session.py"}
_PLACED = re.compile(r"^(.+): \((\w+)\): (/job:\S+)$", re.MULTILINE)


def scripts() -> Iterator[Any]:
    """All that train in their own process."""
    for name, case in CASES.items():
        if not case.in_children:
            marks = [] if name in FAST else [pytest.mark.slow]
            yield pytest.param(name, case, id=name, marks=marks)


def run(name: str, directory: Path, **environment: str) -> str:
    """What it prints, in a process of its own."""
    done = processes.run_script(
        [LAUNCHER, str(directory / "report.json"), "1", str(SCRIPTS / name)],
        cwd=directory,
        environment=processes.clean_environment(directory) | environment,
    )
    assert (directory / "report.json").exists(), done.stderr
    return done.stdout


def differences(plan: Plan, placed: dict[tuple[str, str], set[str]]) -> Iterator[tuple[str, ...]]:
    """Ops that run elsewhere; a name that several graphs have may be in several places."""
    problem = plan.problem()
    assert problem is not None
    assert problem.default_device is not None
    for name, kind, device in zip(
        problem.op_names, problem.op_types, problem.default_device.tolist(), strict=True
    ):
        found = placed.get((name, kind))
        if kind != "WhileLoop" and found is not None and plan.device_names[device] not in found:
            yield name, plan.device_names[device], *found


@pytest.mark.parametrize(("name", "case"), list(scripts()))
def test_it_is_what_runs_without_the_optimizer(name: str, case: Any, tmp_path: Path) -> None:
    if case.needs and importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"needs {case.needs}")
    printed = run(name, tmp_path, HPLACER_DISABLE="1", LOG_PLACEMENT="1")
    placed: dict[tuple[str, str], set[str]] = defaultdict(set)
    for op, kind, device in _PLACED.findall(printed):
        placed[op, kind].add(device)
    run(name, tmp_path, HPLACER_OPTIONS=OPTIONS.format(cache=tmp_path / "plans"))

    plans = [entry.plan for entry in PlanStore(str(tmp_path / "plans")).list()]
    assert plans
    for plan in plans:
        assert plan is not None
        assert plan.baseline is not None
        problem = plan.problem()
        assert problem is not None
        ops = list(zip(problem.op_names, problem.op_types, strict=True))
        known = sum(op in placed for op in ops)
        loops = sum(kind == "WhileLoop" for _, kind in ops)
        assert known > 0.95 * (len(ops) - loops)
        assert list(differences(plan, placed)) == []
    if name == "device_annotations.py":
        found = [plan.problem() for plan in plans if plan]
        used = [set(p.default_device.tolist()) for p in found if p and p.default_device is not None]
        assert {0, 1} in used
