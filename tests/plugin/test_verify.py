"""Option verify: starts time themselves, and a plan that does not pay is retired."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from hplacer_optimizer.capture import native
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plans.training_starts import Start
from tests.processes import Outcome, run

pytestmark = pytest.mark.skipif(native.is_missing(), reason="needs the native module _tf")

# A start ends once its steps are timed and remembered, as a training would go on after that.
SESSION = """
def trains(**options):
    "The step of a session on two devices, always with the same numbers."
    with tf.Graph().as_default() as graph:
        x = tf.constant(np.linspace(0, 1, 32, dtype="f").reshape(4, 8))
        towers = []
        for tower, activate in enumerate((tf.nn.relu, tf.nn.tanh)):
            start = np.linspace(-1, 1, 128, dtype="f").reshape(8, 16) + tower
            towers.append(activate(x @ v1.get_variable(f"w{tower}", initializer=start)))
        loss = tf.reduce_mean((towers[0] - towers[1]) ** 2)
        update = v1.train.GradientDescentOptimizer(0.01).minimize(loss)
        init = v1.global_variables_initializer()
    opened = session(graph, **options)
    opened.run(init)
    return lambda: opened.run([update, loss])[1]
"""
TRAIN = """
from hplacer_optimizer.plugin import verifying
from hplacer_optimizer.plans.store import PlanStore

step = trains(verify=True, **OPTIONS)
found = losses(step)
store = PlanStore(CACHE)
deadline = time.monotonic() + 120
while not verifying._verifier.is_over and time.monotonic() < deadline:
    step()
while time.monotonic() < deadline and not all(
    start.step_ns for name in store.started() for start in store.starts(name)
):
    time.sleep(0.02)
report(same=np.allclose(found, losses(trains()), rtol=1e-5), outcomes=outcomes(),
       started=store.started(), stored=store.fingerprints())
"""


def train(directory: Path, code: str = TRAIN, **options: object) -> Outcome:
    return run(f"OPTIONS = {options!r}\n{SESSION}\n{code}", directory, log="info")


def test_starts_take_turns_and_a_slow_plan_is_retired(tmp_path: Path) -> None:
    store = PlanStore(tmp_path / "cache")
    first, second = train(tmp_path), train(tmp_path)
    assert (first.report["outcomes"], second.report["outcomes"]) == (["planned"], ["kept"])
    assert first.report["same"]
    assert second.report["same"]
    assert "this start times TensorFlow's own placement (option verify)" in second.log[-1]
    (fingerprint,) = second.report["started"]
    planned, baseline = store.starts(fingerprint)
    assert (planned.applied, baseline.applied) == (True, False)
    assert planned.context == baseline.context  # they may be compared
    assert None not in (planned.step_ns, baseline.step_ns, planned.context)

    # As if the plan had been twice as slow in five starts more, on this machine and this script.
    step_ns = planned.step_ns or 0

    def slower(found: list[Start]) -> list[Start]:
        slow = [dataclasses.replace(planned, start=f"{n}", step_ns=step_ns + n) for n in range(5)]
        fast = [
            dataclasses.replace(baseline, start=f"b{n}", step_ns=step_ns // 2) for n in range(5)
        ]
        return [*slow, *fast]

    store.change_starts(fingerprint, slower)
    third = train(tmp_path)
    assert third.report["outcomes"] == ["loaded"]
    assert third.log[-1].endswith("the plan is retired")
    verdict = (plan := store.get(fingerprint)) and plan.verdict
    assert verdict is not None
    assert verdict.by == "option verify in 10 starts of script.py"

    fourth = train(tmp_path)
    assert fourth.report["outcomes"] == ["kept"]
    assert "so that the plan is retired" in fourth.log[-1]
    assert len(store.starts(fingerprint)) == 11  # nothing is timed any more

    store.restore(fingerprint)
    assert store.starts(fingerprint) == []
    assert train(tmp_path).report["outcomes"] == ["loaded"]
    store.remove(fingerprint)
    assert (store.starts(fingerprint), store.started()) == ([], [])


def test_a_guarded_plan_is_not_tried(tmp_path: Path) -> None:
    for _ in range(2):
        done = train(tmp_path, min_gain=None, planner="local_search", budget_s=0.2)
        assert done.report["outcomes"] == ["kept"]
        assert "this start" not in done.log[-1]
    (fingerprint,) = done.report["started"]
    found = PlanStore(tmp_path / "cache").starts(fingerprint)
    assert [(one.applied, one.moves, one.step_ns is None) for one in found] == [
        (False, False, False)
    ] * 2


def test_what_fails_inside_changes_nothing(tmp_path: Path) -> None:
    broken = """
from hplacer_optimizer.measuring.training_steps import batches
def describe(call):
    raise RuntimeError("no shapes today")
batches.describe = describe
"""
    done = train(tmp_path, broken + TRAIN.replace("while time.m", "while False and time.m"))
    assert done.report["same"]
    assert done.report["outcomes"] == ["planned"]
    assert [line for line in done.log if "not timed" in line] == [
        "hplacer: steps are not timed: RuntimeError: no shapes today"
    ]


def test_a_start_that_cannot_be_named_trains_all_the_same(tmp_path: Path) -> None:
    code = """
from hplacer_optimizer.plugin import verifying

expected = losses(trains())
os.mkdir("gone")
os.chdir("gone")
os.rmdir(os.getcwd())
step = trains(verify=True)  # there is no working directory
found = losses(step)
report(same=np.allclose(found, expected, rtol=1e-5), named=verifying._verifier is not None)
"""
    done = run(f"{SESSION}\n{code}", tmp_path)
    assert done.report == {"same": True, "named": False}
    (line,) = [line for line in done.log if "option verify" in line]
    assert line.startswith("hplacer: option verify has no effect: FileNotFoundError")


def test_a_pinned_plan_takes_effect_in_every_start(tmp_path: Path) -> None:
    code = "losses(trains(min_ops=5))\nreport(path=plugin.history()[-1].store_path)"
    done = run(f"{SESSION}\n{code}", tmp_path)
    code = """
losses(trains(verify=True, plan=PATH, min_ops=5))
report(outcomes=outcomes())
"""
    for _ in range(2):
        again = run(f"PATH = {done.report['path']!r}\n{SESSION}\n{code}", tmp_path)
        assert "loaded" in again.report["outcomes"]
    assert PlanStore(tmp_path / "cache").started() == []


def test_the_steps_of_functions_are_not_timed(tmp_path: Path) -> None:
    """A trial measures those."""
    code = """
on(verify=True)
losses(trainer(), 40)
report(outcomes=outcomes())
"""
    assert run(code, tmp_path).report["outcomes"] == ["planned"]
    assert PlanStore(tmp_path / "cache").started() == []


SIZES = """
from hplacer_optimizer.measuring.training_steps import batches
from hplacer_optimizer.measuring.training_steps.step_observer import StepObserver

class Seen(StepObserver):
    def on_step(self, steps, call, is_enough):
        if len(steps.starts) == 2:
            seen.append(batches.describe(call))

seen = []
Seen().install_sessions()

def size_of(make_x, feeds=lambda x: None):
    del seen[:]
    with tf.Graph().as_default():
        x = make_x()
        v = v1.get_variable("v", [8, 1])
        loss = tf.reduce_mean(tf.matmul(x, v) ** 2)
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(2):
                session.run(train, feeds(x))
    return seen[0]

def rows(size, **options):
    dataset = tf.data.Dataset.from_tensor_slices(tf.ones([50, 8])).shuffle(9)
    return v1.data.make_one_shot_iterator(dataset.batch(size, **options).repeat()).get_next()

def generated():
    signature = tf.TensorSpec([None, 8])
    dataset = tf.data.Dataset.from_generator(
        lambda: iter([np.ones([7, 8], "f")] * 9), output_signature=signature)
    return v1.data.make_one_shot_iterator(dataset).get_next()

found = {"generator": size_of(generated)}
for size in (7, 9):
    found[f"feed {size}"] = size_of(
        lambda: v1.placeholder(tf.float32, [None, 8]), lambda x: {x: np.ones([size, 8])})
    found[f"dataset {size}"] = size_of(lambda: rows(size))
    found[f"static {size}"] = size_of(lambda: rows(size, drop_remainder=True))
report(**found)
"""


def test_ops_are_named_as_tensorflow_names_them() -> None:
    import tensorflow as tf

    from hplacer_optimizer.measuring.training_steps import batches

    assert all(hasattr(tf.raw_ops, name) for name in batches._YIELDING)
    assert all(hasattr(tf.raw_ops, name) for name in batches._BATCHING)


def test_the_sizes_of_batches_are_seen(tmp_path: Path) -> None:
    found = run(SIZES, tmp_path).report
    assert found.pop("generator") is None
    for name in ("dataset", "feed"):
        assert None not in (found[f"{name} 7"], found[f"{name} 9"]), name
        assert found[f"{name} 7"] != found[f"{name} 9"], name
    assert found["static 7"] is not None  # its graph holds the size, and so the fingerprint
