"""Several layers of a plan store, its size limit, and what it does not trust."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hplacer_optimizer.errors import PlanError, StoreError
from hplacer_optimizer.plans.directories.paths import read_file
from hplacer_optimizer.plans.store import PlanStore
from tests.plans.test_plan import FINGERPRINT, changed, make_plan, with_problem

FINGERPRINTS = [f"{i:032x}" for i in range(6)]
ONE_PLAN_BYTES = len(make_plan(fingerprint=FINGERPRINTS[0]).to_bytes())
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def use(store: PlanStore, fingerprint: str, used_s: float) -> None:
    """Sets the time of last use."""
    os.utime(store.path(fingerprint), (used_s, used_s))


@pytest.fixture
def full(tmp_path: Path) -> PlanStore:
    """Six plans, each used an hour after the one before."""
    store = PlanStore(tmp_path / "plans")
    for hours, fingerprint in enumerate(FINGERPRINTS):
        store.put(make_plan(fingerprint=fingerprint))
        use(store, fingerprint, time.time() - (len(FINGERPRINTS) - hours) * 3600)
    return store


# ---- several layers ----


@pytest.fixture
def near_far(tmp_path: Path) -> tuple[PlanStore, PlanStore, PlanStore]:
    near, far = tmp_path / "near", tmp_path / "far"
    return PlanStore(near), PlanStore(far), PlanStore(f"{near};{far}")


Layers = tuple[PlanStore, PlanStore, PlanStore]


def test_a_put_goes_into_every_layer(near_far: Layers) -> None:
    near, far, both = near_far
    assert both.directory == f"{near.directory};{far.directory}"
    assert both.put(with_problem(make_plan()))
    assert near.get(FINGERPRINT) == far.get(FINGERPRINT) == with_problem(make_plan())
    assert both.path(FINGERPRINT) == near.path(FINGERPRINT)
    assert both.fingerprints() == [FINGERPRINT]
    assert [entry.path for entry in both.list()] == [near.path(FINGERPRINT), far.path(FINGERPRINT)]
    assert both.remove("3f9c") == [near.path(FINGERPRINT), far.path(FINGERPRINT)]
    assert both.fingerprints() == []


def test_a_get_brings_a_plan_nearer_as_it_is(near_far: Layers) -> None:
    near, far, both = near_far
    data = changed(seed=8)  # its JSON is not the one that this version writes
    plan, written = far.add(data, "x.hplan")
    assert written
    assert plan.to_bytes() != data
    assert near.get(plan.fingerprint) is None
    assert both.get(plan.fingerprint) == plan
    assert near.get(plan.fingerprint) == plan
    assert read_file(near.path(plan.fingerprint)) == data


def test_the_nearest_plan_answers(near_far: Layers) -> None:
    near, far, both = near_far
    near.put(make_plan(step_time_ns=20))
    far.put(make_plan(step_time_ns=10))
    assert both.get(FINGERPRINT) == make_plan(step_time_ns=20)


@pytest.mark.parametrize(
    ("near_ns", "far_ns", "put_ns", "written"),
    [(None, 10, 20, False), (30, 10, 20, False), (30, 20, 10, True), (10, 30, 20, True)],
)
def test_no_layer_keeps_a_plan_that_is_worse_than_the_one_behind_it(
    near_far: Layers, near_ns: int | None, far_ns: int, put_ns: int, written: bool
) -> None:
    near, far, both = near_far
    for store, step_time_ns in ((near, near_ns), (far, far_ns)):
        if step_time_ns is not None:
            store.put(make_plan(step_time_ns=step_time_ns))
    assert both.put(make_plan(step_time_ns=put_ns)) is written
    found = [store.get(FINGERPRINT) for store in (near, far)]
    times = [plan.step_time_ns for plan in found if plan and plan.step_time_ns]
    assert times[0] == min(near_ns or far_ns, far_ns, put_ns)
    assert times[1] == min(far_ns, put_ns)


def test_one_layer_that_fails_is_left_out(
    near_far: Layers, caplog: pytest.LogCaptureFixture
) -> None:
    near, far, both = near_far
    Path(far.directory).write_text("a file in place of the directory")
    assert both.put(make_plan())
    assert near.get(FINGERPRINT) == make_plan()
    assert both.get("0" * 32) is None
    (line,) = caplog.messages  # however often it fails
    assert line.startswith(f"one layer of the plan store is left out: {far.directory}")
    Path(near.path(FINGERPRINT)).write_bytes(b"damaged")
    with pytest.raises(PlanError, match="is not a plan file"):
        both.get(FINGERPRINT)
    Path(far.directory).unlink()
    far.put(make_plan())
    assert both.get(FINGERPRINT) == make_plan()
    assert near.get(FINGERPRINT) == make_plan()  # the damaged file was replaced


def test_all_layers_that_fail_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    both = PlanStore(f"{tmp_path / 'file'};{tmp_path / 'file' / 'below'}")
    with pytest.raises(StoreError, match="choose another directory"):
        both.put(make_plan())
    with pytest.raises(StoreError, match="choose another directory"):
        both.get(FINGERPRINT)


@pytest.mark.parametrize("address", ["", ";", "a;", ";a", "a;;b"])
def test_an_empty_directory_is_refused(address: str) -> None:
    with pytest.raises(StoreError, match="has an empty directory: name one"):
        PlanStore(address)


# ---- the limit ----


def test_the_least_recently_used_plan_goes_first(full: PlanStore) -> None:
    assert full.get(FINGERPRINTS[0]) is not None  # now the most recently used one
    removed = full.prune(max_bytes=3 * ONE_PLAN_BYTES + 10)
    assert removed == [full.path(FINGERPRINTS[i]) for i in (1, 2, 3)]
    assert full.fingerprints() == [FINGERPRINTS[i] for i in (0, 4, 5)]
    assert full.prune(max_bytes=3 * ONE_PLAN_BYTES + 10) == []
    exactly = sum(os.path.getsize(full.path(name)) for name in full.fingerprints())
    assert full.prune(max_bytes=exactly) == []


def test_looking_at_a_plan_in_a_list_does_not_count_as_use(full: PlanStore) -> None:
    before = os.stat(full.path(FINGERPRINTS[0])).st_mtime_ns
    full.list()
    list(full.entries(verify=True))
    assert not full.put(make_plan(fingerprint=FINGERPRINTS[0]))
    assert os.stat(full.path(FINGERPRINTS[0])).st_mtime_ns == before
    full.get(FINGERPRINTS[0])
    assert os.stat(full.path(FINGERPRINTS[0])).st_mtime_ns > before


def test_prune_by_time(full: PlanStore) -> None:
    assert full.prune(unused_s=3.5 * 3600, dry_run=True) == [
        full.path(fingerprint) for fingerprint in FINGERPRINTS[:3]
    ]
    assert len(full.fingerprints()) == 6
    assert len(full.prune(unused_s=3.5 * 3600)) == 3
    assert full.fingerprints() == FINGERPRINTS[3:]


def test_a_dry_run_writes_nothing(full: PlanStore, tmp_path: Path) -> None:
    before = sorted(os.listdir(full.directory))
    assert full.prune(max_bytes=0, dry_run=True)
    assert sorted(os.listdir(full.directory)) == before
    assert PlanStore(tmp_path / "none").prune(max_bytes=0, dry_run=True) == []
    assert not (tmp_path / "none").exists()


def test_prune_what_is_damaged(full: PlanStore) -> None:
    damaged, newer, foreign = (Path(full.path(name)) for name in FINGERPRINTS[:3])
    problem = Path(full.path(FINGERPRINTS[3]))
    damaged.write_bytes(b"x")
    newer.write_bytes(b"hplacer-plan/9 x")
    os.rename(full.path(FINGERPRINTS[4]), foreign)
    whole = with_problem(make_plan(fingerprint=FINGERPRINTS[3])).to_bytes()
    problem.write_bytes(whole[:-1])
    removed = full.prune(damaged=True)
    assert removed == [str(damaged), str(foreign), str(problem)]
    assert full.fingerprints() == [FINGERPRINTS[1], FINGERPRINTS[5]]


def test_a_put_keeps_the_limit_and_its_own_plan(full: PlanStore) -> None:
    limited = PlanStore(full.directory, max_bytes=3 * ONE_PLAN_BYTES + 10)
    assert limited.put(make_plan())
    assert full.fingerprints() == [*FINGERPRINTS[4:], FINGERPRINT]
    tiny = PlanStore(full.directory, max_bytes=1)
    assert tiny.put(make_plan(fingerprint="f" * 32))
    assert full.fingerprints() == ["f" * 32]


def test_a_long_lived_writer_keeps_the_limit_too(tmp_path: Path) -> None:
    store = PlanStore(tmp_path, max_bytes=32 * ONE_PLAN_BYTES)
    for i in range(100):
        store.put(make_plan(fingerprint=f"{i:032x}"))
    names = store.fingerprints()
    assert 32 - 2 <= len(names) <= 32 + 3  # it looks after every sixteenth of the limit
    assert names[-1] == f"{99:032x}"


def test_foreign_and_missing_files_do_not_matter(
    full: PlanStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Path(full.directory)
    (directory / "notes.txt").write_text("x" * 100_000)
    (directory / ("e" * 32 + ".hplan")).mkdir()
    (directory / ("d" * 32 + ".hplan")).symlink_to("nowhere")
    real = os.lstat

    def removes_first(path: str) -> os.stat_result:
        if FINGERPRINTS[1] in str(path):
            Path(path).unlink(missing_ok=True)
        return real(path)

    monkeypatch.setattr(os, "lstat", removes_first)
    removed = full.prune(max_bytes=3 * ONE_PLAN_BYTES + 10)
    assert removed == [full.path(FINGERPRINTS[i]) for i in (0, 2)]
    assert (directory / "notes.txt").exists()


# ---- replacing ----


OLD = {"node_ranks": [], "structure": 0}
SEARCHED = {"budget": {"placements_scored": 9}}


@pytest.mark.parametrize(
    ("stored", "new", "is_replaced"),
    [
        ({"step_time_ns": 20}, {"step_time_ns": 10}, True),
        ({"step_time_ns": 10}, {"step_time_ns": 20}, False),
        ({"step_time_ns": 10}, {"step_time_ns": 10}, False),
        ({"step_time_ns": 20} | SEARCHED, {"step_time_ns": 10}, False),
        ({"step_time_ns": 20} | SEARCHED, {"step_time_ns": 10} | SEARCHED, True),
        ({"step_time_ns": 10} | OLD, {"step_time_ns": 10}, True),
        ({"step_time_ns": 10} | OLD, {"step_time_ns": 11}, False),
        ({"step_time_ns": 10} | OLD | SEARCHED, {"step_time_ns": 10}, False),
        ({"step_time_ns": 10} | OLD, {"step_time_ns": 10} | OLD, False),
        ({"feasible": False} | SEARCHED, {"feasible": True}, False),
        ({"step_time_ns": 10, "device_names": ["/device:CPU:0", "/device:CPU:1"]}, {}, True),
        ({"step_time_ns": 10, "node_hashes": [1, 2, 4]}, {}, True),
    ],
)
def test_what_replaces_a_plan_that_does_not_fit(
    tmp_path: Path, stored: dict[str, Any], new: dict[str, Any], is_replaced: bool
) -> None:
    store = PlanStore(tmp_path)
    store.put(make_plan(**stored))
    before = store.read(FINGERPRINT)
    assert store.put(make_plan(**new), stored_fits=False) == is_replaced
    after = make_plan(**new).to_bytes() if is_replaced else before
    assert store.read(FINGERPRINT) == after


def test_a_plan_of_a_newer_version_is_never_replaced(tmp_path: Path) -> None:
    store = PlanStore(tmp_path)
    store.put(make_plan())
    newer = b"hplacer-plan/9 from the future"
    Path(store.path(FINGERPRINT)).write_bytes(newer)
    assert not store.put(make_plan(step_time_ns=1))
    assert not store.put(make_plan(step_time_ns=1), stored_fits=False)
    assert store.read(FINGERPRINT) == newer


def test_what_is_added_is_checked_first(tmp_path: Path) -> None:
    store, whole = PlanStore(tmp_path), with_problem(make_plan()).to_bytes()
    wrong = with_problem(make_plan(num_ops=4)).to_bytes()
    for data in (whole[:-1], whole + b"x", wrong, b""):
        with pytest.raises(PlanError, match=r"^mail: "):
            store.add(data, "mail")
    assert store.fingerprints() == []
    assert store.add(whole, "mail") == (with_problem(make_plan()), True)
    assert store.add(whole, "mail")[1] is False


# ---- trust and strange files ----


@needs_root
@pytest.mark.parametrize("what", ["directory", "file"])
def test_what_belongs_to_another_user_is_not_trusted(full: PlanStore, what: str) -> None:
    path = full.directory if what == "directory" else full.path(FINGERPRINTS[0])
    os.chown(path, 12345, -1)
    with pytest.raises(StoreError, match=f"{path}: belongs to another user \\(uid 12345\\)"):
        full.get(FINGERPRINTS[0])
    assert PlanStore(full.directory, trust_shared=True).get(FINGERPRINTS[0]) is not None


def test_a_fifo_in_place_of_the_file_stops_nobody(tmp_path: Path) -> None:
    store = PlanStore(tmp_path)
    os.mkfifo(store.path(FINGERPRINT))
    with pytest.raises(StoreError, match="it is not a regular file"):
        store.get(FINGERPRINT)


def test_a_problem_is_read_from_the_store_on_demand(tmp_path: Path) -> None:
    store, plan = PlanStore(tmp_path), with_problem(make_plan())
    store.put(plan)
    found = store.get(FINGERPRINT)
    assert found == plan
    problem = found.problem()
    assert problem is not None
    assert problem.num_ops == 3
    found = store.get(FINGERPRINT)
    assert found is not None
    store.remove(FINGERPRINT)
    with pytest.raises(StoreError, match="was replaced or removed; read the plan again"):
        found.problem()


def test_a_lock_whose_file_was_removed_is_taken_anew(tmp_path: Path) -> None:
    """Else two writers could hold two locks: one of the old file, one of the new."""
    store = PlanStore(tmp_path)
    store.put(make_plan())
    waiter = threading.Thread(target=store.put, args=(make_plan(step_time_ns=1),))
    with open(tmp_path / ".lock") as old:
        fcntl.flock(old, fcntl.LOCK_EX)
        waiter.start()
        time.sleep(0.1)
        (tmp_path / ".lock").unlink()
        with open(tmp_path / ".lock", "w") as new:
            fcntl.flock(new, fcntl.LOCK_EX)
            fcntl.flock(old, fcntl.LOCK_UN)
            time.sleep(0.1)
            assert store.get(FINGERPRINT) == make_plan()
    waiter.join(60)
    assert store.get(FINGERPRINT) == make_plan(step_time_ns=1)
