"""Whatever fails in the native pass, TensorFlow never sees an exception, and a line says so."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from testbed.environment import ROOT
from tests.processes import run

TRAINING = """
import ctypes, random, signal

native = ctypes.CDLL(os.environ["LD_PRELOAD"])
SIGNAL = native.kinds() - 1
DRAWS = random.Random(int(os.environ["SEED"]))
MODES = {"miss": {}, "hit": {}, "bitwise miss": {"bitwise": True}, "bitwise hit": {"bitwise": True}}

signals = []
signal.signal(signal.SIGUSR1, lambda number, frame: signals.append(number))

def trained(mode, name, after, kind=0):
    "Losses of a new function, lines on stderr, and how often the pass allocated memory."
    store = {"cache": f"{CACHE}/{name}"} if "miss" in mode else {}
    on(timeout_s=30.0 if kind == SIGNAL else 2.0, **MODES[mode], **store)
    function = trainer(name)
    with Recorder() as recorder:
        native.fail_in(b"/_tf_2_", ctypes.c_long(after), kind)
        found = losses(function)
        count = native.allocations()
        native.fail_in(b"/_tf_2_", ctypes.c_long(-1), 0)
        lines = recorder.lines(0)
    return found, lines, count

alone = losses(trainer("alone"))
for mode in ("hit", "bitwise hit"):
    on(**MODES[mode])
    losses(trainer(mode.replace(" ", "_")))
counts = {mode: trained(mode, "count_" + mode.replace(" ", "_"), -1)[2] for mode in MODES}
wrong, silent, sent = [], [], 0
for number in range(int(os.environ["FAULTS"])):
    kind = number % native.kinds()
    mode = list(MODES)[(number + number // native.kinds()) % len(MODES)]
    after = DRAWS.randrange(counts[mode])
    found, lines, _ = trained(mode, f"step{number}", after, kind)
    sent += kind == SIGNAL
    if found != alone or (kind == SIGNAL and lines):
        wrong.append((mode, after, kind, found, lines))
    if kind != SIGNAL and len(lines) != 1:
        silent.append((mode, after, kind, lines))
on(cache=CACHE + "/last")
losses(trainer("last"))
report(wrong=wrong, silent=silent, counts=counts, sent=sent, came=len(signals),
       last=plugin.history()[-1].outcome)
"""


@pytest.fixture(scope="module")
def failing_new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that lets allocations of the pass fail."""
    library = tmp_path_factory.mktemp("native") / "failing_new.so"
    source = ROOT / "tests" / "plugin" / "failing_new.cc"
    subprocess.run(
        ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", library, source], check=True
    )
    return library


@pytest.mark.parametrize("faults", [8, pytest.param(128, marks=pytest.mark.slow)])
def test_training_goes_on_under_tensorflows_placement(
    failing_new: Path, faults: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What is thrown is an exception of any kind, or none; a signal changes nothing at all.

    On a miss and a hit, with the option bitwise and without.
    """
    seen = run(
        TRAINING,
        tmp_path,
        fresh=True,
        LD_PRELOAD=str(failing_new),
        SEED=str(request.config.getoption("randomly_seed")),
        FAULTS=str(faults),
    ).report
    assert seen["wrong"] == []
    assert seen["came"] == seen["sent"] > 0
    assert min(seen["counts"].values()) > 100
    # What was lost may be no more than the check of what ran, which nobody needs to be told.
    assert len(seen["silent"]) <= max(1, faults / 10), seen["silent"]
    assert seen["last"] == "planned"
