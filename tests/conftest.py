"""What holds for all tests, a choice of slow ones, and what all of them take."""

from __future__ import annotations

import datetime
import gc
import os
import resource
import signal
import statistics
import sys
import threading
import time
import zlib

import pytest

from tests import processes

# A shell's background job ignores SIGINT, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Before NumPy is imported: threads of its linear algebra wait for each other where cores are busy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

_DISABLE = "HPLACER_DISABLE"
_DISABLED_BEFORE = pytest.StashKey[str | None]()
_DAY_S = 86_400
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_SAMPLE_S = 10.0
_USUAL_S = 0.0038  # of a sample, on a processor that nobody else uses
_slowdowns: list[float] = []  # of processors that others use, too, while the tests run


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that choose slow tests, and a limit for all that run."""
    group = parser.getgroup("hplacer")
    group.addoption("--slow-share", metavar="K/N", help="only slow tests: part K, from 0, of N")
    group.addoption(
        "--processor-limit",
        type=float,
        metavar="SECONDS",
        help="fail if all tests together take more time of processors, at their usual speed",
    )
    group.addoption(
        "--slow-dates",
        type=int,
        metavar="N",
        help="list slow tests, and when N parts had their day",
    )


@pytest.fixture(autouse=True)
def interpreters_of_slow_tests(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the package starts in a slow test is no fork: some of them injure such a process."""
    if request.node.get_closest_marker("slow"):
        monkeypatch.setattr(sys, "executable", os.path.join(sys.prefix, "bin", "python"))


def pytest_configure(config: pytest.Config) -> None:
    """Only slow tests, for a share of them; what would import TensorFlow is forked."""
    if config.getoption("processor_limit") and not hasattr(config, "workerinput"):
        threading.Thread(target=_watch_speed, daemon=True).start()
    has_workers = bool(config.getoption("numprocesses", None))
    processes.fork_what_imports_tensorflow(in_workers=has_workers)
    if config.getoption("slow_share") or config.getoption("slow_dates"):
        config.option.markexpr = "slow"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the share, which the names decide: it is the same in all workers and on all days."""
    if share := config.getoption("slow_share"):
        part, parts = map(int, share.split("/"))
        kept = [item for item in items if _part(item, parts) == part]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported stays; then it lists when each slow test had its day, and runs none."""
    gc.freeze()  # or each full collection would visit TensorFlow, which takes 0.2 s
    parts = session.config.getoption("slow_dates")
    if not parts:
        return
    today = int(time.time()) // _DAY_S
    rows = []
    for item in session.items:
        day = today - (today - _part(item, parts)) % parts
        rows.append(f"{datetime.date.fromordinal(_EPOCH + day)}  {item.nodeid}")
    print("", *sorted(rows), sep="\n")
    session.items.clear()


def _part(item: pytest.Item, parts: int) -> int:
    return zlib.crc32(item.nodeid.encode()) % parts


def _watch_speed() -> None:
    """Neighbours on a shared host made processors 1.8 times as slow."""
    while True:
        begin_s, total = time.thread_time(), 0
        for number in range(100_000):
            total += number
        _slowdowns.append((time.thread_time() - begin_s) / _USUAL_S)
        time.sleep(_SAMPLE_S)


def _slowdown() -> float:
    return max(statistics.median(_slowdowns), 1.0) if _slowdowns else 1.0


def _processor_s() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _is_over(config: pytest.Config) -> bool:
    limit_s = config.getoption("processor_limit")
    return limit_s is not None and _processor_s() > limit_s * _slowdown()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails above the limit. Wall time would depend on what else runs."""
    processes.end_fork_server()
    if not hasattr(session.config, "workerinput") and _is_over(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Tells the time of processors that the tests took."""
    limit_s = config.getoption("processor_limit")
    allowed = "" if limit_s is None else f", at most {limit_s:.0f} s x {_slowdown():.2f}"
    over = ": make tests faster before you add others" if _is_over(config) else ""
    terminalreporter.write_line(f"processor time: {_processor_s():.0f} s{allowed}{over}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Keeps what the next hook puts back."""
    item.stash[_DISABLED_BEFORE] = os.environ.get(_DISABLE)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Commands that measure switch the optimizer off in their process, which is this one here."""
    before = item.stash.get(_DISABLED_BEFORE, None)
    os.environ.pop(_DISABLE, None)
    if before is not None:
        os.environ[_DISABLE] = before
