"""What holds for all tests, and a choice of slow ones: `--slow-share 2/5 --slow-limit-s 600`."""

from __future__ import annotations

import math
import os
import signal
import time
import zlib

import pytest

# A shell's background job ignores SIGINT, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Before NumPy is imported: threads of its linear algebra wait for each other where cores are busy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

_DISABLE = "HPLACER_DISABLE"
_START_S = pytest.StashKey[float]()
_DISABLED_BEFORE = pytest.StashKey[str | None]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that choose slow tests."""
    group = parser.getgroup("hplacer")
    group.addoption("--slow-share", metavar="K/N", help="only slow tests: part K, from 0, of N")
    group.addoption(
        "--slow-limit-s", type=float, default=math.inf, help="slow tests do not begin later"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Only slow tests, for a share of them."""
    config.stash[_START_S] = time.monotonic()
    if config.getoption("slow_share"):
        config.option.markexpr = "slow"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the share, which the names decide: it is the same in all workers and on all days."""
    share = config.getoption("slow_share")
    if not share:
        return
    part, parts = map(int, share.split("/"))
    kept = [item for item in items if zlib.crc32(item.nodeid.encode()) % parts == part]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips slow tests when their time is over."""
    item.stash[_DISABLED_BEFORE] = os.environ.get(_DISABLE)
    limit_s = item.config.getoption("slow_limit_s")
    is_late = time.monotonic() - item.config.stash[_START_S] > limit_s
    if is_late and item.get_closest_marker("slow"):
        pytest.skip(f"slow tests had {limit_s:.0f} s")


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Commands that measure switch the optimizer off in their process, which is this one here."""
    before = item.stash.get(_DISABLED_BEFORE, None)
    os.environ.pop(_DISABLE, None)
    if before is not None:
        os.environ[_DISABLE] = before
