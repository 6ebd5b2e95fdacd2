"""The fork server: a forked script cannot tell that it did not start in a fresh interpreter."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.processes import ROOT, clean_environment, has_ended, run, run_script, wait_for

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.skipif("HPLACER_TEST_FRESH" in os.environ, reason="HPLACER_TEST_FRESH")

LOOK_AROUND = """
import tensorflow, os, signal, sys, threading
import __main__
found = {
    "argv": sys.argv, "path": sys.path, "cwd": os.getcwd(), "environment": dict(os.environ),
    "main": [__name__, __file__, vars(__main__) is globals()],
    "own": sorted(name for name in sys.modules if name.startswith(("hplacer", "tests"))),
    "signals": {s.name: str(signal.getsignal(s)) for s in signal.Signals},
    "threads": [thread.name for thread in threading.enumerate()],
    "input": sys.stdin.read(), "open": sorted(os.listdir("/proc/self/fd")),
    "streams": [[s.line_buffering, s.encoding, s.isatty()] for s in (sys.stdout, sys.stderr)],
    "flags": str(sys.flags), "affinity": sorted(os.sched_getaffinity(0)),
}
"""


def test_a_fork_finds_what_a_fresh_interpreter_finds(tmp_path: Path) -> None:
    script = tmp_path / "look_around.py"
    script.write_text(LOOK_AROUND + "import json\nprint(json.dumps(found))")
    environment = clean_environment(tmp_path) | {"TEST_A": "1"}
    fresh, forked = (
        run_script(
            ["look_around.py", "--a", "b"], cwd=tmp_path, environment=environment, fresh=fresh
        )
        for fresh in (True, False)
    )
    assert json.loads(forked.stdout) == json.loads(fresh.stdout)


def test_scripts_draw_other_random_numbers(tmp_path: Path) -> None:
    draw = "import random\nreport(drawn=[random.random(), np.random.random()])"
    first, second = (run(draw, tmp_path).report["drawn"] for _ in range(2))
    assert not set(first) & set(second)


def test_multiprocessing_ends_with_the_modules_that_it_began_with(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import sys\n"
        "from multiprocessing import resource_tracker, util\n"
        "def look():\n"
        "    print(sys.modules.get(resource_tracker.__name__) is resource_tracker, flush=True)\n"
        "util.Finalize(None, look, exitpriority=0)"
    )
    done = run_script(["script.py"], cwd=tmp_path, environment=clean_environment(tmp_path))
    assert done.stdout == "True\n"


@pytest.mark.parametrize(
    ("end", "returncode"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("raise KeyError('x')", 1),
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("os.kill(os.getpid(), 2)", -signal.SIGINT),
    ],
)
def test_how_a_script_ended(end: str, returncode: int, tmp_path: Path) -> None:
    code = f"import atexit\natexit.register(lambda: report(last=1))\nprint('x' * 10**6)\n{end}"
    outcome = run(code, tmp_path, returncode=returncode)
    assert outcome.report == ({"last": 1} if returncode in (0, 1, 3, -signal.SIGINT) else {})
    assert ("KeyError: 'x'" in outcome.stderr) == (returncode == 1)


@pytest.mark.slow
def test_an_environment_that_tensorflow_reads_at_its_import_gets_a_fresh_interpreter(
    tmp_path: Path,
) -> None:
    parents = [
        run("report(pid=os.getppid())", tmp_path, **{name: "1"}).report["pid"]
        for name in ("HPLACER_X", "TF_X")
    ]
    assert parents[0] != os.getpid()
    assert parents[1] == os.getpid()


def test_what_a_script_starts_is_a_fork_if_it_imports_tensorflow(tmp_path: Path) -> None:
    code = """
from hplacer_optimizer.support import child_process, tf_process
FORKED = "import tensorflow; import os, sys\\n"

def started(code, **options):
    import subprocess
    command = [sys.executable, "-c", code, "an argument"]
    return subprocess.run(command, capture_output=True, text=True, **options)

tell = "print(os.getppid(), os.environ.get('TEST_A'), *sys.argv, sys.stdin.read(), os.getcwd())\\n"
tell += "print(os.getcwd() in sys.path)"
other = child_process.environment(**tf_process.ENVIRONMENT, TEST_A="a")  # of the package's own
forked = started(FORKED + tell, input="x", env=other, cwd="/")
report(
    me=os.getpid(), forked=forked.stdout.split(),
    fresh=started("import os; print(os.getppid())").stdout.split(),
    codes=[started(FORKED + end).returncode for end in ("sys.exit(3)", "os.abort()")],
    told=started(FORKED + "print('x', file=sys.stderr)").stderr,
)
"""
    report = run(code, tmp_path).report
    # Whether the script itself is a fork depends on what this process has imported by now.
    server, *told = report["forked"]
    assert b"fork_server.py" in Path(f"/proc/{server}/cmdline").read_bytes()
    assert told == ["a", "-c", "an", "argument", "x", "/", "False"]
    assert report["fresh"] == [str(report["me"])]
    assert report["codes"] == [3, -signal.SIGABRT]
    assert report["told"] == "x\n"


def test_what_a_script_kills_ends(tmp_path: Path) -> None:
    code = """
import subprocess, time
forked = "import tensorflow, os, time\\nprint(os.getpid(), flush=True)\\ntime.sleep(600)"
with subprocess.Popen([sys.executable, "-c", forked], stdout=subprocess.PIPE) as process:
    pid = int(process.stdout.readline())
    process.kill()
report(pid=pid, code=process.returncode)
"""
    report = run(code, tmp_path).report
    assert report["code"] == -signal.SIGKILL
    wait_for(lambda: has_ended(report["pid"]))


ENDLESS = """
import os, time
open("began", "w").write(f"{os.getpid()} {os.getppid()}")
os.rename("began", "pids")
time.sleep(600)
"""


def test_a_script_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    def server() -> dict[str, int]:
        return run("report(server=os.getppid())", tmp_path).report

    first = server()  # which may have to start
    with pytest.raises(subprocess.TimeoutExpired):
        run(ENDLESS, tmp_path, prelude="", timeout_s=5)
    script, of_script = map(int, (tmp_path / "pids").read_text().split())
    assert has_ended(script)
    assert first == server() == {"server": of_script}


@pytest.mark.slow
def test_nothing_outlives_a_client_that_is_killed(tmp_path: Path) -> None:
    client = f"""
from pathlib import Path
from tests.processes import clean_environment, run_script
here = Path({str(tmp_path)!r})
run_script(["endless.py"], cwd=here, environment=clean_environment(here))
"""
    (tmp_path / "endless.py").write_text(ENDLESS)
    pids = tmp_path / "pids"
    environment = clean_environment(tmp_path)
    environment.pop(processes.SERVED, None)  # the client starts a server of its own
    with subprocess.Popen([sys.executable, "-c", client], cwd=ROOT, env=environment) as process:
        wait_for(pids.exists)
        process.kill()
    for pid in pids.read_text().split():
        wait_for(functools.partial(has_ended, int(pid)))
