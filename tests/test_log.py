"""The logger, in processes of its own: logging is configured once per process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hplacer_optimizer import log

ROOT = Path(__file__).resolve().parents[1]


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


def test_by_default_info_goes_to_stderr() -> None:
    assert run(IMPORT + SPEAK) == "hplacer: i\nhplacer: w\n"


def test_importing_again_prints_once() -> None:
    again = "del sys.modules['hplacer_optimizer.log']\n"
    assert run(IMPORT + again + IMPORT + SPEAK) == "hplacer: i\nhplacer: w\n"


@pytest.mark.parametrize(
    ("level", "expected"),
    [("debug", "diw"), ("INFO", "iw"), ("warning", "w"), ("error", ""), ("off", "")],
)
def test_the_environment_sets_the_level(level: str, expected: str) -> None:
    assert run(IMPORT + SPEAK, level) == "".join(f"hplacer: {letter}\n" for letter in expected)


def test_off_silences_even_critical() -> None:
    assert run(IMPORT + "log.LOGGER.critical('c')", "off") == ""


def test_an_unknown_level_is_reported_and_ignored() -> None:
    lines = run(IMPORT + SPEAK, "loud").splitlines()
    assert lines[0] == (
        "hplacer: HPLACER_LOG='loud' is not one of debug, info, warning, error, off"
    )
    assert lines[1:] == ["hplacer: i", "hplacer: w"]


ROOT_CONFIG = "logging.basicConfig(format='app %(message)s', level=logging.WARNING)\n"


def test_an_application_that_configured_root_first_decides_format_and_level() -> None:
    assert run(ROOT_CONFIG + IMPORT + SPEAK) == "app w\n"


def test_an_application_that_configures_root_later_gets_every_record_once() -> None:
    assert run(IMPORT + ROOT_CONFIG + SPEAK) == "app i\napp w\n"


NOBODYS = "hplacer: i\nhplacer: w\n"


def test_a_root_handler_that_nobody_asked_for_leaves_our_form() -> None:
    lines = run(IMPORT + "logging.warning('x')\n" + SPEAK)
    assert lines == "WARNING:root:x\n" + NOBODYS


def test_absl_leaves_our_form() -> None:
    pytest.importorskip("absl")
    lines = run(IMPORT + "from absl import logging as absl\nabsl.warning('x')\n" + SPEAK)
    assert lines.endswith(" x\n" + NOBODYS) or lines.endswith(":x\n" + NOBODYS)


def test_an_application_that_configures_such_a_handler_gets_every_record_once() -> None:
    nobodys = IMPORT + "logging.warning('x')\n" + SPEAK
    own = "logging.getLogger().handlers[0].setFormatter(logging.Formatter('own %(message)s'))\n"
    assert run(nobodys + own + SPEAK).endswith(NOBODYS + "own i\nown w\n")


def test_a_plain_configuration_before_the_import_is_the_applications() -> None:
    assert run("logging.basicConfig()\n" + IMPORT + SPEAK) == "WARNING:hplacer:w\n"


def test_a_handler_of_the_application_replaces_ours() -> None:
    own = "logging.getLogger('hplacer').addHandler(logging.StreamHandler())\n"
    assert run(IMPORT + own + SPEAK) == "i\nw\n"


def test_a_level_that_the_application_set_stays() -> None:
    level = "logging.getLogger('hplacer').setLevel(logging.WARNING)\n"
    assert run(level + IMPORT + SPEAK) == "hplacer: w\n"


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
