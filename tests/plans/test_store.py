"""The plan store with real directories and real processes."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import importlib.util
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlanError, StoreError
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.plans.directories import local_files
from hplacer_optimizer.plans.plan import load_plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.problem.problem_file import load_problem_file
from hplacer_optimizer.problem.simulator import SIMULATOR_VERSION
from hplacer_optimizer.support.own_directory import default_directory
from tests.planned import plan_of
from tests.plans.test_plan import FINGERPRINT, make_plan
from tests.processes import ROOT
from tests.stress_store import run_processes

OTHER = "3f9d" + "0" * 28


def mode_of(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def visible(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name != ".lock")


def spawn(code: str, *arguments: object) -> subprocess.Popen[str]:
    prelude = "import contextlib, os, sys, time\nfrom tests.plans.test_store import *\n"
    return subprocess.Popen(
        [sys.executable, "-c", prelude + code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Its output, after the end of its input."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "hplacer"


# ---- one process ----


def test_put_then_get(directory: Path) -> None:
    store, plan = PlanStore(directory), make_plan()
    assert store.get(FINGERPRINT) is None
    assert store.list() == []
    assert not directory.exists()  # reading creates nothing
    assert store.put(plan)
    assert store.get(FINGERPRINT) == plan
    assert store.path(FINGERPRINT) == str(directory / f"{FINGERPRINT}.hplan")
    assert load_plan(store.path(FINGERPRINT)) == plan
    assert mode_of(directory) == 0o700
    assert mode_of(store.path(FINGERPRINT)) == 0o600


def test_the_better_plan_stays(directory: Path) -> None:
    store = PlanStore(directory)
    infeasible = make_plan(step_time_ns=1, feasible=False)
    slow, fast = make_plan(step_time_ns=20), make_plan(step_time_ns=10)
    same = dataclasses.replace(fast, seed=99)
    steps = [(infeasible, True), (slow, True), (infeasible, False), (fast, True), (same, False)]
    for plan, written in [*steps, (slow, False)]:
        assert store.put(plan) is written
    kept = store.get(FINGERPRINT)
    assert kept == fast


@pytest.fixture(scope="module")
def towers() -> Problem:
    return load_problem_file(ROOT / "tests" / "golden" / "two_towers.hplacer.json")


def slower(problem: Problem, times: float) -> Problem:
    cost_ns = np.where(problem.cost_ns < 0, -1, problem.cost_ns * times)
    return problem.replace(cost_ns=cost_ns.astype(np.int64))


def test_plans_of_other_costs_are_compared_under_those_of_the_new_one(
    directory: Path, towers: Problem
) -> None:
    good, bad = get_planner("etf").plan(towers).placement, np.zeros(towers.num_ops, np.int32)
    store, fingerprint = PlanStore(directory), plan_of(towers, good).fingerprint
    first = plan_of(slower(towers, 0.01), bad)
    better, worse = plan_of(towers, good), plan_of(slower(towers, 0.1), bad)
    assert first.step_time_ns < better.step_time_ns  # type: ignore[operator]
    assert store.put(first)
    assert store.put(better)
    assert worse.step_time_ns < better.step_time_ns  # type: ignore[operator]
    assert not store.put(worse)
    assert not store.put(plan_of(slower(towers, 0.1), good))  # the same placement
    assert store.get(fingerprint) == better


def test_plans_of_two_simulators_are_compared_by_this_one(directory: Path, towers: Problem) -> None:
    good, bad = get_planner("etf").plan(towers).placement, np.zeros(towers.num_ops, np.int32)
    store, fingerprint = PlanStore(directory), plan_of(towers, good).fingerprint
    # All but one state a step that is shorter than what this version simulates.
    optimistic = plan_of(towers, bad, step_time_ns=3, simulator_version=SIMULATOR_VERSION - 1)
    better = plan_of(towers, good, simulator_version=SIMULATOR_VERSION)
    worse = plan_of(towers, bad, step_time_ns=2, simulator_version=SIMULATOR_VERSION - 1)
    newer = plan_of(towers, bad, step_time_ns=1, simulator_version=SIMULATOR_VERSION + 1)
    written = [store.put(plan) for plan in (optimistic, better, worse, newer)]
    assert written == [True, True, False, False]
    assert store.get(fingerprint) == better


@pytest.mark.parametrize("damage", [b"", b"garbage", make_plan().to_bytes()[:-5]])
def test_a_damaged_file_is_an_error_until_a_put_replaces_it(directory: Path, damage: bytes) -> None:
    store = PlanStore(directory)
    store.put(make_plan())
    path = Path(store.path(FINGERPRINT))
    path.write_bytes(damage)
    with pytest.raises(PlanError, match=str(path)):
        store.get(FINGERPRINT)
    worse = make_plan(feasible=False)
    assert store.put(worse)
    assert store.get(FINGERPRINT) == worse


def test_a_file_under_a_foreign_name_is_refused(directory: Path) -> None:
    store = PlanStore(directory)
    store.put(make_plan())
    os.rename(store.path(FINGERPRINT), store.path(OTHER))
    with pytest.raises(PlanError, match=f"holds the plan of fingerprint {FINGERPRINT}"):
        store.get(OTHER)


def test_list_names_plans_and_damage_and_nothing_else(directory: Path) -> None:
    store, plan = PlanStore(directory), make_plan()
    store.put(plan)
    Path(store.path(OTHER)).write_bytes(b"x")
    for name in (f".{FINGERPRINT}.abc.tmp", "README", "short.hplan"):
        (directory / name).write_bytes(b"x")
    good, bad = store.list()
    assert (good.fingerprint, good.plan, good.error) == (FINGERPRINT, plan, None)
    assert (bad.fingerprint, bad.path, bad.plan) == (OTHER, store.path(OTHER), None)
    assert "is not a plan file" in str(bad.error)


def test_remove_by_prefix(directory: Path) -> None:
    store = PlanStore(directory)
    for fingerprint in (FINGERPRINT, OTHER):
        store.put(make_plan(fingerprint=fingerprint))
    with pytest.raises(StoreError, match="2 plans whose fingerprint starts with '3f9'"):
        store.remove("3f9")
    with pytest.raises(StoreError, match="no plan with 'abc'"):
        store.remove("abc")
    assert store.remove("3f9c") == [store.path(FINGERPRINT)]
    assert store.fingerprints() == [OTHER]
    assert store.remove(OTHER) == [store.path(OTHER)]
    assert visible(directory) == []


@pytest.mark.parametrize("bad", ["", "../../etc/passwd", "3F" * 16, "ab/..", FINGERPRINT + "\n"])
def test_a_fingerprint_is_hex_and_nothing_else(directory: Path, bad: str) -> None:
    store = PlanStore(directory)
    for use in (store.get, store.path, store.remove):
        with pytest.raises(StoreError, match="lower-case hex digits"):
            use(bad)


def test_the_default_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert PlanStore().directory == "/x/hplacer"
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert default_directory() == tmp_path / ".cache" / "hplacer"
    assert PlanStore("~/plans").directory == str(tmp_path / "plans")
    with pytest.raises(StoreError, match="has an empty directory"):
        PlanStore("")
    # A user without a name, and so without a home: HOME is what "~" is looked up in first.
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = PlanStore()
    assert store.directory == f"{tmp_path}/hplacer-{os.getuid()}"
    assert store.put(make_plan())
    assert stat.S_IMODE(os.stat(store.directory).st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_directory_that_others_can_write_is_refused(directory: Path, mode: int) -> None:
    store = PlanStore(directory)
    store.put(make_plan())
    directory.chmod(mode)
    for use in (lambda: store.get(FINGERPRINT), lambda: store.put(make_plan())):
        with pytest.raises(StoreError, match=f"chmod go-w {directory}"):
            use()
    assert "chmod go-w" in str(store.list()[0].error)
    assert PlanStore(directory, trust_shared=True).get(FINGERPRINT) == make_plan()
    directory.chmod(0o755)  # others may read
    assert store.get(FINGERPRINT) == make_plan()


def test_a_file_that_others_can_write_is_refused(directory: Path) -> None:
    store = PlanStore(directory)
    store.put(make_plan())
    os.chmod(store.path(FINGERPRINT), 0o620)
    with pytest.raises(StoreError, match=f"chmod go-w {store.path(FINGERPRINT)}"):
        store.get(FINGERPRINT)


def test_in_a_trusted_shared_directory_the_team_can_use_the_files(directory: Path) -> None:
    directory.mkdir(parents=True)
    directory.chmod(0o2770)
    store = PlanStore(directory, trust_shared=True)
    store.put(make_plan())
    assert mode_of(store.path(FINGERPRINT)) == 0o660
    assert mode_of(directory / ".lock") == 0o660


def test_a_file_in_place_of_the_directory(directory: Path) -> None:
    directory.parent.mkdir()
    directory.write_text("x")
    store = PlanStore(directory)
    for use in (lambda: store.get(FINGERPRINT), store.list, lambda: store.put(make_plan())):
        with pytest.raises(StoreError, match=f"{directory}.*choose another directory"):
            use()
    with pytest.raises(StoreError, match="a part of this path is a file"):
        PlanStore(directory / "below").put(make_plan())


def test_a_directory_in_place_of_the_file(directory: Path) -> None:
    store = PlanStore(directory)
    os.makedirs(store.path(FINGERPRINT))
    with pytest.raises(StoreError, match="a directory stands where a plan file belongs"):
        store.get(FINGERPRINT)


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_directory_without_permission(directory: Path) -> None:
    store = PlanStore(directory)
    store.put(make_plan())
    directory.chmod(0o500)
    with pytest.raises(StoreError, match="make it accessible to this user"):
        store.put(make_plan(step_time_ns=1))
    assert store.get(FINGERPRINT) == make_plan()
    directory.chmod(0o000)
    with pytest.raises(StoreError, match="make it accessible to this user"):
        store.get(FINGERPRINT)
    directory.chmod(0o700)


@pytest.mark.parametrize(
    ("code", "fix"), [(errno.ENOSPC, "free some space"), (errno.EROFS, "is read-only")]
)
def test_a_failed_write_keeps_the_old_plan_and_leaves_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch, code: int, fix: str
) -> None:
    store, old = PlanStore(directory), make_plan()
    store.put(old)

    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match=f"{store.path(FINGERPRINT)}: cannot write.*{fix}"):
        store.put(make_plan(step_time_ns=1))
    assert store.get(FINGERPRINT) == old
    assert visible(directory) == [f"{FINGERPRINT}.hplan"]


def test_old_leftovers_go_and_young_ones_stay(directory: Path) -> None:
    store = PlanStore(directory)
    store.put(make_plan())
    old, young = (directory / f".{FINGERPRINT}.{name}.tmp" for name in ("old", "young"))
    foreign = directory / ".foreign.tmp"
    for path in (old, young, foreign):
        path.write_bytes(b"half a plan")
    two_hours_ago = time.time() - 7200
    os.utime(old, (two_hours_ago, two_hours_ago))
    os.utime(foreign, (two_hours_ago, two_hours_ago))
    PlanStore(directory).put(make_plan())
    assert not old.exists()
    assert young.exists()
    assert foreign.exists()


def test_a_lock_that_never_comes_free(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PlanStore(directory)
    store.put(make_plan())
    monkeypatch.setattr(local_files, "_LOCK_TIMEOUT_S", 0.1)
    with open(directory / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match=r"another process has held this lock"):
            store.put(make_plan(step_time_ns=1))
        assert store.get(FINGERPRINT) == make_plan()  # readers never wait
    assert store.put(make_plan(step_time_ns=1))


def test_without_locks_a_put_still_works(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    assert PlanStore(directory).put(make_plan())


# ---- several processes ----


def test_nobody_writes_between_a_comparison_and_its_write(directory: Path) -> None:
    slow, fast = make_plan(step_time_ns=20), make_plan(step_time_ns=10)
    writer = spawn(
        "def write_late(self, name, data, write=local_files.LocalFiles.write):\n"
        "    print('compared', flush=True)\n"
        "    sys.stdin.read()\n"
        "    write(self, name, data)\n"
        "local_files.LocalFiles.write = write_late\n"
        "PlanStore(sys.argv[1]).put(make_plan(step_time_ns=20))\n",
        directory,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "compared\n"
    store = PlanStore(directory)
    assert store.get(FINGERPRINT) is None
    with ThreadPoolExecutor() as pool:
        put = pool.submit(store.put, fast)
        time.sleep(0.2)  # it gets to the lock
        finish(writer)
        assert put.result()
    assert store.get(FINGERPRINT) == fast
    assert not store.put(slow)


def test_a_writer_killed_before_the_rename_leaves_the_old_plan(directory: Path) -> None:
    store, old = PlanStore(directory), make_plan()
    store.put(old)
    writer = spawn(
        "def stop(descriptor):\n"
        "    print('in the middle', flush=True)\n"
        "    time.sleep(100)\n"
        "os.fsync = stop\n"
        "PlanStore(sys.argv[1]).put(make_plan(step_time_ns=1))\n",
        directory,
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "in the middle\n"
        os.kill(writer.pid, signal.SIGKILL)
    assert store.get(FINGERPRINT) == old
    assert [entry.plan for entry in store.list()] == [old]
    assert len(visible(directory)) == 2  # the plan and what the dead writer left
    assert store.put(make_plan(step_time_ns=1))  # the lock died with its holder


def test_random_operations_of_several_processes(tmp_path: Path) -> None:
    result = run_processes(tmp_path, processes=4, operations=60)
    assert result.failures == []
    assert result.counts["written"] > 30
    assert result.counts["found"] > 10


# ---- TensorFlow filesystems ----


def test_a_local_store_does_not_import_tensorflow(directory: Path) -> None:
    code = "PlanStore(sys.argv[1]).put(make_plan()); print('tensorflow' in sys.modules)"
    assert finish(spawn(code, directory)) == "False\n"


def test_an_address_needs_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(StoreError, match=r"gs://bucket/x/.*install tensorflow"):
        PlanStore("gs://bucket/x/").get(FINGERPRINT)


GFILE = """
import tensorflow as tf

def use(address):
    fast, slow = make_plan(step_time_ns=1), make_plan(step_time_ns=2)
    store = PlanStore(address + "/deep/")
    assert store.get(FINGERPRINT) is None and store.list() == []
    assert store.put(slow) and store.put(fast) and not store.put(slow)
    assert store.get(FINGERPRINT) == fast == load_plan(store.path(FINGERPRINT))
    assert [entry.plan for entry in store.list()] == [fast]
    tf.io.gfile.remove(store.path(FINGERPRINT))  # ram:// would append to it
    with tf.io.gfile.GFile(store.path(FINGERPRINT), "wb") as file:
        file.write(b"damaged")
    with contextlib.suppress(PlanError):
        store.get(FINGERPRINT)
        raise AssertionError("read a damaged plan")
    error = store.list()[0].error
    assert "is not a plan file" in error, error
    assert store.put(slow) and store.get(FINGERPRINT) == slow
    assert store.remove("3f9c") == [f"{address}/deep/{FINGERPRINT}.hplan"]
    assert store.get(FINGERPRINT) is None and store.list() == []
    both = PlanStore(f"{address}/near;{address}/deep")
    assert store.put(slow) and both.get(FINGERPRINT) == slow
    assert PlanStore(f"{address}/near").get(FINGERPRINT) == slow
    assert len(both.prune(max_bytes=0)) == 2 and both.fingerprints() == []

for address in sys.argv[1:]:
    use(address)
try:
    PlanStore("nowhere://x").put(make_plan())
except StoreError as error:
    assert "nowhere://x" in str(error) and "check the address" in str(error), error
else:
    raise AssertionError("wrote to an unknown filesystem")
"""


@pytest.mark.skipif(not importlib.util.find_spec("tensorflow"), reason="needs TensorFlow")
def test_tensorflow_filesystems(tmp_path: Path) -> None:
    leftover = tmp_path / "deep" / f".{FINGERPRINT}.0.tmp"
    leftover.parent.mkdir()
    leftover.write_bytes(b"x")
    os.utime(leftover, (1, 1))
    finish(spawn(GFILE, f"file://{tmp_path}", f"ram://{tmp_path}"))
    assert not leftover.exists()
