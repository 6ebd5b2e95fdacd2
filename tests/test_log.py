"""The logger, in processes of its own: logging is configured once per process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from hplacer_optimizer import log
from tests.processes import ROOT


def run(code: str, level: str | None = None) -> str:
    """What the code prints to stderr in a fresh interpreter."""
    environment = {key: value for key, value in os.environ.items() if key != "HPLACER_LOG"}
    if level is not None:
        environment["HPLACER_LOG"] = level
    done = subprocess.run(
        [sys.executable, "-c", "import logging, sys\n" + code],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr


IMPORT = "from hplacer_optimizer import log\n"
SPEAK = "log.LOGGER.debug('d'); log.LOGGER.info('i'); log.LOGGER.warning('w')\n"


ROOT_CONFIG = "logging.basicConfig(format='app %(message)s', level=logging.WARNING)\n"
AGAIN = "del sys.modules['hplacer_optimizer.log']\n" + IMPORT
WARN = "logging.warning('x')\n"  # adds a handler that nobody asked for
OWN_FORM = "logging.getLogger().handlers[0].setFormatter(logging.Formatter('own %(message)s'))\n"
OWN_HANDLER = "logging.getLogger('hplacer').addHandler(logging.StreamHandler())\n"
OWN_LEVEL = "logging.getLogger('hplacer').setLevel(logging.WARNING)\n"
OURS = "hplacer: i\nhplacer: w\n"


@pytest.mark.parametrize(
    ("code", "level", "expected"),
    [
        (IMPORT + SPEAK, None, OURS),
        (IMPORT + AGAIN + SPEAK, None, OURS),
        (IMPORT + SPEAK, "debug", "hplacer: d\n" + OURS),
        (IMPORT + SPEAK, "INFO", OURS),
        (IMPORT + SPEAK, "warning", "hplacer: w\n"),
        (IMPORT + SPEAK, "error", ""),
        (IMPORT + SPEAK + "log.LOGGER.critical('c')", "off", ""),
        (ROOT_CONFIG + IMPORT + SPEAK, None, "app w\n"),
        ("logging.basicConfig()\n" + IMPORT + SPEAK, None, "WARNING:hplacer:w\n"),
        (IMPORT + ROOT_CONFIG + SPEAK, None, "app i\napp w\n"),
        (IMPORT + WARN + SPEAK, None, "WARNING:root:x\n" + OURS),
        (IMPORT + WARN + OWN_FORM + SPEAK, None, "WARNING:root:x\nown i\nown w\n"),
        (IMPORT + OWN_HANDLER + SPEAK, None, "i\nw\n"),
        (OWN_LEVEL + IMPORT + SPEAK, None, "hplacer: w\n"),
    ],
)
def test_what_is_printed(code: str, level: str | None, expected: str) -> None:
    assert run(code, level) == expected


def test_an_unknown_level_is_reported_and_ignored() -> None:
    lines = run(IMPORT + SPEAK, "loud").splitlines()
    assert lines[0] == (
        "hplacer: HPLACER_LOG='loud' is not one of debug, info, warning, error, off"
    )
    assert lines[1:] == ["hplacer: i", "hplacer: w"]


@pytest.mark.parametrize(
    "stream",
    [
        "sys.stderr.close()\n",
        "sys.stderr = None\n",
        "import os; os.close(2)\n",
        "class Refusing(logging.Handler):\n    def emit(self, record): raise KeyError\n"
        "logging.getLogger().addHandler(Refusing())\n",
    ],
)
def test_nothing_is_raised_or_printed_where_nothing_can_be_told(stream: str) -> None:
    assert run(IMPORT + stream + SPEAK + "log.warn_once('k', 'm')") == ""


BACK = "sys.stderr = sys.__stderr__  # Python itself flushes it in the end\n"


def test_a_stream_needs_no_more_than_write() -> None:
    tee = "class Tee:\n    def write(self, text): sys.__stderr__.write(f'tee {text}')\n"
    assert (
        run(IMPORT + tee + "sys.stderr = Tee()\n" + SPEAK + BACK)
        == "tee hplacer: i\ntee hplacer: w\n"
    )


def test_absl_leaves_our_form() -> None:
    pytest.importorskip("absl")
    lines = run(IMPORT + "from absl import logging as absl\nabsl.warning('x')\n" + SPEAK)
    assert lines.endswith((" x\n" + OURS, ":x\n" + OURS))


def test_warn_once_from_many_threads(caplog: pytest.LogCaptureFixture) -> None:
    barrier = threading.Barrier(16)

    def warn() -> None:
        barrier.wait()
        log.warn_once("test_log.key", "100% sure")
        log.warn_once("test_log.other", "other")

    threads = [threading.Thread(target=warn) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(record.getMessage() for record in caplog.records) == ["100% sure", "other"]
