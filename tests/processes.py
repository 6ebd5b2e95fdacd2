"""Runs snippets with the real TensorFlow and the optimizer, each in a process of its own.

A snippet finds two CPU devices, the names of PRELUDE below and the planners of OWN_PLANNERS, and
hands its findings over with `report(name=value, ...)`. Names without those devices: IMPORTS and
NAMES.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.environment import ROOT, clean_environment
from tests import forked_python
from tests.fork_server import ForkServer

PYTHON = sys.executable  # where another program will stand for it
SERVED = "TEST_FORK_DIRECTORY"  # the variable with the directory of a server that has started
LIMIT_S = 300.0  # for what would never end; on busy cores a snippet takes many times its time

IMPORTS = """
import contextlib, json, os, sys, threading, time
import numpy as np
import tensorflow as tf
import hplacer_optimizer as hp
from hplacer_optimizer.plugin import service as plugin

v1 = tf.compat.v1
CACHE = os.environ["TEST_CACHE"]
PLANNED = {"cache": CACHE, "planner": "random", "min_gain": -1}  # every plan takes effect
set_options = tf.config.optimizer.set_experimental_options
"""

TWO_CPUS = """
DEVICES = ["/job:localhost/replica:0/task:0/device:CPU:%d" % i for i in range(2)]
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

def session(graph=None, config=None, **options):
    "A v1 session on two devices; without options an unplanned one."
    config = config or v1.ConfigProto()
    config.device_count["CPU"] = 2
    if options:
        options = PLANNED | options
        config = hp.session_config(config=config, **options)
    return v1.Session(graph=graph, config=config)
"""

NAMES = """
def on(**options):
    set_options({"hierarchical_placer": PLANNED | options})

def off():
    set_options({"hierarchical_placer": False})

def report(**values):
    print("REPORT " + json.dumps(values, default=float), flush=True)

def outcomes():
    return [entry.outcome for entry in plugin.history()]

KEYS = ("graph", "outcome", "reason", "fingerprint", "placed")

def history_since(start):
    "What the pass did since `start` = len(plugin.history())."
    return [{key: getattr(entry, key) for key in KEYS}
            for entry in plugin.history()[start:]]

def differences(*fingerprints):
    "Nodes that are not where their plan has them."
    return [row for check in hp.step_checks() for row in check.differences
            if not fingerprints or check.fingerprint in fingerprints]

def normal(shape, seed):
    return tf.random.stateless_normal(shape, (seed, 0))

def trainer(name="train_step", width=16):
    "A new training function of two towers; always the same numbers."
    w1, w2 = (tf.Variable(normal([8, width], seed)) for seed in (1, 2))
    w3 = tf.Variable(normal([width, 1], 3))
    x = normal([4, 8], 5)

    def step():
        with tf.GradientTape() as tape:
            a = tf.nn.relu(tf.matmul(x, w1))
            b = tf.nn.tanh(tf.matmul(x, w2))
            loss = tf.reduce_mean(tf.matmul(a * 0.5 + b, w3) ** 2)
        for w, d in zip([w1, w2, w3], tape.gradient(loss, [w1, w2, w3])):
            w.assign_sub(0.01 * d)
        return loss

    step.__name__ = name
    return tf.function(step)

def losses(function, steps=3):
    return [float(function()) for _ in range(steps)]

class Recorder:
    "Between `with`, what the package prints to stderr, which still gets it."

    def __enter__(self):
        self.original, self.text, sys.stderr = sys.stderr, "", self
        return self

    def __exit__(self, *_):
        sys.stderr = self.original

    def write(self, text):
        self.text += text
        return self.original.write(text)

    def flush(self):
        self.original.flush()

    def lines(self, expected):
        "Waits for so many lines of the package, which logs on a thread of its own, and for more."
        deadline = time.monotonic() + 30
        found = []
        while len(found) < expected and time.monotonic() < deadline:
            time.sleep(0.02)
            found = [line for line in self.text.splitlines() if line.startswith("hplacer: ")]
        time.sleep(0.1)
        return [line for line in self.text.splitlines() if line.startswith("hplacer: ")]
"""
PRELUDE = IMPORTS + TWO_CPUS + NAMES

OWN_PLANNERS = '''
import time
import numpy as np
from hplacer_optimizer.planners import Progress
from hplacer_optimizer.problem.simulator import simulate

def spread(problem, *, budget=None, seed=0, on_progress=None):
    """A random allowed device for every unit: the most that a plan can move."""
    choice = np.random.default_rng(seed).random(problem.num_units)[problem.units]
    sizes = np.diff(problem.allowed_ptr)
    index = problem.allowed_ptr[:-1] + (choice * sizes).astype(np.int64)
    return problem.allowed_device[index].astype(np.int32)

def last(problem, *, budget=None, seed=0, on_progress=None):
    """Every unit on the last device that it may use."""
    return problem.allowed_device[problem.allowed_ptr[1:] - 1].astype(np.int32)

def climb(problem, *, budget, seed=0, on_progress=None):
    """Random search, after all on the last device, that heeds its budget; a step is a placement."""
    end = time.monotonic() + (budget.seconds or 1e9)
    best, best_ns, steps = None, None, 0
    while True:
        placement = spread(problem, seed=seed * 100_000 + steps) if steps else last(problem)
        makespan_ns = simulate(problem, placement).makespan_ns
        steps += 1
        if best is None or makespan_ns < best_ns:
            best, best_ns = placement, makespan_ns
        if on_progress:
            on_progress(Progress(steps=steps, best_ns=best_ns, placements=steps,
                                 mean_ns=float(makespan_ns)))
        if budget.stopped or steps == budget.steps or time.monotonic() > end:
            return best
        time.sleep(0.002)
'''


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a process ended."""

    returncode: int
    report: dict[str, Any]  # of the last call of report()
    log: list[str]  # the package's lines on stderr
    stderr: str
    ended: float  # time.time()


def run(
    code: str,
    directory: Path,
    *,
    prelude: str = PRELUDE,
    returncode: int = 0,
    package: Path = ROOT,
    log: str = "warning",
    timeout_s: float = LIMIT_S,
    fresh: bool = False,
    wrapper: Sequence[str] = (),
    **environment: str,
) -> Outcome:
    """Runs the code in a process of its own, with `directory` for its plans and its own modules.

    `fresh` and `wrapper` are those of `run_script`.

    Fails unless it ends with `returncode`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "own.py").write_text(OWN_PLANNERS)
    script = directory / "script.py"  # in a file, since AutoGraph reads the source
    script.write_text(prelude + code)
    done = run_script(
        [str(script)],
        cwd=directory,
        environment=clean_environment(directory, package) | {"HPLACER_LOG": log} | environment,
        timeout_s=timeout_s,
        fresh=fresh,
        wrapper=wrapper,
    )
    ended = time.time()
    assert done.returncode == returncode, f"exit code {done.returncode}\n{done.stderr}"
    reports = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
    return Outcome(
        returncode=done.returncode,
        report=json.loads(reports[-1].removeprefix("REPORT ")) if reports else {},
        log=[line for line in done.stderr.splitlines() if line.startswith("hplacer: ")],
        stderr=done.stderr,
        ended=ended,
    )


def run_script(
    arguments: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    timeout_s: float = LIMIT_S,
    fresh: bool = False,
    wrapper: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Runs Python with these arguments, a script and its own; captures the output.

    The script starts with TensorFlow imported, in a fork; `fresh`: in an interpreter that starts
    now, for what depends on the order of imports, on hash seeds or on addresses. `wrapper` is a
    command that runs such an interpreter, whose command line is appended to it.
    """
    forks = _directory() is not None and not (fresh or wrapper)
    if forks and _fork_server().fits(environment):
        return _fork_server().run(arguments, cwd=cwd, environment=environment, timeout_s=timeout_s)
    return subprocess.run(
        [*wrapper, sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        cwd=cwd,
        timeout=timeout_s,
    )


def wait_for(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Until it is true; the limit is for what would never come, however busy the cores are."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_ended(pid: int) -> bool:
    """Also where its parent has not asked yet how it ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def fork_what_imports_tensorflow(*, in_workers: bool = False) -> None:
    """From now on in this process and in scripts, by another `sys.executable`.

    `in_workers`: this process starts workers for the tests, which share its fork server.
    """
    directory = _directory()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # as scripts have it
    if directory is not None:
        forked_python.install(directory, _fork_server)
        if in_workers:
            _fork_server()


@functools.cache
def _fork_server() -> ForkServer:
    directory = _directory()
    assert directory is not None
    environment, address = clean_environment(Path()), forked_python.address(directory)
    if SERVED in os.environ:
        server = ForkServer.of_another_process(environment, address)
    else:
        server = ForkServer.started(environment, address)
        os.environ[SERVED] = str(directory)
    atexit.register(server.close)
    return server


def end_fork_server() -> None:
    """If this process has one: only then does the time of its scripts count as this process's."""
    if _fork_server.cache_info().currsize:
        _fork_server().close()


@functools.cache
def _directory() -> Path | None:
    """Of the fork server; None: every process is to start afresh."""
    if "HPLACER_TEST_FRESH" in os.environ:
        return None
    if SERVED in os.environ:
        return Path(os.environ[SERVED])
    directory = tempfile.TemporaryDirectory(prefix="hplacer-tests-")
    atexit.register(directory.cleanup)
    return Path(directory.name)
