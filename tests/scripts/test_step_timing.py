"""The steps of real scripts, timed from inside, and what keeps a script from being timed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hplacer_optimizer.errors import MeasuringError
from hplacer_optimizer.measuring.training_steps.recording import SESSION, WARMUP, Recorder, Steps
from hplacer_optimizer.scripts import step_timing
from hplacer_optimizer.scripts.step_timing import time_script
from testbed.training_scripts import TIMED_SCRIPTS

LIMIT_S = 300.0
STEPS = {
    "custom_loop.py": "function train_step",
    "keras_fit.py": "function multi_step_on_iterator",
    "gan.py": "function train_critic",
    "v1_session.py": "session graph",
    "v1_monitored.py": "session graph",
    "two_workers.py": "session graph",
}
SLOW = STEPS.keys() - {"custom_loop.py"}


def named(name: str) -> object:
    return pytest.param(name, id=name, marks=[pytest.mark.slow] if name in SLOW else [])


@pytest.mark.parametrize("name", [*map(named, STEPS)])
def test_times_agree_with_a_stopwatch_in_the_script(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    for file in TIMED_SCRIPTS.glob("*.py"):
        shutil.copy(file, tmp_path)
    watch = tmp_path / "stopwatch.json"
    found = time_script([name, str(watch)], directory=tmp_path, steps=1_000, limit_s=LIMIT_S)
    stopwatch_s = json.loads(watch.read_text())
    # Without the pauses that the timer leaves out: on busy cores there are some.
    assert found.step_s <= stopwatch_s * 1.03
    if len(found.times_s) >= 55:  # none was left out
        assert found.step_s == pytest.approx(stopwatch_s, rel=0.03)
    assert found.name == STEPS[name]
    assert 0.3 < found.inside_share <= 1
    assert found.options is None  # it was off


# ---- scripts that cannot be timed ----


def failure_of(
    tmp_path: Path,
    code: str,
    limit_s: float = LIMIT_S,
    changes: dict[str, Any] | None = None,
) -> str:
    script = tmp_path / "work" / "train.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(code)
    before = contents(tmp_path)
    with pytest.raises(MeasuringError) as failed:
        time_script(["train.py"], directory=script.parent, changes=changes, limit_s=limit_s)
    assert contents(tmp_path) == before
    return str(failed.value)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_script_that_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = failure_of(tmp_path, "print('hello')\nraise SystemExit('no data')")
    assert said == (
        "train.py: failed with exit code 1 before its first training step "
        "(what it printed last is above)"
    )
    assert capfd.readouterr().err == "hello\nno data\n"


def test_a_script_that_a_signal_ends(tmp_path: Path) -> None:
    said = failure_of(tmp_path, "import os\nos.kill(os.getpid(), 9)")
    assert said == "train.py: was ended by SIGKILL before its first training step"


def test_a_script_that_reads_standard_input(tmp_path: Path) -> None:
    said = failure_of(tmp_path, "input('how many steps? ')")
    assert "failed with exit code 1 before its first training step; it read standard input" in said
    code = "import os, sys\nassert not os.isatty(sys.stdin.fileno())\nassert sys.stdin.read() == ''"
    said = failure_of(tmp_path, code)
    assert "ended without a training step" in said
    assert said.endswith("it read standard input, which is empty here")


def test_a_script_may_lead_a_group(tmp_path: Path) -> None:
    said = failure_of(tmp_path, "import os\nos.setpgrp()\nos.setpgid(0, 0)")
    assert "ended without a training step" in said


def test_a_script_that_never_trains(tmp_path: Path) -> None:
    for changes in (None, {"min_ops": 5}):  # with the optimizer off and on
        said = failure_of(tmp_path, "print(1)", changes=changes)
        assert "ended without a training step: it called no tf.function and ran no" in said


def test_a_script_that_never_ends(tmp_path: Path) -> None:
    code = "import subprocess, time\nsubprocess.Popen(['sleep', '600'])\ntime.sleep(600)"
    said = failure_of(tmp_path, code, limit_s=2.0)
    assert said == (
        "train.py: did not come to an end within 2 s (before its first training step): "
        "--time gives longer"
    )


@pytest.mark.parametrize(
    "change",
    [
        "open(path, 'a').write('more')",
        "os.remove(path)",
        "os.replace('train.py', path)",
        "shutil.rmtree(os.path.dirname(path))",
        "os.open(path, os.O_WRONLY | os.O_TRUNC)",
        "os.truncate(path, 0)",
    ],
)
def test_a_script_that_overwrites_something_elsewhere(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "res"))  # is free, but not `results`
    valuable = tmp_path / "results" / "model.bin"
    valuable.parent.mkdir()
    valuable.write_text("a year of training")
    code = f"import os, shutil\npath = {str(valuable)!r}\nprint(open(path).read())\n{change}"
    said = failure_of(tmp_path, code)
    assert "would overwrite " + str(tmp_path / "results") in said
    assert said.endswith("outside of its working directory: --in-place lets it")


def test_a_script_may_change_what_it_has_made(tmp_path: Path) -> None:
    code = f"""
import os, tempfile
for path in ({str(tmp_path / "new")!r}, os.path.join(tempfile.mkdtemp(), "new")):
    for _ in range(2):
        open(path, "w").write("mine")
    os.replace(path, path + "2")
    os.remove(path + "2")
"""
    assert "ended without a training step" in failure_of(tmp_path, code)


TRAIN = """
import os, sys, time
import tensorflow as tf
weights = tf.Variable(tf.random.normal((64, 64)))

@tf.function({options})
def train_step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.tanh(weights @ weights))
    weights.assign_sub(tape.gradient(loss, weights))
    return loss
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "options", "said"),
    [
        (
            "f = tf.function(lambda n: train_step() + n)\nfor n in range(20): f(n)",
            "",
            "of its 20 training steps only 0 can be timed, since TensorFlow traces the others",
        ),
        ("for _ in range(4): train_step()", "", "ended after 4 training steps; at least 9 are"),
        ("for _ in range(4): train_step()\nos._exit(0)", "", "ended after 4 training steps; at"),
        (
            "for _ in range(20): train_step()\nraise ValueError",
            "",
            "failed with exit code 1 after 20 training steps",
        ),
        (
            "for _ in range(20): train_step()",
            "jit_compile=True",
            "XLA compiles function train_step, which hides the ops from the optimizer: pass",
        ),
        (
            "f = tf.function(lambda: weights + 1, autograph=False)\nf()",
            "",
            "ended without a training step; it called function <lambda>, which update no variables",
        ),
        (
            "path = '{checkpoint}'\nfor _ in range(3): train_step()\n"
            "tf.train.Checkpoint(w=weights).write(path)",
            "",
            "would overwrite {checkpoint}.index",
        ),
    ],
    ids=[
        "traces",
        "ends early",
        "leaves",
        "fails late",
        "XLA",
        "no updates",
        "checkpoint elsewhere",
    ],
)
def test_a_script_with_tensorflow(tmp_path: Path, end: str, options: str, said: str) -> None:
    pytest.importorskip("tensorflow")
    checkpoint = str(tmp_path / "kept")
    Path(f"{checkpoint}.index").write_text("a year of training")
    found = failure_of(
        tmp_path, TRAIN.format(options=options) + end.replace("{checkpoint}", checkpoint)
    )
    assert said.replace("{checkpoint}", checkpoint) in found


FORKS = """
from multiprocessing import get_context

def train():
    import tensorflow as tf
    weights = tf.Variable(1.0)

    @tf.function
    def train_step():
        weights.assign_sub(0.1)

    for _ in range({steps}):
        train_step()

child = get_context("fork").Process(target=train)
child.start()
child.join()
"""


@pytest.mark.slow
@pytest.mark.parametrize("steps", [50, 10_000_000])
def test_a_script_that_trains_in_a_fork(tmp_path: Path, steps: int) -> None:
    pytest.importorskip("tensorflow")
    (tmp_path / "train.py").write_text(FORKS.replace("{steps}", str(steps)))
    found = time_script(["train.py"], directory=tmp_path, limit_s=LIMIT_S)
    assert found.name == "function train_step"


# ---- of what is left ----


def test_pauses_and_first_calls_are_left_out() -> None:
    lengths_s = np.full(20, 0.01)
    starts = np.concatenate([[0.0], np.cumsum(lengths_s)])
    starts[10:] += 5.0  # validation
    starts[15:] += 0.05  # traced again
    found = {
        "name": "f",
        "starts": starts.tolist(),
        "ends": (starts + 0.008).tolist(),
        "first_calls": [0, 15],
        "waits": [],
        "also": [],
        "reports": [],
        "devices": {},
        "own_work": None,
    }
    steps = step_timing._steps(found, None)
    assert steps.step_s == pytest.approx(0.01)
    assert len(steps.times_s) == 20 - WARMUP - 1 - 2
    assert steps.inside_share == pytest.approx(0.8)


def of_devices(
    tasks_s: Sequence[float], *, between_s: Mapping[int, float] | None = None, prepared: int = 0
) -> Steps:
    """A script that hands out a step in 1 ms, and its accelerator, which is busy for so long."""
    recorder = Recorder(len(tasks_s))
    steps = recorder.steps("key", "function f")
    steps.first_calls += [0, prepared]
    now_s = done_s = 0.0
    for number, task_s in enumerate(tasks_s):
        now_s += (between_s or {}).get(number, 0.0)
        looks = steps.add(now_s, now_s + 0.001)
        now_s += 0.001
        done_s = max(done_s, now_s) + task_s
        if looks:
            recorder.look(steps)
            if len(steps.starts) >= steps.next_wait:
                now_s = max(now_s, done_s)
                steps.waited(now_s)
    return steps


def test_devices_that_work_after_a_call_has_returned() -> None:
    """Calls say 1 ms; the rest of a step is waited for, also where a script ends early."""
    for count in (9, 12, 60, 1_000):
        steps = of_devices([0.01] * count)
        assert len(steps.lasts_s()) == len(steps.counted()) >= 5
        assert steps.lasts_s().mean() == pytest.approx(0.01, rel=0.05)
    assert len(of_devices([0.01] * 1_000).waits) < 25


def test_pauses_and_first_calls_of_devices_are_left_out() -> None:
    for disturbed in (
        of_devices([0.01] * 200, between_s={40: 5.0, 150: 3.0}),  # validation
        of_devices([0.01] * 200, between_s={70: 0.05}, prepared=70),  # traced again
        of_devices([0.01] * 69 + [1.0] + [0.01] * 130, prepared=69),
    ):
        assert disturbed.lasts_s().mean() == pytest.approx(0.01, rel=0.05)
        assert 100 < len(disturbed.lasts_s()) < 190
    # A script that reads its loss now and then waits for its devices, which is no pause.
    reads = of_devices([0.01] * 200, between_s=dict.fromkeys(range(8, 200, 8), 0.07))
    assert len(reads.lasts_s()) > 100


def test_what_is_within_calls_is_not_known_where_devices_work_on() -> None:
    steps = of_devices([0.01] * 30)
    found = {
        "name": "f",
        "starts": steps.starts,
        "ends": steps.ends,
        "first_calls": steps.first_calls,
        "waits": json.loads(json.dumps(steps.waits)),
        "also": [],
        "reports": [],
        "devices": {},
        "own_work": None,
    }
    timed = step_timing._steps(found, None)
    assert timed.inside_share is None
    assert step_timing._steps({**found, "name": SESSION}, None).inside_share is not None
    assert timed.step_s == pytest.approx(0.01, rel=0.05)
