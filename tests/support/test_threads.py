"""What runs when a process ends, under each Python that is here."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from build_wheel import PYTHONS, find_interpreter
from hplacer_optimizer.support import threads

SCRIPT = f"""
import time
exec(compile(open({threads.__file__!r}).read(), "threads.py", "exec"))
def say(what):
    print(what, threading.current_thread() is threading.main_thread(), flush=True)
"""


@pytest.fixture(scope="module", params=PYTHONS)
def python(request: pytest.FixtureRequest) -> Path:
    found = find_interpreter(request.param)
    if found is None:
        pytest.skip(f"no Python {request.param} is here")
    return found.file


def lines_of(python: Path, script: str) -> list[str]:
    # 3.12 warns of forks beside threads.
    command = [python, "-S", "-W", "ignore::DeprecationWarning", "-c", SCRIPT + script]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_what_runs_at_exit_does_on_a_thread_also_in_a_forked_child(python: Path) -> None:
    script = """
AtExit(lambda: say("act"), limit_s=60, name="exit")
child = os.fork()
if child:
    os.waitpid(child, 0)
"""
    assert lines_of(python, script) == ["act False"] * 2


def test_a_process_does_not_wait_for_long_for_what_runs_at_exit(python: Path) -> None:
    begin_s = time.monotonic()
    assert lines_of(python, 'AtExit(lambda: time.sleep(60), limit_s=0.1, name="exit")') == []
    assert time.monotonic() - begin_s < 30


def test_what_finds_no_thread_any_more_runs_at_once(python: Path) -> None:
    script = """
def act():
    thread = start_or_run(say, "late", name="late")
    if thread:
        thread.join()
start_or_run(say, "early", name="early").join()
AtExit(act, limit_s=60, name="exit")
"""
    early, late = lines_of(python, script)
    assert early == "early False"
    assert late.startswith("late ")
