"""The command, mostly in processes of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import hplacer_optimizer as hp
from hplacer_optimizer import cli
from hplacer_optimizer.cli import doctor
from hplacer_optimizer.cli.checks import Check, environment_checks, store_checks
from hplacer_optimizer.plans.store import PlanStore
from tests.plans.test_plan import BASELINE, FINGERPRINT, changed, make_plan, with_problem

ROOT = Path(__file__).resolve().parents[2]
OTHER = "ab" * 16
needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("hplacer_optimizer._engine") is None, reason="needs the native engine"
)


def hplacer(
    *arguments: object, timeout_s: float = 120.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if "HPLACER_" not in key}
    return subprocess.run(
        [sys.executable, "-m", "hplacer_optimizer", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**inherited, "COLUMNS": "200", **environment},
        timeout=timeout_s,
    )


def error_of(done: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """The one line on stderr of a command that failed."""
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("hplacer: error: ")
    return line


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A store with a good plan and a damaged one."""
    directory = tmp_path / "plans"
    store = PlanStore(directory)
    store.put(make_plan())
    Path(store.path(OTHER)).write_bytes(b"hplacer-plan/5 from the future")
    return directory


# ---- grammar ----


@pytest.mark.parametrize(
    "arguments",
    [["cache"], ["cache", "remove"], ["fly"], ["show"], ["show", "x", "--nope"], ["simulate"]],
    ids=" ".join,
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    error, remedy = output.err.splitlines()
    assert re.match("hplacer.*: error: ", error)
    assert re.fullmatch("see: hplacer.* --help", remedy)


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert "hplacer try train.py" in output.out


def test_commands_without_a_graph_start_fast_and_without_tensorflow(cache: Path) -> None:
    code = (
        "import sys, time; from hplacer_optimizer.cli import main\n"
        f"assert main(['cache', 'list', '--cache', {str(cache)!r}]) == 0\n"
        "assert 'tensorflow' not in sys.modules\n"
        "assert time.process_time() < 1.5\n"  # about 0.3
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


# ---- cache ----


def test_cache_list(cache: Path) -> None:
    done = hplacer("cache", "list", "--cache", cache)
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("3f9c2b1a", "train_step", "etf", "41.2 ms", "2024-05-01"):
        assert text in done.stdout
    assert re.search(r"41.2 ms +- +37.3%", done.stdout)
    assert f"unreadable: {cache}/{OTHER}.hplan: has format hplacer-plan/5" in done.stdout


def test_cache_list_json(cache: Path) -> None:
    good, bad = json.loads(hplacer("cache", "list", "--json", "--cache", cache).stdout)
    assert good["fingerprint"] == FINGERPRINT
    assert good["error"] is None
    assert good["plan"]["nodes_per_device"] == [1, 2]
    assert good["plan"]["step_time_ns"] == 41_200_000
    assert "node_hashes" not in good["plan"]
    assert bad["plan"] is None
    assert "upgrade hplacer-optimizer" in bad["error"]


def test_an_empty_cache(tmp_path: Path) -> None:
    assert hplacer("cache", "list", "--cache", tmp_path).stdout == f"no plans in {tmp_path}\n"
    assert json.loads(hplacer("cache", "list", "--json", "--cache", tmp_path).stdout) == []


def test_cache_path_is_the_default_directory(tmp_path: Path) -> None:
    done = hplacer("cache", "path", XDG_CACHE_HOME=str(tmp_path))
    assert done.stdout == f"{tmp_path}/hplacer\n"


def test_cache_remove(cache: Path) -> None:
    assert hplacer("cache", "remove", "3f9c", "--cache", cache).returncode == 0
    assert PlanStore(cache).fingerprints() == [OTHER]
    assert "no plan with '3f9c'" in error_of(hplacer("cache", "remove", "3f9c", "--cache", cache))


def test_cache_verify(cache: Path) -> None:
    done = hplacer("cache", "verify", "--cache", cache)
    assert done.returncode == 1
    assert f"failed  {cache}/{OTHER}.hplan: has format" in done.stdout
    assert f"2 plans in {cache}, 1 damaged" in done.stdout
    done = hplacer("cache", "verify", "--json", "--cache", cache)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["checked"], len(report["damaged"])) == (2, 1)
    PlanStore(cache).remove(OTHER)
    assert hplacer("cache", "verify", "--cache", cache).returncode == 0


def test_cache_verify_reads_the_problem_too(cache: Path) -> None:
    store = PlanStore(cache)
    store.remove(OTHER)
    plan = with_problem(make_plan(num_ops=4))  # its problem has 3
    Path(store.path(FINGERPRINT)).write_bytes(plan.to_bytes())
    assert hplacer("cache", "list", "--cache", cache).stdout.count("unreadable") == 0
    done = hplacer("cache", "verify", "--cache", cache)
    assert done.returncode == 1
    assert "the section 'op_devices' has 3 entries instead of 4" in done.stdout


def test_cache_remove_several_or_none(cache: Path) -> None:
    error = error_of(hplacer("cache", "remove", "3f9c", "00", "--cache", cache))
    assert "no plan with '00'" in error
    assert PlanStore(cache).fingerprints() == [FINGERPRINT, OTHER]
    done = hplacer("cache", "remove", "3f9c", "ab", "--json", "--cache", cache)
    assert len(json.loads(done.stdout)["removed"]) == 2
    assert PlanStore(cache).fingerprints() == []


def test_cache_prune(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = PlanStore(cache).path(FINGERPRINT)
    nothing = hplacer("cache", "prune", "--cache", cache)
    assert nothing.stdout == "nothing to remove\n"  # 1 GiB; a plan of a newer version is no damage
    assert hplacer("cache", "prune", "--damaged", "--cache", cache).stdout == nothing.stdout
    dry = hplacer("cache", "prune", "--unused-for", 0, "--dry-run", "--cache", cache)
    assert f"would remove {path}\n" in dry.stdout
    done = hplacer("cache", "prune", "--max-size", "0 B", "--json", "--cache", cache)
    assert path in json.loads(done.stdout)["removed"]
    assert PlanStore(cache).fingerprints() == []
    for wrong in (("--max-size", "12"), ("--unused-for", "nan"), ("--unused-for", "x")):
        assert cli.main(["cache", "prune", *wrong]) == 2
        assert "hplacer cache prune: error: " in capsys.readouterr().err


def test_cache_prune_counts_in_days(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = PlanStore(cache).path(FINGERPRINT)
    yesterday = time.time() - 24 * 3600
    os.utime(path, (yesterday, yesterday))
    for days, removed in (("1.5", "nothing to remove\n"), ("0.5", f"removed {path}\n")):
        assert cli.main(["cache", "prune", "--unused-for", days, "--cache", str(cache)]) == 0
        assert capsys.readouterr().out == removed


def test_cache_export_and_import(cache: Path, tmp_path: Path) -> None:
    there, third = tmp_path / "there", tmp_path / "third"
    done = hplacer("cache", "export", there, "--cache", cache)
    assert done.returncode == 1  # one of them is of a newer version
    assert f"copied {there}/{FINGERPRINT}.hplan\n" in done.stdout
    assert f"failed {cache}/{OTHER}.hplan: has format hplacer-plan/5" in done.stdout
    again = hplacer("cache", "export", there, "3f9", "--json", "--cache", cache)
    assert again.returncode == 0
    report = json.loads(again.stdout)
    assert (report["copied"], report["errors"], len(report["kept"])) == ([], [], 1)
    for source in (there, there / f"{FINGERPRINT}.hplan"):
        done = hplacer("cache", "import", source, "--json", "--cache", third)
        assert done.returncode == 0, done.stderr
        copied = json.loads(done.stdout)["copied"]
        assert copied == ([f"{third}/{FINGERPRINT}.hplan"] if source == there else [])
    files = [Path(PlanStore(place).path(FINGERPRINT)) for place in (cache, there, third)]
    assert len({file.read_bytes() for file in files}) == 1
    nothing = error_of(hplacer("cache", "import", tmp_path / "nowhere", "--cache", third))
    assert "there is no such file or directory" in nothing
    files[1].write_bytes(b"damaged")
    done = hplacer("cache", "import", files[1], "--cache", third)
    assert done.returncode == 1
    assert "is not a plan file" in done.stdout


def test_an_import_keeps_a_file_as_it_is(cache: Path, tmp_path: Path) -> None:
    other = changed(fingerprint="8a5b" + "0" * 28, label="function other")
    (tmp_path / "x.hplan").write_bytes(other)
    assert hplacer("cache", "import", tmp_path / "x.hplan", "--cache", cache).returncode == 0
    assert (cache / f"8a5b{'0' * 28}.hplan").read_bytes() == other
    assert "function other" in hplacer("show", "8a5b", "--cache", cache).stdout


def test_a_store_of_two_layers(cache: Path, tmp_path: Path) -> None:
    near = tmp_path / "near"
    both = f"{near};{cache}"
    shown = json.loads(hplacer("cache", "path", "--json", "--cache", both).stdout)
    assert shown == {"directory": both, "layers": [str(near), str(cache)]}
    assert hplacer("show", "3f9c", "--cache", both).returncode == 0
    listing = hplacer("cache", "list", "--cache", both).stdout
    assert str(near) in listing
    assert str(cache) in listing


def test_a_directory_that_others_can_write(cache: Path) -> None:
    PlanStore(cache).remove(OTHER)
    cache.chmod(0o777)
    assert f"chmod go-w {cache}" in error_of(hplacer("show", "3f9c", "--cache", cache))
    assert hplacer("show", "3f9c", "--cache", cache, "--trust-shared").returncode == 0


# ---- show ----


def test_show_by_prefix_and_by_path(cache: Path) -> None:
    by_prefix = hplacer("show", "3f9", "--all", "--cache", cache)
    by_path = hplacer("show", PlanStore(cache).path(FINGERPRINT), "--all")
    assert by_prefix.returncode == 0
    assert by_prefix.stdout == by_path.stdout
    expected = (
        "train_step: 3f9c2b1a (etf): 41.2 ms/step predicted",
        "(seed 7) in 0.25 s on worker-0",
        "nodes: GPU:0 2, CPU:0 1",
        "66.7%",
        "1 TiB",
        "constraints",
        "assumes loop_trip_count=10",
    )
    for text in expected:
        assert text in by_prefix.stdout


def test_the_ratio_to_tensorflows_placement(tmp_path: Path) -> None:
    twice, hardly = tmp_path / "twice.hplan", tmp_path / "hardly.hplan"
    twice.write_bytes(make_plan(baseline=BASELINE, prediction_error=0.9).to_bytes())
    hardly.write_bytes(make_plan(baseline=BASELINE, prediction_error=1.0).to_bytes())
    shown = hplacer("show", twice).stdout.splitlines()
    assert shown[:2] == [
        "train_step: 3f9c2b1a (etf): 41.2 ms/step, 2.0 times as fast as TensorFlow's placement "
        "(82.4 ms), both predicted",
        "lower bound 30 ms (critical path), gap 37.3%",
    ]
    shown = hplacer("show", hardly).stdout.splitlines()
    reason = "41.2 ms instead of 82.4 ms is within the error of the prediction"
    assert shown[1] == f"training leaves the graph alone (option min_gain): {reason}"
    document = json.loads(hplacer("show", hardly, "--json").stdout)
    assert (document["speedup"], document["why_left_alone"]) == (2.0, reason)
    assert document["baseline"] == vars(BASELINE)
    assert json.loads(hplacer("show", twice, "--json").stdout)["why_left_alone"] is None
    hplacer("cache", "import", twice, "--cache", tmp_path / "cache")
    assert re.search(
        r"41.2 ms +2.0 +37.3%", hplacer("cache", "list", "--cache", tmp_path / "cache").stdout
    )


def test_show_prints_markup_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.hplan"
    path.write_bytes(make_plan(fingerprint_parts={"graph": "[red]a[/red]"}).to_bytes())
    assert "[red]a[/red]" in hplacer("show", path, "--all").stdout


def test_show_json(cache: Path) -> None:
    document = json.loads(hplacer("show", "3f9", "--json", "--cache", cache).stdout)
    assert document["fingerprint"] == FINGERPRINT
    assert document["fingerprint_parts"]["graph"] == "a1"
    assert document["num_nodes"] == 3


def test_show_what_is_not_there(cache: Path) -> None:
    assert "no plan with '00'" in error_of(hplacer("show", "00", "--cache", cache))
    assert "is not the start of a fingerprint" in error_of(hplacer("show", "xyz"))
    assert "there is no such file" in error_of(hplacer("show", cache / "x.hplan"))
    damaged = error_of(hplacer("show", PlanStore(cache).path(OTHER)))
    assert damaged.endswith("made by a newer version: upgrade hplacer-optimizer")


# ---- simulate and plan ----


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """A chain of two ops that one device runs in 1,000 + 2,000 ns; the link takes 500 ns."""
    link = {"channel": "c", "latency_ns": 500, "bytes_per_s": 10**9}
    document = {
        "format": "hplacer-problem/2",
        "name": "chain",
        "device_kinds": ["cpu"],
        "devices": [{"name": f"/cpu:{d}", "kind": "cpu", "memory_bytes": 1000} for d in (0, 1)],
        "links": [{"src": 0, "dst": 1, **link}, {"src": 1, "dst": 0, **link}],
        "ops": [
            {"name": "a", "type": "X", "cost_ns": {"cpu": 1000}, "output_bytes": [0]},
            {"name": "b", "type": "X", "cost_ns": {"cpu": 2000}, "persistent_bytes": 600},
        ],
        "edges": [[0, 0, 1]],
    }
    path = tmp_path / "chain.hplacer.json"
    path.write_text(json.dumps(document))
    return path


@needs_engine
@pytest.mark.parametrize(
    ("placement", "step_time_ns", "counts"),
    [("all:0", 3000, [2, 0]), ("all:1", 3000, [0, 2]), ("round_robin", 3500, [1, 1])],
)
def test_simulate(problem: Path, placement: str, step_time_ns: int, counts: list[int]) -> None:
    done = hplacer("simulate", problem, "--placement", placement, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["feasible"] is True
    assert report["infeasible_because"] == []
    assert report["step_time_ns"] == step_time_ns
    assert report["ops_per_device"] == counts
    assert sum(report["peak_bytes"]) == 600
    done = hplacer("simulate", problem, "--placement", placement)
    assert done.returncode == 0
    assert f"step time: {step_time_ns / 1000:.3g} us" in done.stdout
    assert "lower bound: 3 us (critical path" in done.stdout
    assert "cpu:1" in done.stdout


@needs_engine
def test_simulate_and_plan_beside_tensorflows_placement(problem: Path) -> None:
    document = json.loads(problem.read_text())
    for op in document["ops"]:
        op["default_device"] = 1
    document["ops"][0]["default_device"] = 0
    problem.write_text(json.dumps(document))
    done = hplacer("simulate", problem, "--placement", "all:0")
    assert "step time: 3 us, 1.17 times as fast as TensorFlow's placement (3.5 us)\n" in done.stdout
    found = json.loads(hplacer("plan", problem, "--planner", "etf", "--json").stdout)
    assert found["speedup"] == pytest.approx(3500 / 3000)
    assert found["baseline"] == {
        "step_time_ns": 3500,
        "feasible": True,
        "peak_bytes": [0, 600],
    }
    assert found["why_left_alone"] is None  # no training finds it
    document["devices"][1]["memory_bytes"] = 599
    problem.write_text(json.dumps(document))
    done = hplacer("plan", problem, "--planner", "etf")
    assert "step time: 3 us, TensorFlow's placement does not fit into memory\n" in done.stdout


@needs_engine
def test_simulate_writes_a_trace(problem: Path, tmp_path: Path) -> None:
    trace = tmp_path / "step.json"
    done = hplacer("simulate", problem, "--placement", "round_robin", "--trace", trace, "--json")
    report = json.loads(done.stdout)
    assert report["lower_bound_ns"] == 3000
    ops = {
        event["name"]: (event["ts"], event["dur"])
        for event in json.loads(trace.read_text())["traceEvents"]
        if event["ph"] == "X" and event["name"] in ("a", "b")
    }
    assert ops == {"a": (0, 1), "b": (1.5, 2)}


@needs_engine
def test_simulate_an_infeasible_placement_is_1(problem: Path) -> None:
    document = json.loads(problem.read_text())
    document["ops"][1]["persistent_bytes"] = 2000
    problem.write_text(json.dumps(document))
    done = hplacer("simulate", problem, "--placement", "all:0")
    assert (done.returncode, done.stderr) == (1, "")
    assert "(infeasible)" in done.stdout
    assert "infeasible: " in done.stdout
    done = hplacer("simulate", problem, "--placement", "all:0", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["feasible"] is False


@needs_engine
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[0", "is not JSON"),
        ("{}", "expected a list of device indices"),
        ("[0]", "has 1 devices for 2 ops"),
        ("[0, 2]", "device 2 is out of range"),
        ("[0, true]", "expected an integer"),
        ("[0, 1e9]", "expected an integer"),
        (f"[0, {2**70}]", "is out of range"),
    ],
)
def test_a_bad_placement_file(problem: Path, tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(content)
    message = error_of(hplacer("simulate", problem, "--placement", path))
    assert str(path) in message
    assert reason in message


@needs_engine
def test_names_that_are_not_there(problem: Path, tmp_path: Path) -> None:
    wrong = error_of(hplacer("simulate", problem, "--placement", "round_robbin"), code=2)
    assert "did you mean 'round_robin'?" in wrong
    assert "out of range" in error_of(hplacer("simulate", problem, "--placement", "all:2"))
    missing = tmp_path / "no.hplacer.json"
    assert str(missing) in error_of(hplacer("plan", missing))
    assert "etf" in hplacer("plan", problem, "--planner", "guess").stderr
    assert "/no/where" in error_of(hplacer("plan", problem, "-o", "/no/where"))


@needs_engine
def test_plan_writes_a_plan_that_simulate_and_show_read(problem: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.hplan"
    done = hplacer("plan", problem, "--planner", "etf", "--seed", 3, "-o", output, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["planner"], report["seed"], report["num_ops"]) == ("etf", 3, 2)
    assert report["step_time_ns"] == 3000
    again = json.loads(hplacer("simulate", problem, "--placement", output, "--json").stdout)
    assert again.items() <= report.items()
    shown = json.loads(hplacer("show", output, "--json").stdout)
    assert (shown["planner"], shown["step_time_ns"]) == ("etf", 3000)
    placement = tmp_path / "placement.json"
    placement.write_text(json.dumps(hp.load_plan(output).placement.tolist()))  # type: ignore[union-attr]
    listed = json.loads(hplacer("simulate", problem, "--placement", placement, "--json").stdout)
    assert listed == again


def test_a_plan_of_another_graph_is_no_placement(problem: Path, tmp_path: Path) -> None:
    hp.plan("example", planner="etf").save(tmp_path / "x.hplan")
    failed = hplacer("simulate", problem, "--placement", tmp_path / "x.hplan")
    assert "x.hplan: is a plan of another graph or machine: its ops differ" in error_of(failed)


WAITING_PLANNER = """
import pathlib
from hplacer_optimizer.planners import etf

def waits(problem, *, budget, seed, on_progress):
    pathlib.Path("searching").touch()
    budget.stop.wait()
    return etf.plan(problem)
"""


def test_a_signal_keeps_the_best_plan(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(WAITING_PLANNER)
    command = [sys.executable, "-m", "hplacer_optimizer", "plan", "example"]
    process = subprocess.Popen(
        [*command, "--planner", "own:waits", "--budget", "5m", "-o", "x.hplan"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        while not (tmp_path / "searching").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: the best plan so far is in x.hplan" in stderr
    assert hp.load_plan(tmp_path / "x.hplan").planner == "own:waits"


# ---- doctor ----


def test_doctor_names_what_is_broken(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.chmod(0o777)
    done = hplacer("doctor", "--json", "--cache", cache, HPLACER_LOG="loud", HPLACER_DISABLE="1")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert report["ok"] is False
    assert checks["plan store"]["remedy"].startswith(f"run `chmod go-w {cache}`")
    assert "unset HPLACER_DISABLE" in checks["HPLACER_DISABLE"]["remedy"]
    assert "debug, info" in checks["HPLACER_LOG"]["remedy"]
    assert checks["NumPy"]["remedy"] is None
    for name in ("TensorFlow", "native TensorFlow pass", "sample session"):
        assert checks[name]["status"] == "ok"
    sample = checks["sample session"]["detail"]
    assert sample == "78 ops, 78 of their nodes placed on two CPU devices, and they ran there"
    assert "CPU:0" in checks["devices"]["detail"]


def test_doctor_prints_a_remedy_below_a_fault(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.chmod(0o777)
    checks = [*store_checks(PlanStore(cache)), *environment_checks({})]
    assert doctor._report(checks, as_json=False) == 1
    fault, remedy, fine = capsys.readouterr().out.splitlines()
    assert fault.startswith(f"failed  plan store: {cache}: other users can write here")
    assert remedy.startswith(f"        -> run `chmod go-w {cache}`, or set trust_shared")
    assert fine.startswith("ok      XLA: no setting")
    assert doctor._report(checks[1:], as_json=False) == 0


def status_of(check: Check) -> tuple[str, str, str]:
    return check.status, check.detail, check.remedy or ""


def test_doctor_looks_at_every_directory_of_the_store(cache: Path, tmp_path: Path) -> None:
    missing, file = tmp_path / "missing", tmp_path / "file"
    file.touch()
    both = PlanStore(f"{missing};{cache}")
    absent, newer = map(status_of, store_checks(both))
    assert absent == ("ok", f"{missing}, 0 plans (is created when needed)", "")
    assert (newer[0], newer[2]) == ("failed", "upgrade hplacer-optimizer")
    assert f"{cache}, 2 plans, " in newer[1]
    Path(both.layers[1].path(OTHER)).write_bytes(b"damaged")
    ((_, detail, remedy),) = map(status_of, store_checks(PlanStore(cache)))
    assert "1 unreadable: " in detail
    assert remedy == f"hplacer cache prune --damaged --cache '{cache}'"
    PlanStore(cache).remove(OTHER)
    ((status, detail, _),) = map(status_of, store_checks(PlanStore(cache)))
    assert status == "ok"
    assert detail.endswith("readable and writable")
    assert sorted(os.listdir(cache)) == [".lock", f"{FINGERPRINT}.hplan"]  # nothing is left
    ((status, detail, remedy),) = map(status_of, store_checks(PlanStore(file / "below")))
    assert status == "failed"
    assert "is not writable" in detail
    ((status, _, remedy),) = map(status_of, store_checks(PlanStore("/proc")))
    assert (status, "choose another" in remedy) == ("failed", True)


@pytest.mark.parametrize(
    ("environment", "status", "text"),
    [
        ({}, "ok", "no setting of the environment hides steps"),
        ({"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}, "note", "remove --tf_xla_auto_jit"),
        ({"TF_XLA_FLAGS": "--tf_xla_auto_jit=0"}, "ok", "no setting"),
        ({"TF_XLA_FLAGS": "--tf_xla_cpu_global_jit"}, "ok", "no setting"),
        ({"TF_FUNCTION_JIT_COMPILE_DEFAULT": "1"}, "failed", "unset TF_FUNCTION_JIT_COMPILE"),
    ],
)
def test_doctor_names_what_hides_the_step(
    environment: dict[str, str], status: str, text: str
) -> None:
    (check,) = environment_checks(environment)
    assert (check.name, check.status) == ("XLA", status)
    assert text in f"{check.detail} {check.remedy}"


def test_doctor_reads_the_options_of_the_environment() -> None:
    good, _ = environment_checks({"HPLACER_OPTIONS": "seed=3"})
    bad, _ = environment_checks({"HPLACER_OPTIONS": "sead=3"})
    assert good.status == "ok"
    assert bad.status == "failed"
    assert "did you mean 'seed'?" in str(bad.remedy)


@pytest.mark.parametrize(
    ("found", "status", "text"),
    [
        ({"differences": [["a", "CPU:0", "CPU:1"]]}, "failed", "a is on CPU:1 instead of CPU:0"),
        ({"outcome": "failed", "reason": "no kernel"}, "failed", "failed: no kernel"),
        ({"checked": 0}, "failed", "did not take the plan over"),
        ({}, "ok", "and they ran there"),
    ],
)
def test_doctor_tells_what_became_of_the_sample(
    found: dict[str, Any], status: str, text: str
) -> None:
    sample: dict[str, Any] = {"tensorflow": "2.21.0", "built_for": "2.21.0"}
    sample |= {
        "devices": ["/physical_device:CPU:0", "/physical_device:GPU:0"],
        "ops": 8,
        "placed": 8,
    }
    sample |= {"outcome": "planned", "reason": "", "checked": 8, "differences": [], **found}
    _, _, listed, session = doctor._read_sample(sample)
    assert status_of(listed) == ("ok", "CPU:0, GPU:0", "")
    assert session.status == status
    assert text in session.detail


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('1.2'); import os; os.kill(os.getpid(), 11)", (False, "crashed with SIGSEGV")),
        ("import sys; sys.exit('noise\\nthe reason')", (False, "the reason")),
        ("print('1.2')", (True, "1.2")),
        ("", (True, "")),
    ],
)
def test_a_probe_survives_what_it_runs(code: str, expected: tuple[bool, str]) -> None:
    assert doctor._run_python(code) == expected


def test_a_probe_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PROBE_TIMEOUT_S", 0.5)
    answer = doctor._run_python("import time; time.sleep(60)")
    assert answer == (False, "no answer within 0.5 seconds")


# ---- ends that come early ----


def test_a_closed_pipe_is_no_traceback(cache: Path) -> None:
    store = PlanStore(cache)
    for i in range(64):  # more than a pipe and the buffers hold
        store.put(make_plan(fingerprint=f"{i:032x}", assumptions=["x" * 4000]))
    command = [sys.executable, "-m", "hplacer_optimizer", "cache", "list", "--json"]
    process = subprocess.Popen(
        [*command, "--cache", str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_control_c_is_130(problem: Path) -> None:
    code = (
        "import sys, time\n"
        "from hplacer_optimizer import cli\n"
        "def hang(options): print('ready', flush=True); time.sleep(60)\n"
        "cli.cache._path = hang\n"
        "sys.exit(cli.main(['cache', 'path']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
    assert process.returncode == 130
