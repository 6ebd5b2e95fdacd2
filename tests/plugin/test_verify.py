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
TRAIN = """
from hplacer_optimizer.plugin import verifying
from hplacer_optimizer.plans.store import PlanStore

on(verify=True, **OPTIONS)
step = trainer()
found = losses(step)
store = PlanStore(CACHE)
deadline = time.monotonic() + 120
while not verifying._verifier.is_over and time.monotonic() < deadline:
    step()
while time.monotonic() < deadline and not all(
    start.step_ns for name in store.started() for start in store.starts(name)
):
    time.sleep(0.02)
off()
report(same=found == losses(trainer()), outcomes=outcomes(),
       started=store.started(), stored=store.fingerprints())
"""


def train(directory: Path, code: str = TRAIN, **options: object) -> Outcome:
    return run(f"OPTIONS = {options!r}\n{code}", directory, log="info")


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


def test_a_start_that_cannot_be_named_or_measured_trains_all_the_same(tmp_path: Path) -> None:
    code = """
from hplacer_optimizer.plugin import verifying
from tensorflow.python.data.ops import dataset_ops

expected = losses(trainer())
os.mkdir("gone")
os.chdir("gone")
os.rmdir(os.getcwd())
on(verify=True)  # there is no working directory
found = losses(trainer())
os.chdir("/")
on(verify=True)

def fails(self):
    raise RuntimeError("a dataset of its own kind")
dataset = tf.data.Dataset.range(3)
type(dataset)._inputs = fails
report(same=found == expected, named=verifying._verifier is not None,
       numbers=[int(number) for number in dataset])
"""
    done = run(code, tmp_path)
    assert done.report == {"same": True, "named": True, "numbers": [0, 1, 2]}
    (line,) = [line for line in done.log if "option verify" in line]
    assert line.startswith("hplacer: option verify has no effect: FileNotFoundError")


def test_a_pinned_plan_takes_effect_in_every_start(tmp_path: Path) -> None:
    done = run("on()\nlosses(trainer())\nreport(path=plugin.history()[-1].store_path)", tmp_path)
    code = """
on(verify=True, plan=PATH)
losses(trainer())
report(outcomes=outcomes())
"""
    for _ in range(2):
        again = run(f"PATH = {done.report['path']!r}\n{code}", tmp_path)
        assert again.report["outcomes"] == ["loaded"]
    assert PlanStore(tmp_path / "cache").started() == []


SIZES = """
from hplacer_optimizer.measuring.training_steps import batches
from hplacer_optimizer.measuring.training_steps.step_observer import StepObserver
import keras

class Seen(StepObserver):
    def on_step(self, steps, call, is_enough):
        if len(steps.starts) == 2:
            seen.append(batches.describe(call))

seen = []
Seen().install()
batches.install()

def updating():
    weight = tf.Variable(normal([8, 1], 1))
    def update(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.matmul(x, weight) ** 2)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
    return update

def by_argument(size):
    step = tf.function(updating())
    for _ in range(2):
        step(tf.ones([size, 8]))

def by_iterator(dataset):
    update = updating()
    step = tf.function(lambda iterator: update(next(iterator)))
    iterator = iter(dataset.repeat())
    for _ in range(2):
        step(iterator)

def by_optional(dataset):
    update = updating()
    step = tf.function(lambda iterator: update(iterator.get_next_as_optional().get_value()))
    iterator = iter(dataset.repeat())
    for _ in range(2):
        step(iterator)

def by_keras(size):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(np.ones([50, 8], "f"), np.ones([50, 1], "f"), batch_size=size, epochs=2, verbose=0)

def by_feed(size):
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 8])
        v = v1.get_variable("v", [8, 1])
        loss = tf.reduce_mean(tf.matmul(x, v) ** 2)
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(2):
                session.run(train, {x: np.ones([size, 8])})

rows = tf.data.Dataset.from_tensor_slices(tf.ones([50, 8]))
found = {}
def collect(name, call):
    del seen[:]
    call()
    found[name] = seen[0]

for size in (7, 9):
    collect(f"argument {size}", lambda: by_argument(size))
    collect(f"dataset {size}", lambda: by_iterator(rows.shuffle(9).batch(size).prefetch(2)))
    collect(f"optional {size}", lambda: by_optional(rows.batch(size)))
    collect(f"static {size}", lambda: by_iterator(rows.batch(size, drop_remainder=True)))
    collect(f"keras {size}", lambda: by_keras(size))
    collect(f"feed {size}", lambda: by_feed(size))
batches._of_keras.clear()
unknown = lambda: by_iterator(tf.data.Dataset.from_generator(
    lambda: iter([np.ones([7, 8], "f")]), output_signature=tf.TensorSpec([None, 8])))
collect("generator", unknown)
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
    for name in ("argument", "dataset", "optional", "keras", "feed"):
        assert None not in (found[f"{name} 7"], found[f"{name} 9"]), name
        assert found[f"{name} 7"] != found[f"{name} 9"], name
    assert found["static 7"] is not None  # its graph holds the size, and so the fingerprint
