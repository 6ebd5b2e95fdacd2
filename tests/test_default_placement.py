"""TensorFlow's own placement as a capture knows it, beside what runs without the optimizer.

A script runs without the optimizer, where TensorFlow's placer prints the device of every op and the
partitions that are executed are kept, and with it, where every graph keeps TensorFlow's placement
and its stored plan holds the default device of every op. All have to agree, op by op.
"""

from __future__ import annotations

import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.capture import native
from hplacer_optimizer.capture.loading import load_problem
from hplacer_optimizer.plans.store import PlanStore
from testbed.training_scripts import CASES, SCRIPTS
from tests import executed_graphs, processes
from tests.test_scripts import LAUNCHER

pytestmark = pytest.mark.skipif(native.is_missing(), reason="needs the native module _tf")

# No plan gains that much.
OPTIONS = "planner=random,min_ops=5,on_miss=plan,min_gain=1000000,cache={cache}"
FAST = {"device_annotations.py", "v1_session.py"}
LEAST_EXECUTED = 0.4  # of the ops of a plan that compute; mostly it is 0.6 to 0.9
MOSTLY_FOLDED = {"second_order.py": 0.25}  # TensorFlow's optimizers remove most of a graph
ONE_DEVICE = ("device_annotations.py", "keras_lstm.py", "loops.py")
_PLACED = re.compile(r"^(.+): \(\w+\): (/job:\S+)$", re.MULTILINE)


class Run(NamedTuple):
    """What TensorFlow's placer printed, and what was executed."""

    printed: str
    graphs: list[executed_graphs.Graph]


def scripts() -> Iterator[Any]:
    """All that train in their own process, and are planned."""
    for name, case in CASES.items():
        if not case.in_children and not case.left_alone:
            marks = [] if name in FAST else [pytest.mark.slow]
            yield pytest.param(name, case, id=name, marks=marks)


def run(name: str, directory: Path, **environment: str) -> Run:
    """The script in a process of its own."""
    executed = directory / "executed"
    done = processes.run_script(
        [LAUNCHER, str(directory / "report.json"), "1", str(SCRIPTS / name)],
        cwd=directory,
        environment=processes.clean_environment(directory)
        | executed_graphs.environment(executed)
        | environment,
    )
    assert (directory / "report.json").exists(), done.stderr
    return Run(done.stdout, executed_graphs.read(executed))


def stored_problems(store: Path) -> list[Problem]:
    """Those of all plans, each with TensorFlow's own placement as the baseline."""
    problems = []
    for entry in PlanStore(str(store)).list():
        assert entry.plan is not None
        assert entry.plan.baseline is not None
        problem = entry.plan.problem()
        assert problem is not None
        problems.append(problem)
    return problems


def check_placed(known: Mapping[str, str], printed: str) -> None:
    """Against the devices that the placer prints; a name that several graphs have may have some."""
    placed = defaultdict(set)
    for name, device in _PLACED.findall(printed):
        placed[name].add(device)
    common = known.keys() & placed.keys()
    assert len(common) > 0.95 * len(known)
    assert [name for name in common if known[name] not in placed[name]] == []


@pytest.mark.parametrize(("name", "case"), list(scripts()))
def test_it_is_what_runs_without_the_optimizer(name: str, case: Any, tmp_path: Path) -> None:
    if case.needs and importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"needs {case.needs}")
    alone = run(name, tmp_path, HPLACER_DISABLE="1", TEST_LOG_PLACEMENT="1")
    left_alone = run(name, tmp_path, HPLACER_OPTIONS=OPTIONS.format(cache=tmp_path / "plans"))

    problems = stored_problems(tmp_path / "plans")
    assert problems
    least = MOSTLY_FOLDED.get(name, LEAST_EXECUTED)
    for problem in problems:
        check_placed(executed_graphs.default_devices(problem), alone.printed)
        executed_graphs.check(problem, alone.graphs, least)
    assert left_alone.graphs == alone.graphs
    if name == "device_annotations.py":
        used = [set(executed_graphs.default_devices(problem).values()) for problem in problems]
        assert any(len(devices) == 2 for devices in used)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_DEVICE)
def test_a_script_with_one_device_runs_as_without_the_optimizer(name: str, tmp_path: Path) -> None:
    one = {"TEST_CPU_DEVICES": "1"}
    alone = run(name, tmp_path, HPLACER_DISABLE="1", **one)
    options = OPTIONS.format(cache=tmp_path / "plans")
    left_alone = run(name, tmp_path, HPLACER_OPTIONS=options, **one)
    assert left_alone.graphs == alone.graphs
    used = {device for graph in alone.graphs for devices in graph.values() for device in devices}
    assert used == {"/job:localhost/replica:0/task:0/device:CPU:0"}
    assert not (tmp_path / "plans").exists()  # there is nothing to place


def test_a_comparison_that_does_not_hold_fails() -> None:
    problem = load_problem("example")
    problem = problem.replace(default_device=np.arange(problem.num_ops, dtype=np.int32) % 2)
    known = executed_graphs.default_devices(problem)
    all_run = {name: {device} for name, device in known.items()}
    name, device = next(iter(known.items()))
    others = {other: devices for other, devices in all_run.items() if other != name}
    executed_graphs.check(problem, [others, all_run, all_run | {name: {"CPU:7"}}], 1)
    executed_graphs.check(problem, [others | {"new": {device}}], 1 - 1 / len(known))
    with pytest.raises(AssertionError, match=f"{len(known) - 1} of {len(known)} ops run"):
        executed_graphs.check(problem, [others], 1)
    for devices in ({"CPU:7"}, {device, "CPU:7"}):
        with pytest.raises(AssertionError, match=f"TensorFlow runs .*'{name}'.*CPU:7"):
            executed_graphs.check(problem, [others | {name: devices}], 0.5)
