"""Whatever goes wrong, training goes on as without the optimizer, and one warning says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from tests.processes import OWN_PLANNERS, Outcome, has_ended, run, wait_for

BAD_PLANNERS = (
    OWN_PLANNERS
    + """
import ctypes, json, os, threading, time

def raises(problem, **_):
    raise ValueError("no idea")

def exits(problem, **_):
    raise SystemExit(3)

def interrupts(problem, **_):
    raise KeyboardInterrupt

def returns_nothing(problem, **_):
    return None

def wrong_length(problem, **_):
    return np.zeros(problem.num_ops + 1, np.int32)

def wrong_dtype(problem, **_):
    return np.zeros(problem.num_ops, np.float64)

def out_of_range(problem, **_):
    return np.full(problem.num_ops, 7, np.int32)

def splits_a_group(problem, **_):
    result = last(problem)
    for op in range(problem.num_ops):
        mates = np.flatnonzero(problem.units == problem.units[op])
        if len(mates) > 1 and problem.allowed_ptr[op + 1] - problem.allowed_ptr[op] > 1:
            result[mates] = 0
            result[mates[-1]] = 1
            return result
    raise AssertionError("the graph has no group that could be split")

def forbidden_device(problem, **_):
    return np.ones(problem.num_ops, np.int32)

# ---- planners that do not return ----

def spins(problem, **_):
    while True:
        pass

def sleeps(problem, **_):
    time.sleep(1000)

def heeds(problem, *, budget, **_):
    open("heeding", "w").close()
    while not budget.stopped:
        time.sleep(0.01)
    return last(problem)

# ---- planners that do something to their process ----

def ends_its_process(problem, **_):
    os._exit(7)

def ends_its_thread(problem, **_):
    ctypes.CDLL(None).pthread_exit(None)

def crashes(problem, **_):
    ctypes.string_at(0)

def eats_memory(problem, **_):
    eaten = []
    while True:
        eaten.append(np.empty(2**27))  # which it does not even use

def forks(problem, **_):
    "Its child lives on, beyond the answer, and would answer as well."
    if os.fork() == 0:
        open("forked", "w").write(str(os.getpid()))
        time.sleep(1000)
    while not os.path.exists("forked") or not open("forked").read():
        time.sleep(0.01)
    return last(problem)

# ---- planners that use TensorFlow ----

def use_tensorflow():
    import tensorflow as tf

    found = {}
    x = tf.Variable(2.0)

    @tf.function
    def many(y):
        for _ in range(30):
            y = y * x + 1.0
        return y

    with tf.GradientTape() as tape:
        y = many(tf.constant(0.0))
    found["function"] = float(y)
    found["gradient_is_positive"] = float(tape.gradient(y, x)) > 0
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        z = tf.compat.v1.placeholder(tf.float32, [])
        w = z
        for _ in range(30):
            w = w + z
        found["session"] = float(session.run(w, {z: 1.0}))
    with open("found", "a") as file:
        print(json.dumps(found), file=file)

def uses_tensorflow(problem, **_):
    use_tensorflow()
    return last(problem)

def uses_tensorflow_in_a_thread(problem, **_):
    thread = threading.Thread(target=use_tensorflow)
    thread.start()
    thread.join()
    return last(problem)
"""
)


def write_planners(directory: Path) -> Path:
    (directory / "bad.py").write_text(BAD_PLANNERS)
    return directory


def assert_ends_soon(outcome: Outcome) -> None:
    """Between the last line of the program and the end of its process."""
    assert outcome.ended - outcome.report["ended"] < 30
    for word in ("Fatal", "terminate called", "core dumped", "Exception in thread"):
        assert word not in outcome.stderr


# ---- planners that fail or return nonsense ----

REASONS = {
    "bad:raises": "ValueError: no idea",
    "bad:exits": "SystemExit: 3",
    "bad:interrupts": "KeyboardInterrupt",
    "bad:returns_nothing": "placement",
    "bad:wrong_length": "placement",
    "bad:wrong_dtype": "placement",
    "bad:out_of_range": "placement",
    "bad:splits_a_group": "from its colocation group",
    "bad:forbidden_device": "where it may not run",
    "bad:ends_its_process": "ended without a result, with exit code 7",
    "bad:crashes": "SIGSEGV",
    "bad:eats_memory": "MemoryError",
    "bad:is_missing": "cannot load 'bad:is_missing'",
    "no_such_module:plan": "cannot load 'no_such_module:plan'",
}


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One process in which one planner after the other fails, by planner."""
    directory = write_planners(tmp_path_factory.mktemp("failures"))
    code = f"""
def trainer(name="train_step"):
    "A step with a product and its bias, which TensorFlow fuses: a unit of several ops."
    x, w, b = normal([4, 8], 1), tf.Variable(normal([8, 8], 2)), tf.Variable(normal([8], 3))

    def step():
        with tf.GradientTape() as tape:
            y = x
            for _ in range(3):
                y = tf.nn.relu(tf.nn.bias_add(tf.matmul(y, w), b))
            loss = tf.reduce_mean(y ** 2)
        for variable, change in zip([w, b], tape.gradient(loss, [w, b])):
            variable.assign_sub(0.01 * change)
        return loss

    step.__name__ = name
    return tf.function(step)

expected = losses(trainer())
cases = {{}}
for number, planner in enumerate({list(REASONS)}):
    on(planner=planner, timeout_s=20)
    start = len(plugin.history())
    with Recorder() as recorder:
        function = trainer(name=f"step_{{number}}_")
        equal = losses(function) == expected
        log = recorder.lines(1)
    cases[planner] = {{"equal": equal, "log": log, "history": history_since(start)}}
report(cases=cases)
"""
    cases: dict[str, Any] = run(code, directory).report["cases"]
    return cases


@pytest.mark.parametrize("planner", REASONS)
def test_a_planner_that_fails(failures: dict[str, Any], planner: str) -> None:
    case = failures[planner]
    assert case["equal"], "the numbers changed"
    (line,) = case["log"]
    assert "keeps TensorFlow's own placement" in line
    assert REASONS[planner] in line
    assert [entry["outcome"] for entry in case["history"]] == ["failed"]
    assert case["history"][0]["placed"] == 0


# ---- planners that do not return ----


def test_an_endless_planner_is_stopped_and_the_next_one_plans(tmp_path: Path) -> None:
    outcome = run(
        """
expected = losses(trainer())
on(planner="bad:spins", timeout_s=1.0)
started = time.monotonic()
equal = losses(trainer()) == expected
waited = time.monotonic() - started
deadline = time.monotonic() + 30
while any(t.name == "hplacer-planner" for t in threading.enumerate()):
    assert time.monotonic() < deadline, "the planner's thread is still running"
    time.sleep(0.05)
on(planner="own:last", timeout_s=20)
good = losses(trainer("other"))
report(equal=equal, waited=waited, good=np.allclose(good, expected, rtol=1e-5), outcomes=outcomes())
""",
        write_planners(tmp_path),
    )
    assert outcome.report["equal"]
    assert outcome.report["good"]
    assert 1.0 <= outcome.report["waited"] < 30
    assert outcome.report["outcomes"] == ["failed", "planned"]
    (line,) = outcome.log
    assert "timeout_s" in line


@pytest.mark.parametrize("planner", ["sleeps", "ends_its_thread"])
def test_a_planner_that_never_answers(tmp_path: Path, planner: str) -> None:
    outcome = run(
        f"""
expected = losses(trainer())
on(planner="bad:{planner}", timeout_s=1.0)
started = time.monotonic()
first = losses(trainer())
waited = time.monotonic() - started
on(planner="own:last")
second = losses(trainer("other"))
report(equal=np.allclose([first, second], [expected] * 2, rtol=1e-5), outcomes=outcomes(),
       waited=waited, ended=time.time())
""",
        write_planners(tmp_path),
    )
    assert outcome.report["equal"]
    assert outcome.report["outcomes"] == ["failed", "planned"]
    assert 1.0 <= outcome.report["waited"] < 30
    (line,) = outcome.log
    assert "timeout_s" in line
    assert_ends_soon(outcome)


def test_a_planner_that_is_late_but_stops_leaves_its_plan(tmp_path: Path) -> None:
    outcome = run(
        """
on(planner="bad:heeds", timeout_s=3.0)
losses(trainer())
deadline = time.monotonic() + 300
while not any(name.endswith(".hplan") for _, _, names in os.walk(CACHE) for name in names):
    assert time.monotonic() < deadline, "nothing was stored"
    time.sleep(0.05)
losses(trainer())
report(outcomes=outcomes())
""",
        write_planners(tmp_path),
    )
    assert outcome.report["outcomes"] == ["failed", "loaded"]


def test_what_a_planner_has_started_ends_with_it(tmp_path: Path) -> None:
    outcome = run(
        """
on(planner="bad:forks")
losses(trainer())
report(outcomes=outcomes(), child=int(open("forked").read()))
""",
        write_planners(tmp_path),
    )
    assert outcome.report["outcomes"] == ["planned"]
    wait_for(lambda: has_ended(outcome.report["child"]))


# ---- planners that use TensorFlow ----


@pytest.mark.parametrize("planner", ["uses_tensorflow", "uses_tensorflow_in_a_thread"])
def test_a_planner_may_use_tensorflow(tmp_path: Path, planner: str) -> None:
    outcome = run(
        f"""
expected = losses(trainer())
on(planner="bad:{planner}", timeout_s=120.0)
planned = losses(trainer())
report(found=[json.loads(line) for line in open("found")], outcomes=outcomes(),
       graphs=[entry.graph for entry in plugin.history()],
       equal=np.allclose(planned, expected, rtol=1e-5))
""",
        write_planners(tmp_path),
    )
    right = {"function": 2.0**30, "gradient_is_positive": True, "session": 31.0}
    assert outcome.report["found"] == [right]
    assert outcome.report["graphs"] == ["function train_step"]
    assert outcome.report["outcomes"] == ["planned"]
    assert outcome.report["equal"]
    assert outcome.log == []


# ---- devices that are not planned ----


@pytest.mark.slow
def test_an_op_that_is_pinned_to_a_device_of_xla(tmp_path: Path) -> None:
    code = """
def pinned():
    w = tf.Variable(normal([8, 8], 1))

    def train_step():
        x = normal([4, 8], 5)
        with tf.GradientTape() as tape:
            with tf.device("/device:XLA_CPU:0"):
                y = tf.matmul(x, w, name="product")
            loss = tf.reduce_mean(tf.tanh(y) ** 2)
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    return tf.function(train_step)

alone = losses(pinned())
on()
report(alone=alone, with_it=losses(pinned()))
"""
    flags = "--tf_xla_enable_xla_devices"
    seen = run(code, tmp_path, fresh=True, TF_XLA_FLAGS=flags)
    assert seen.report["with_it"] == seen.report["alone"]
    assert seen.log == [
        "hplacer: function train_step keeps TensorFlow's own placement: "
        "no device that is known here can run op product (MatMul)"
    ]


# ---- the plan store ----

# What the warning says, and whether the plan that was made replaces what was there.
STORES = {
    "below_a_file": ("choose another directory", None),
    "is_a_file": ("choose another directory", None),
    "proc": ("choose another one", None),
    "damaged": ("", True),
    "truncated": ("", True),
    "foreign": ("", True),
    "newer": ("newer", False),
    "shared": ("chmod go-w", None),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One process per use of one store that cannot serve, by case."""
    directory = tmp_path_factory.mktemp("stores")
    code = f"""
import dataclasses, pathlib, re
base = pathlib.Path({str(directory)!r})
expected = losses(trainer())

def try_store(cache, name):
    on(cache=str(cache))
    start = len(plugin.history())
    with Recorder() as recorder:
        first = losses(trainer(name))
        on(cache=str(cache), seed=1)  # the same graph once more, in the same process
        second = losses(trainer(name))
        log = recorder.lines(1)
    return {{"equal": np.allclose([first, second], [expected] * 2, rtol=1e-5), "log": log,
             "history": history_since(start)}}

on()
losses(trainer())
key = plugin.history()[-1].fingerprint
good = (pathlib.Path(CACHE) / (key + ".hplan")).read_bytes()
plan = hp.PlanStore(CACHE).get(key)

def store_with(name, data, mode=0o700):
    (base / name).mkdir()
    (base / name).chmod(mode)
    path = base / name / (key + ".hplan")
    path.write_bytes(data)
    path.chmod(0o600)
    return base / name

(base / "file").write_text("")
os.umask(0o022)
damaged = bytearray(good)
damaged[len(damaged) // 2] ^= 255
newer = re.sub(rb"hplacer-plan/1", b"hplacer-plan/9", good, count=1)
foreign = dataclasses.replace(plan, device_names=[n.replace("CPU", "GPU") for n in DEVICES])
cases = {{
    "below_a_file": try_store(base / "file" / "cache", "a"),
    "is_a_file": try_store(base / "file", "b"),
    "proc": try_store("/proc/hplacer/cache", "c"),
    "damaged": try_store(store_with("damaged", bytes(damaged)), "d"),
    "truncated": try_store(store_with("truncated", good[:100]), "e"),
    "newer": try_store(store_with("newer", newer), "f"),
    "foreign": try_store(store_with("foreign", foreign.to_bytes()), "g"),
    "shared": try_store(store_with("shared", good, 0o777), "h"),
}}
replaced = {{}}
for name in ("damaged", "truncated", "foreign"):
    stored = hp.PlanStore(base / name).get(key)
    replaced[name] = stored.device_names == DEVICES
replaced["newer"] = (base / "newer" / (key + ".hplan")).read_bytes() != newer
report(cases=cases, replaced=replaced)
"""
    return run(code, directory).report


@pytest.mark.parametrize("case", STORES)
def test_a_store_that_cannot_serve(stores: dict[str, Any], case: str) -> None:
    found, (remedy, replaced) = stores["cases"][case], STORES[case]
    assert found["equal"]
    (line,) = found["log"]
    assert remedy in line
    assert [entry["outcome"] for entry in found["history"]] == ["planned", "loaded"]
    assert stores["replaced"].get(case) is replaced


HANGING_DISK = """
import ctypes, os, sys
connection = os.open("/dev/fuse", os.O_RDWR)
os.set_inheritable(connection, True)  # while it is open, what asks the file system waits
options = f"fd={connection},rootmode=40000,user_id=0,group_id=0".encode()
directory = os.environ["TEST_CACHE"].encode()
if ctypes.CDLL(None).mount(b"hangs", directory, b"fuse", 0, options) != 0:
    sys.exit(1)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_a_store_whose_disk_hangs(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "mount.py").write_text(HANGING_DISK)
    wrapper = ["unshare", "--map-root-user", "--mount", sys.executable, str(tmp_path / "mount.py")]
    tried = subprocess.run(
        [*wrapper, "true"], env={**os.environ, "TEST_CACHE": str(tmp_path / "cache")}
    )
    if tried.returncode != 0:
        pytest.skip("this system lets nobody mount a file system")
    outcome = run(
        """
expected = losses(trainer())
on(timeout_s=1.0)
waited, equal = [], []
for name in ("first", "second"):
    function = trainer(name, width=16 if name == "first" else 32)
    started = time.monotonic()
    losses(function)
    waited.append(time.monotonic() - started)
report(waited=waited, outcomes=outcomes(), ended=time.time(),
       reasons=[entry.reason for entry in plugin.history()])
""",
        tmp_path,
        wrapper=wrapper,
    )
    first, second = outcome.report["reasons"]
    assert outcome.report["outcomes"] == ["failed", "failed"]
    assert "no answer within 1 s" in first
    assert "does not answer" in second
    assert outcome.report["waited"][0] >= 1
    assert outcome.report["waited"][1] < 1
    assert_ends_soon(outcome)


# ---- the end of the process ----


ENDS = {
    "while it spins": """
on(planner="bad:spins", timeout_s=30)
threading.Thread(target=losses, args=(trainer(),), daemon=True).start()
while not any(t.name == "hplacer-planner" for t in threading.enumerate()):
    time.sleep(0.05)  # until the planner runs, and the training thread waits for it
report(ended=time.time())
""",
    "in another thread": """
on(planner="bad:sleeps", timeout_s=1.0)
def work():
    report(losses=losses(trainer()), ended=time.time())
threading.Thread(target=work).start()  # the interpreter waits for it, then ends
""",
    "with an exception": """
on(planner="bad:sleeps", timeout_s=1.0)
losses(trainer())
report(ended=time.time())
raise RuntimeError("the user's own")
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_process_ends_while_a_planner_runs(tmp_path: Path, end: str) -> None:
    failed = "raise" in ENDS[end]
    outcome = run(ENDS[end], write_planners(tmp_path), returncode=int(failed))
    assert ("the user's own" in outcome.stderr) is failed
    assert_ends_soon(outcome)
