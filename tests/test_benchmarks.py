"""Scripts of benchmarks/ as commands: each starts, and what can be small measures something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.processes import ROOT, clean_environment, run_script

SCRIPTS = sorted(map(str, (ROOT / "benchmarks").glob("*.py")))
# One process runs them one after the other, as most of their time is that of imports.
HELP = """
import contextlib, io, json, os, runpy, sys
told = {}
sys.path[0] = os.path.dirname(sys.argv[1])
for script in sys.argv[1:]:
    sys.argv = [script, "--help"]
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        told[script] = [end.code or 0, output.getvalue()]
print("TOLD " + json.dumps(told))
"""


def run(directory: Path, *arguments: str) -> str:
    """What Python printed with these arguments."""
    done = run_script(arguments, cwd=directory, environment=clean_environment(directory))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_script_tells_its_options(tmp_path: Path) -> None:
    (line,) = (
        line for line in run(tmp_path, "-c", HELP, *SCRIPTS).splitlines() if line[:5] == "TOLD "
    )
    told = json.loads(line.removeprefix("TOLD "))
    assert [*told] == SCRIPTS
    for script, (code, text) in told.items():
        assert code == 0, script
        assert text.startswith("usage: "), script
        assert "--help" in text, script


def test_each_rule_of_launches_stands_in_the_simulator(tmp_path: Path) -> None:
    """The benchmark leaves out one at a time by replacing its text."""
    assert "launches take time" in run(tmp_path, "-m", "benchmarks.launch_rules", "--list")


def test_the_plan_store(tmp_path: Path) -> None:
    small = ("--plans", "2", "4", "--nodes", "20")
    arguments = ["-m", "benchmarks.plan_store", *small, "--json"]
    done = run_script(arguments, cwd=tmp_path, environment=clean_environment(tmp_path))
    found = json.loads(done.stdout)
    # The goal is about times, which busy cores change: the exit code says whether it is missed.
    assert done.returncode == int(found["lookup_ratio"] >= found["goal"]), done.stderr
    assert [store["plans"] for store in found["stores"]] == [2, 4]
    assert all(store["lookup_s"] > 0 for store in found["stores"])


def test_the_simulator(tmp_path: Path) -> None:
    small = ("--parts", "scaling", "--sizes", "100", "--repeats", "1")
    found = json.loads(run(tmp_path, "-m", "benchmarks.simulator", *small, "--json"))
    (row,) = found["scaling"]
    assert row["ops"] == 100
    assert row["random_ns_per_op"] > 0


def test_rollouts(tmp_path: Path) -> None:
    small = ("--parts", "rollout", "--tasks", "--generated", "1", "--seeds", "1")
    run(tmp_path, "-m", "benchmarks.rollout", *small, "--output", "found")
    (row,) = json.loads((tmp_path / "found" / "rollout.json").read_text())["rollout"].values()
    assert row["rollout"][0] <= min(row["quick"].values())


def test_scenarios_on_emulated_gpus(tmp_path: Path) -> None:
    small = ("functions", "--seed", "1", "--steps", "2")
    told = run(tmp_path, "-m", "benchmarks.emulation_scenarios", *small)
    (line,) = [line for line in told.splitlines() if line.startswith("REPORT ")]
    assert json.loads(line.removeprefix("REPORT "))
