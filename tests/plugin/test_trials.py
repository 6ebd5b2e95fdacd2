"""Option on_miss="trial": a plan proves itself in turns with TensorFlow's placement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from hplacer_optimizer.capture import native
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plans.verdict import FASTER, SLOWER
from tests.processes import Outcome, run

pytestmark = pytest.mark.skipif(native.is_missing(), reason="needs the native module _tf")

# A clock of its own: a step takes 100 ms, and with the plan so many ms more.
TRIAL = """
from hplacer_optimizer.plugin.trials import function_calls, process_trials
from hplacer_optimizer.plugin.trials.tried_function import Clock

now_s, with_plan = 1e6, 0
original = function_calls._run_under

def read():
    global now_s
    now_s += 0.05
    return now_s

def run_under(*arguments):
    global now_s, with_plan
    now_s, with_plan = now_s + MORE_MS / 1e3, with_plan + 1
    return original(*arguments)

process_trials._clock = lambda: Clock(now=read)
function_calls._run_under = run_under

def tries(**options):
    on(on_miss="trial", **{"min_gain": -0.9} | options)

def plan_first(make=None, calls=1, **options):
    "Stores the plan of what `make` makes, as a start before this one would have done."
    on(**options)
    function = (make or trainer)()
    for _ in range(calls):
        function()

def log_of(act, lines):
    with Recorder() as recorder:
        act()
        return recorder.lines(lines)
"""


def train(directory: Path, code: str, *, more_ms: float = -20, rules: Any = None) -> Outcome:
    variables = {} if rules is None else {"HPLACER_TRIAL_RULES": json.dumps(rules)}
    code = f"MORE_MS = {more_ms}\n{TRIAL}\n{code}"
    return run(code, directory, log="info", fresh=False, **variables)


RUN = """
plan_first()
off()
expected = losses(trainer(), 80)
tries()
step = trainer()
found = losses(step, 40)
halfway = with_plan
found += losses(step, 40)
report(same=np.allclose(found, expected, rtol=1e-5), outcomes=outcomes(),
       with_plan=[halfway, with_plan])
"""


def test_the_faster_plan_stays_and_the_next_start_has_it_from_its_first_call(
    tmp_path: Path,
) -> None:
    done = train(tmp_path, RUN)
    assert done.report["same"]
    assert done.report["outcomes"] == ["planned", "kept", "loaded"]
    halfway, in_all = done.report["with_plan"]
    # Of the first 40 calls some are with the plan, then all are.
    assert halfway < 30
    assert in_all - halfway > 20
    assert done.log[-1] == (
        "hplacer: function train_step: the plan is 1.25 times as fast "
        "(1.25 to 1.25, 36 steps measured); it stays"
    )
    store = PlanStore(tmp_path / "cache")
    (fingerprint,) = store.fingerprints()
    plan = store.get(fingerprint)
    assert plan is not None
    assert plan.verdict is not None
    assert (plan.verdict.outcome, plan.verdict.by) == (FASTER, "a trial in script.py")
    assert store.unfinished_trial(fingerprint) is None
    again = train(tmp_path, "tries()\nlosses(trainer())\nreport(outcomes=outcomes())")
    assert again.report["outcomes"] == ["loaded"]


def test_a_slower_plan_goes_and_the_next_start_leaves_it_alone(tmp_path: Path) -> None:
    done = train(tmp_path, RUN, more_ms=20)
    assert done.report["same"]
    halfway, in_all = done.report["with_plan"]
    assert 0 < halfway <= in_all < 30
    assert "the plan is 0.83 times as fast (0.83 to 0.83, " in done.log[-1]
    assert done.log[-1].endswith("TensorFlow's placement stays")
    again = train(tmp_path, "tries()\nlosses(trainer())\nreport(outcomes=outcomes())")
    assert again.report["outcomes"] == ["kept"]
    assert "so that the plan is retired" in again.log[-1]


def test_a_plan_that_is_twice_as_slow_is_dropped_at_once(tmp_path: Path) -> None:
    done = train(tmp_path, RUN, more_ms=150)
    assert done.report["with_plan"] == [7, 7]
    assert done.log[-1] == (
        "hplacer: function train_step: the plan is 0.40 times as fast (its first steps were "
        "enough to tell); TensorFlow's placement stays"
    )


def test_training_starts_at_once_and_the_plan_is_found_beside_it(tmp_path: Path) -> None:
    code = """
from hplacer_optimizer.plans.store import PlanStore
tries()
step = trainer()
deadline = time.monotonic() + 240
while plugin._service.trials._candidates[0:1] == [] or not with_plan:
    step()
    time.sleep(0.02)
    assert time.monotonic() < deadline
report(outcomes=outcomes(), stored=PlanStore(CACHE).fingerprints())
"""
    done = train(tmp_path, code, rules={"share": 10})  # busy cores cost it
    assert done.report["outcomes"][:2] == ["kept", "loaded"]
    assert len(done.report["stored"]) == 1
    assert done.log[:2] == [
        "hplacer: function train_step is left alone: a search for a plan runs beside training, and "
        "its plan is tried once it is found",
        "hplacer: random searches for a plan for function train_step beside training",
    ]


@pytest.mark.parametrize("bitwise", [False, True])
def test_switches_at_every_call_change_no_result(bitwise: bool, tmp_path: Path) -> None:
    """Of functions of several shapes, nested ones, and those of a tape, in several threads."""
    code = """
import numpy as np

def all_losses():
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.range(8), normal([8], 3)), 0.0)
    weight = tf.Variable(normal([8, 8], 1))
    numbers = iter(tf.data.Dataset.range(1000).repeat())
    outer = trainer("outer")
    generator = tf.random.Generator.from_seed(7)

    @tf.function
    def step(x):
        rows = tf.TensorArray(tf.float32, 3)
        for i in tf.range(3):
            rows = rows.write(i, tf.reduce_sum(tf.nn.relu(x @ weight)) * tf.cast(i, tf.float32))
        noise = tf.reduce_sum(generator.normal([4]))
        weight.assign(0.99 * weight)
        looked_up = table.lookup(tf.cast(next(numbers) % 8, tf.int32))
        return tf.reduce_sum(rows.stack()) + noise + looked_up + outer()

    forward = tf.function(lambda x: tf.reduce_mean(tf.nn.tanh(x @ weight) @ tf.transpose(weight)))
    found = []
    for number in range(12):
        x = normal([4 + number % 2, 8], number)
        found.append(float(step(x)))
        with tf.GradientTape() as tape:
            loss = forward(x)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        found.append(float(loss))
    return found + losses(outer)

off()
expected = all_losses()
on(min_ops=5, bitwise=BITWISE)
all_losses()
tries(min_ops=5, bitwise=BITWISE)
found = all_losses()
threads = [threading.Thread(target=losses, args=(trainer("outer"), 20)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
report(equal=found == expected, alike=np.allclose(found, expected, rtol=1e-5), calls=with_plan)
"""
    done = train(tmp_path, f"BITWISE = {bitwise}\n{code}", rules={"alternates": True})
    assert done.report["alike"]
    assert done.report["equal"] or not bitwise
    assert done.report["calls"] > 20  # those of threads may be counted as one
    assert not any("Error" in line for line in done.log)


def test_what_has_state_in_its_kernels_is_planned_before_it_runs(tmp_path: Path) -> None:
    code = """
def drops_out():
    weight = tf.Variable(normal([8, 8], 1))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.dropout(normal([4, 8], 2) @ weight, 0.5) ** 2)
        weight.assign_sub(tape.gradient(loss, weight))
        return loss
    return step

def of_session():
    with tf.Graph().as_default(), session(min_ops=5, min_gain=-0.9, on_miss="trial") as one:
        x = v1.placeholder(tf.float32, [4, 4])
        y = tf.reduce_sum(x @ x + x)
        for _ in range(10):
            y = y + tf.reduce_sum(tf.tanh(x) * y)
        one.run(tf.gradients(y, x)[0], {x: np.ones([4, 4])})

tries(min_ops=5, min_gain=-1.0)
losses(drops_out(), 5)
tries(min_ops=5)
losses(drops_out(), 5)
of_session()
report(outcomes=outcomes(), calls=with_plan)
"""
    done = train(tmp_path, code)
    assert done.report["calls"] == 0
    assert "planned" in done.report["outcomes"]
    text = "\n".join(done.log)
    assert "RandomUniform keeps state in its kernel, which would exist twice" in text
    planned = "session graph is planned before it runs, as it cannot be tried while it runs"
    assert f"{planned}: it is the graph" in text


def test_which_ops_keep_state_in_their_kernels(tmp_path: Path) -> None:
    code = """
from hplacer_optimizer.plugin.trials.kernel_state import keeps_state

KEEP = ["RandomUniform", "RandomStandardNormal", "RandomShuffle", "Multinomial", "FIFOQueueV2",
        "VariableV2", "VarHandleOp", "RandomDataset", "ExperimentalRandomDataset",
        "TemporaryVariable", "Stage"]
NOT = ["MatMul", "StatelessRandomNormalV2", "AssignVariableOp", "ReadVariableOp",
       "IteratorGetNext", "LookupTableFindV2", "TensorArrayV3", "TensorArrayWriteV3", "While",
       "StatefulPartitionedCall", "EagerPyFunc", "Assert", "RngReadAndSkip", "ShuffleDatasetV3",
       "TensorSliceDataset", "WriteScalarSummary", "TensorListSetItem", "no op of this name"]
report(keep=[keeps_state(name) for name in KEEP], others=[keeps_state(name) for name in NOT])
"""
    done = run(code, tmp_path)
    assert all(done.report["keep"])
    assert not any(done.report["others"])


@pytest.mark.parametrize("steps_per_execution", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_keras_trains_the_same_with_a_plan_that_is_tried(
    steps_per_execution: int, tmp_path: Path
) -> None:
    code = f"""
import keras

def fit():
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse", jit_compile=False, steps_per_execution={steps_per_execution})
    x = np.arange(60 * 4 * 8).reshape(-1, 8).astype("f") / 2000
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(4)
    return model.fit(data, epochs=3, verbose=0).history["loss"]

off()
expected = fit()
on()
fit()
tries()
found = fit()
report(same=np.allclose(found, expected, rtol=1e-4), with_plan=with_plan)
"""
    done = train(tmp_path, code, rules={"alternates": steps_per_execution > 1})
    assert done.report["same"]
    assert done.report["with_plan"] > 20
    if steps_per_execution == 1:
        (line,) = [line for line in done.log if "times as fast (" in line]
        assert line.endswith("it stays")


def test_a_failed_step_is_the_users_and_retires_the_plan(tmp_path: Path) -> None:
    code = """
plan_first()
tries()
step = trainer()
raised = []
fails = tf.errors.OutOfRangeError(None, None, "the input is over")

def failing(*arguments):
    raise fails

function_calls._run_under = failing
for _ in range(12):
    try:
        step()
    except tf.errors.OpError as error:
        raised.append(type(error).__name__)
        fails = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")
report(raised=raised)
"""
    done = train(tmp_path, code)
    assert done.report["raised"] == ["OutOfRangeError", "ResourceExhaustedError"]
    assert done.log[-1] == (
        "hplacer: function train_step: a step with the plan has failed, so that the plan is "
        "retired and the next start will not use it: ResourceExhaustedError: OOM when allocating"
    )
    store = PlanStore(tmp_path / "cache")
    plan = store.get(store.fingerprints()[0])
    assert plan is not None
    assert plan.verdict is not None
    assert plan.verdict.outcome == SLOWER


def test_a_plan_that_was_faster_until_it_failed_is_gone(tmp_path: Path) -> None:
    code = """
plan_first()
tries()
step = trainer()
fails_from, original_run = 10, function_calls._run_under

def failing(*arguments):
    if with_plan >= fails_from:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")
    return original_run(*arguments)

function_calls._run_under = failing
raised = 0
for _ in range(60):
    try:
        step()
    except tf.errors.OpError:
        raised += 1
report(raised=raised, with_plan=with_plan)
"""
    done = train(tmp_path, code)
    assert done.report == {"raised": 1, "with_plan": 10}


@pytest.mark.parametrize(
    "ends", ["sys.exit()", "raise KeyboardInterrupt", "raise ValueError('a bug')", "pass"]
)
def test_a_start_that_ends_in_the_middle_loses_nothing(ends: str, tmp_path: Path) -> None:
    code = f"""
plan_first()
tries()
losses(trainer(), 30)
report()
{ends}
"""
    returncode = {"raise K": -2, "raise V": 1}.get(ends[:7], 0)
    run(
        f"MORE_MS = -20\n{TRIAL}\n{code}", tmp_path, log="info", returncode=returncode, timeout_s=60
    )
    store = PlanStore(tmp_path / "cache")
    (fingerprint,) = store.fingerprints()
    unfinished = store.unfinished_trial(fingerprint)
    assert unfinished is not None
    assert len(unfinished.observations.logarithms) == 1
    done = train(tmp_path, "tries()\nlosses(trainer(), 60)\nreport()")
    assert "the plan is 1.25 times as fast (1.25 to 1.25, 40 steps measured)" in done.log[-1]
    store.remove(fingerprint)
    assert store.unfinished_trial(fingerprint) is None


def test_a_forked_child_tries_nothing(tmp_path: Path) -> None:
    code = """
plan_first()
tries()
step = trainer()
losses(step, 20)
before = with_plan
child = os.fork()
if not child:
    from hplacer_optimizer.plugin.trials import function_calls
    settled = [one.is_settled for one in function_calls._functions.values() if one]
    os._exit(0 if settled and all(settled) else 1)
_, status = os.waitpid(child, 0)
losses(step, 20)
report(status=status, before=before, after=with_plan)
"""
    done = train(tmp_path, code)
    assert done.report["status"] == 0
    assert done.report["after"] > done.report["before"]


def test_what_fails_inside_changes_nothing(tmp_path: Path) -> None:
    code = """
plan_first()
off()
expected = losses(trainer(), 20)
tries()
from hplacer_optimizer.measuring.running_trial import RunningTrial

def fails(self, now_s):
    raise RuntimeError("no trial today")

RunningTrial.next_call = fails
step = trainer()
found = losses(step, 20)

class Context:
    pass

report(same=found == expected, known=function_calls.install(Context, Clock(now=read)))
"""
    done = train(tmp_path, code)
    assert done.report == {"same": True, "known": False}
    assert [line for line in done.log if "cannot be tried" in line] == [
        "hplacer: function train_step keeps TensorFlow's own placement, as its plan cannot be "
        "tried: RuntimeError: no trial today"
    ]
