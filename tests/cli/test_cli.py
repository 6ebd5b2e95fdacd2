"""The command: plan stores, plans, problems and what is broken."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.cli import doctor
from hplacer_optimizer.cli.checks import Check, environment_checks, gpu_checks, store_checks
from hplacer_optimizer.machines import nvidia
from hplacer_optimizer.plans.store import PlanStore
from testbed.planted_problems import machine
from tests.commands import document_of, error_of, hplacer
from tests.plans.test_plan import BASELINE, FINGERPRINT, changed, make_plan, with_problem
from tests.processes import ROOT

OTHER = "ab" * 16


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A store with a good plan and a damaged one."""
    directory = tmp_path / "plans"
    store = PlanStore(directory)
    store.put(make_plan())
    Path(store.path(OTHER)).write_bytes(b"hplacer-plan/5 from the future")
    return directory


def test_without_a_command_the_help_is_printed() -> None:
    done = hplacer()
    assert (done.returncode, done.stderr) == (0, "")
    assert "hplacer try train.py" in done.stdout


def test_commands_without_a_graph_start_fast_and_without_tensorflow(cache: Path) -> None:
    code = (
        "import sys, time; from hplacer_optimizer.cli import main\n"
        f"assert main(['cache', 'list', '--cache', {str(cache)!r}]) == 0\n"
        "assert 'tensorflow' not in sys.modules\n"
        "assert time.process_time() < 1.5\n"  # about 0.3
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


# ---- cache ----


def test_cache_list(cache: Path, tmp_path: Path) -> None:
    listing = hplacer("cache", "list", "--cache", cache).stdout
    for text in ("3f9c2b1a", "train_step", "etf", "41.2 ms", "2024-05-01"):
        assert text in listing
    assert re.search(r"41.2 ms +- +37.3%", listing)
    assert f"unreadable: {cache}/{OTHER}.hplan: has format hplacer-plan/5" in listing
    good, bad = document_of("cache", "list", "--cache", cache)
    assert (good["fingerprint"], good["error"]) == (FINGERPRINT, None)
    assert (good["plan"]["nodes_per_device"], good["plan"]["step_time_ns"]) == ([1, 2], 41_200_000)
    assert "node_hashes" not in good["plan"]
    assert bad["plan"] is None
    assert "upgrade hplacer-optimizer" in bad["error"]
    nothing = tmp_path / "nothing"
    assert hplacer("cache", "list", "--cache", nothing).stdout == f"no plans in {nothing}\n"
    assert document_of("cache", "list", "--cache", nothing) == []


def test_cache_path_is_the_default_directory(tmp_path: Path) -> None:
    done = hplacer("cache", "path", XDG_CACHE_HOME=str(tmp_path))
    assert done.stdout == f"{tmp_path}/hplacer\n"


def test_cache_verify(cache: Path) -> None:
    done = hplacer("cache", "verify", "--cache", cache)
    assert done.returncode == 1
    assert f"failed  {cache}/{OTHER}.hplan: has format" in done.stdout
    assert f"2 plans in {cache}, 1 damaged" in done.stdout
    report = document_of("cache", "verify", "--cache", cache, code=1)
    assert (report["checked"], len(report["damaged"])) == (2, 1)
    PlanStore(cache).remove(OTHER)
    assert hplacer("cache", "verify", "--cache", cache).returncode == 0
    plan = with_problem(make_plan(num_ops=4))  # its problem has 3
    Path(PlanStore(cache).path(FINGERPRINT)).write_bytes(plan.to_bytes())
    assert "unreadable" not in hplacer("cache", "list", "--cache", cache).stdout
    done = hplacer("cache", "verify", "--cache", cache)
    assert done.returncode == 1
    assert "the section 'op_devices' has 3 entries instead of 4" in done.stdout


def test_cache_remove(cache: Path) -> None:
    error = error_of("cache", "remove", "3f9c", "00", "--cache", cache)
    assert "no plan with '00'" in error
    assert PlanStore(cache).fingerprints() == [FINGERPRINT, OTHER]
    assert len(document_of("cache", "remove", "3f9c", "ab", "--cache", cache)["removed"]) == 2
    assert PlanStore(cache).fingerprints() == []


def test_cache_prune(cache: Path) -> None:
    path = PlanStore(cache).path(FINGERPRINT)
    prune = ("cache", "prune", "--cache", cache)
    assert hplacer(*prune).stdout == "nothing to remove\n"  # 1 GiB
    assert hplacer(*prune, "--damaged").stdout == "nothing to remove\n"  # a newer one is no damage
    assert f"would remove {path}\n" in hplacer(*prune, "--unused-for", 0, "--dry-run").stdout
    yesterday = time.time() - 24 * 3600
    os.utime(path, (yesterday, yesterday))
    for days, removed in (("1.5", "nothing to remove\n"), ("0.5", f"removed {path}\n")):
        assert hplacer(*prune, "--unused-for", days).stdout == removed
    PlanStore(cache).put(make_plan())
    assert path in document_of(*prune, "--max-size", "0 B")["removed"]
    assert PlanStore(cache).fingerprints() == []
    for wrong in (("--max-size", "12"), ("--unused-for", "nan"), ("--unused-for", "x")):
        done = hplacer(*prune, *wrong)
        assert done.returncode == 2
        assert "hplacer cache prune: error: " in done.stderr


def test_cache_export_and_import(cache: Path, tmp_path: Path) -> None:
    there, third = tmp_path / "there", tmp_path / "third"
    done = hplacer("cache", "export", there, "--cache", cache)
    assert done.returncode == 1  # one of them is of a newer version
    assert f"copied {there}/{FINGERPRINT}.hplan\n" in done.stdout
    assert f"failed {cache}/{OTHER}.hplan: has format hplacer-plan/5" in done.stdout
    report = document_of("cache", "export", there, "3f9", "--cache", cache)
    assert (report["copied"], report["errors"], len(report["kept"])) == ([], [], 1)
    for source in (there, there / f"{FINGERPRINT}.hplan"):
        copied = document_of("cache", "import", source, "--cache", third)["copied"]
        assert copied == ([f"{third}/{FINGERPRINT}.hplan"] if source == there else [])
    files = [Path(PlanStore(place).path(FINGERPRINT)) for place in (cache, there, third)]
    assert len({file.read_bytes() for file in files}) == 1
    files[1].write_bytes(b"damaged")
    done = hplacer("cache", "import", files[1], "--cache", third)
    assert done.returncode == 1
    assert "is not a plan file" in done.stdout
    unusual = changed(fingerprint="8a5b" + "0" * 28, label="function other")
    (tmp_path / "x.hplan").write_bytes(unusual)
    assert hplacer("cache", "import", tmp_path / "x.hplan", "--cache", third).returncode == 0
    assert (third / f"8a5b{'0' * 28}.hplan").read_bytes() == unusual
    assert "function other" in hplacer("show", "8a5b", "--cache", third).stdout


def test_a_store_of_two_layers(cache: Path, tmp_path: Path) -> None:
    near = tmp_path / "near"
    both = f"{near};{cache}"
    shown = document_of("cache", "path", "--cache", both)
    assert shown == {"directory": both, "layers": [str(near), str(cache)]}
    assert hplacer("show", "3f9c", "--cache", both).returncode == 0
    listing = hplacer("cache", "list", "--cache", both).stdout
    assert str(near) in listing
    assert str(cache) in listing


def test_a_directory_that_others_can_write(cache: Path) -> None:
    PlanStore(cache).remove(OTHER)
    cache.chmod(0o777)
    assert f"chmod go-w {cache}" in error_of("show", "3f9c", "--cache", cache)
    assert hplacer("show", "3f9c", "--cache", cache, "--trust-shared").returncode == 0


# ---- show ----


def test_show_by_prefix_and_by_path(cache: Path) -> None:
    shown = hplacer("show", "3f9", "--all", "--cache", cache).stdout
    assert shown == hplacer("show", PlanStore(cache).path(FINGERPRINT), "--all").stdout
    for text in (
        "train_step: 3f9c2b1a (etf): 41.2 ms/step predicted",
        "(seed 7) in 0.25 s on worker-0",
        "nodes: GPU:0 2, CPU:0 1",
        "66.7%",
        "1 TiB",
        "constraints",
        "assumes loop_trip_count=10",
    ):
        assert text in shown
    damaged = error_of("show", PlanStore(cache).path(OTHER))
    assert damaged.endswith("made by a newer version: upgrade hplacer-optimizer")


def test_the_ratio_to_tensorflows_placement(tmp_path: Path) -> None:
    twice, hardly = tmp_path / "twice.hplan", tmp_path / "hardly.hplan"
    twice.write_bytes(make_plan(baseline=BASELINE, prediction_error=0.9).to_bytes())
    hardly.write_bytes(make_plan(baseline=BASELINE, prediction_error=1.0).to_bytes())
    assert hplacer("show", twice).stdout.splitlines()[:2] == [
        "train_step: 3f9c2b1a (etf): 41.2 ms/step, 2.0 times as fast as TensorFlow's placement "
        "(82.4 ms), both predicted",
        "lower bound 30 ms (critical path), gap 37.3%",
    ]
    reason = "41.2 ms instead of 82.4 ms is within the error of the prediction"
    alone = f"without a trial, training keeps TensorFlow's placement (option min_gain): {reason}"
    assert hplacer("show", hardly).stdout.splitlines()[1] == alone
    document = document_of("show", hardly)
    assert (document["speedup"], document["why_left_alone"]) == (2.0, reason)
    assert document["baseline"] == vars(BASELINE)
    assert document_of("show", twice)["why_left_alone"] is None
    hplacer("cache", "import", twice, "--cache", tmp_path / "cache")
    listing = hplacer("cache", "list", "--cache", tmp_path / "cache").stdout
    assert re.search(r"41.2 ms +2.0 +37.3%", listing)


def test_show_prints_markup_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.hplan"
    path.write_bytes(make_plan(fingerprint_parts={"graph": "[red]a[/red]"}).to_bytes())
    assert "[red]a[/red]" in hplacer("show", path, "--all").stdout


# ---- simulate and plan ----


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """A chain of two ops that one device runs in 1,000 + 2,000 ns; the link takes 500 ns."""
    ops = [
        {"name": "a", "type": "X", "cost_ns": {"cpu": 1000}, "output_bytes": [0]},
        {"name": "b", "type": "X", "cost_ns": {"cpu": 2000}, "persistent_bytes": 600},
    ]
    document = machine(["/device:CPU:0", "/device:CPU:1"], 1000, 500)
    path = tmp_path / "chain.hplacer.json"
    path.write_text(json.dumps(document | {"ops": ops, "edges": [[0, 0, 1]]}))
    return path


@pytest.mark.parametrize(
    ("placement", "step_time_ns", "counts"),
    [("all:0", 3000, [2, 0]), ("all:1", 3000, [0, 2]), ("round_robin", 3500, [1, 1])],
)
def test_simulate(problem: Path, placement: str, step_time_ns: int, counts: list[int]) -> None:
    report = document_of("simulate", problem, "--placement", placement)
    assert report["feasible"] is True
    assert report["infeasible_because"] == []
    assert report["step_time_ns"] == step_time_ns
    assert report["lower_bound_ns"] == 3000
    assert report["ops_per_device"] == counts
    assert sum(report["peak_bytes"]) == 600
    trace = problem.parent / "step.json"
    done = hplacer("simulate", problem, "--placement", placement, "--trace", trace)
    assert done.returncode == 0
    assert f"step time: {step_time_ns / 1000:.3g} us" in done.stdout
    assert "lower bound: 3 us (critical path" in done.stdout
    assert "CPU:1" in done.stdout
    ends = {
        event["name"]: event["ts"] + event["dur"]
        for event in json.loads(trace.read_text())["traceEvents"]
        if event["ph"] == "X" and event["name"] in ("a", "b")
    }
    assert ends == {"a": 1, "b": step_time_ns / 1000}


def test_simulate_and_plan_beside_tensorflows_placement(problem: Path) -> None:
    document = json.loads(problem.read_text())
    for op, device in zip(document["ops"], (0, 1), strict=True):
        op["default_device"] = device
    problem.write_text(json.dumps(document))
    done = hplacer("simulate", problem, "--placement", "all:0")
    assert "step time: 3 us, 1.17 times as fast as TensorFlow's placement (3.5 us)\n" in done.stdout
    found = document_of("plan", problem, "--planner", "etf")
    assert found["speedup"] == pytest.approx(3500 / 3000)
    assert found["baseline"] == {"step_time_ns": 3500, "feasible": True, "peak_bytes": [0, 600]}
    assert found["why_left_alone"] is None  # no training finds it
    document["devices"][1]["memory_bytes"] = 599
    problem.write_text(json.dumps(document))
    done = hplacer("plan", problem, "--planner", "etf")
    assert "step time: 3 us, TensorFlow's placement does not fit into memory\n" in done.stdout


def test_simulate_an_infeasible_placement_is_1(problem: Path) -> None:
    document = json.loads(problem.read_text())
    document["ops"][1]["persistent_bytes"] = 2000
    problem.write_text(json.dumps(document))
    done = hplacer("simulate", problem, "--placement", "all:0")
    assert (done.returncode, done.stderr) == (1, "")
    assert "(infeasible)" in done.stdout
    assert "infeasible: " in done.stdout
    found = document_of("simulate", problem, "--placement", "all:0", code=1)
    assert found["feasible"] is False


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[0", "is not JSON"),
        ("{}", "expected a list of device indices"),
        ("[0, 2]", "device 2 is out of range"),
    ],
)
def test_a_bad_placement_file(problem: Path, tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(content)
    message = error_of("simulate", problem, "--placement", path)
    assert str(path) in message
    assert reason in message


def test_plan_writes_a_plan_that_simulate_and_show_read(problem: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.hplan"
    report = document_of("plan", problem, "--planner", "etf", "--seed", 3, "-o", output)
    assert (report["planner"], report["seed"], report["num_ops"]) == ("etf", 3, 2)
    assert report["step_time_ns"] == 3000
    again = document_of("simulate", problem, "--placement", output)
    assert again.items() <= report.items()
    shown = document_of("show", output)
    assert (shown["planner"], shown["step_time_ns"]) == ("etf", 3000)
    placement = tmp_path / "placement.json"
    placement.write_text(json.dumps(hp.load_plan(output).placement.tolist()))  # type: ignore[union-attr]
    assert document_of("simulate", problem, "--placement", placement) == again
    hp.plan("example", planner="etf").save(output)
    error = error_of("simulate", problem, "--placement", output)
    assert "x.hplan: is a plan of another graph or machine: its ops differ" in error


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


def test_a_plan_is_kept_where_nobody_can_read_the_progress(tmp_path: Path) -> None:
    main, terminal = pty.openpty()
    plan = tmp_path / "x.hplan"
    options = ["--planner", "local_search", "--budget", "1s"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hplacer_optimizer", "plan", "example", *options, "-o", plan],
        env=os.environ | {"TERM": "xterm"},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
    )
    os.close(terminal)
    assert os.read(main, 1)  # its moving line
    os.close(main)
    process.wait(timeout=60)
    assert hp.load_plan(plan).planner == "local_search"


def test_stdout_may_be_closed_or_lack_letters() -> None:
    command = [sys.executable, "-m", "hplacer_optimizer", "machine", "list"]
    latin = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, cwd=ROOT, env=latin, capture_output=True, check=True)
    assert b"8xa100" in done.stdout
    closed = ["sh", "-c", '"$@" >&-', "sh", *command]
    assert subprocess.run(closed, cwd=ROOT, capture_output=True, check=True).stderr == b""


# ---- doctor ----


def test_doctor_names_what_is_broken(cache: Path) -> None:
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
    assert fine.startswith("ok      XLA: no environment variable")
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
        ({}, "ok", "no environment variable makes XLA compile steps"),
        ({"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}, "note", "remove --tf_xla_auto_jit"),
        ({"TF_XLA_FLAGS": "--tf_xla_auto_jit=0"}, "ok", "no environment variable"),
        ({"TF_XLA_FLAGS": "--tf_xla_cpu_global_jit"}, "ok", "no environment variable"),
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
    sample: dict[str, Any] = {"tensorflow": "2.21.0", "built_for": "2.21.0", "tf32": True}
    sample |= {"devices": [f"/physical_device:{name}:0" for name in ("CPU", "GPU")]}
    sample |= {"ops": 8, "placed": 8}
    sample |= {"outcome": "planned", "reason": "", "checked": 8, "differences": [], **found}
    _, _, listed, session = doctor._read_sample(sample)
    assert status_of(listed) == ("ok", "CPU:0, GPU:0", "")
    assert session.status == status
    assert text in session.detail


NVIDIA_SMI = """#!/bin/sh
case "$1" in
  topo) printf '\\tGPU0\\tGPU1\\nGPU0\\tX\\tNV4\\nGPU1\\tNV4\\tX\\n' ;;
  *memory*) printf 'NVIDIA H200, 143771 MiB, 143100 MiB\\nNVIDIA H200, 143771 MiB, 2000 MiB\\n' ;;
  *) printf '00000000:06:00.0, 5, 16\\n00000000:07:00.0, 5, 16\\n' ;;
esac
"""


@pytest.mark.parametrize(
    ("tensorflow_gpus", "expected"),
    [
        (0, ["note GPUs: TensorFlow finds none of them"]),
        (1, ["note GPUs: 2.0 of 140.4 GiB free", "ok links of GPUs: 1 pairs by NVLink",
             "ok TF32: on", "note gain: this GPU and the CPU"]),
        (2, ["note GPUs: 2.0 of 140.4 GiB free", "ok links of GPUs: 1 pairs by NVLink",
             "ok TF32: on"]),
    ],
)  # fmt: skip
def test_doctor_tells_what_gpus_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tensorflow_gpus: int, expected: list[str]
) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text(NVIDIA_SMI)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    nvidia._nvidia_smi.cache_clear()
    found = list(gpu_checks(tensorflow_gpus, tf32=True))
    nvidia._nvidia_smi.cache_clear()
    assert len(found) == len(expected)
    for check, text in zip(found, expected, strict=True):
        head, _, detail = text.partition(": ")
        assert f"{check.status} {check.name}" == head
        assert detail in check.detail


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


def test_control_c_is_130() -> None:
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
