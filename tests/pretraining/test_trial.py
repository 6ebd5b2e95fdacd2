"""`hplacer try` and `hplacer measure`: what is measured, what is said, and what is kept."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.capture import native
from hplacer_optimizer.cli import main
from hplacer_optimizer.errors import MeasuringError
from hplacer_optimizer.machines import load_machine
from hplacer_optimizer.machines.describe import describe_cluster
from hplacer_optimizer.measuring.running_trial import Observations, TrialResult
from hplacer_optimizer.plans import verdict as verdict_module
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.pretraining import trial
from hplacer_optimizer.scripts.step_timing import ScriptSteps
from hplacer_optimizer.workloads.graphs import write_graph
from testbed.documents import problem_from_dict, problem_to_dict
from testbed.training_scripts import TIMED_SCRIPTS
from tests.planned import plan_of
from tests.plans.test_plan import small_problem
from tests.plans.test_verdict import verdict
from tests.processes import clean_environment, has_ended, run, run_script, wait_for

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None or native.is_missing(),
    reason="needs TensorFlow and the native module _tf",
)


def made(placement: Sequence[int] = (0, 1, 1), **changes: Any) -> Plan:
    """A plan of a training step that TensorFlow has on the first device."""
    document = problem_to_dict(small_problem())
    document["ops"][2]["type"] = "ResourceApplyAdam"
    problem = problem_from_dict(document).replace(default_device=np.zeros(3, np.int32))
    return plan_of(problem, placement, **changes)


@dataclass
class Script:
    """Stands for a script: its steps take so long, and it is planned like this."""

    without_s: float = 0.2
    with_s: float = 0.1
    plan: Plan = field(default_factory=made)
    options: dict[str, Any] | None = field(default_factory=dict)
    own_s: float | None = None
    fails: str = ""
    outcome: str = "loaded"
    other_graph: bool = False  # in every start after the third
    trial: TrialResult | None = None  # None: it cannot be tried as it runs
    starts: list[Mapping[str, Any] | None] = field(default_factory=list)

    def stands_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on."""
        monkeypatch.setattr(trial, "time_script", self.time)
        monkeypatch.setattr(trial, "try_in_script", self.try_running)

    def try_running(
        self, command: Sequence[str], *, changes: Mapping[str, Any], **_: Any
    ) -> TrialResult | None:
        """In place of `try_in_script`."""
        if self.trial is not None:
            self.starts.append(changes)
        return self.trial

    def time(
        self,
        command: Sequence[str],
        *,
        directory: Path,
        changes: Mapping[str, Any] | None,
        behind: str | None,
        **_: Any,
    ) -> ScriptSteps:
        """In place of `time_script`."""
        self.starts.append(changes)
        if len(self.starts) > 3 and self.fails:
            raise MeasuringError(f"train.py: {self.fails}")
        reports = []
        is_planned = False
        is_other = self.other_graph and len(self.starts) > 3
        if changes is not None:
            cache = changes["cache"] + (f";{behind}" if behind else "")
            store = PlanStore(cache)
            stored = store.get(self.plan.fingerprint)
            if stored is None and changes["on_miss"] == "plan":
                store.put(self.plan)
                stored = self.plan
            is_planned = stored is not None and not stored.is_retired and not is_other
            stored = None if is_other else stored
            reports.append(
                {
                    "label": self.plan.label,
                    "fingerprint": "0" * 32 if is_other else self.plan.fingerprint,
                    "outcome": self.outcome if is_planned else "skipped",
                    "reason": "" if is_planned else "retired" if stored else "no stored plan",
                    "trains": True,
                    "devices": 2,
                }
            )
        noise = 1 + 0.001 * (len(self.starts) % 3)
        step_s = (self.with_s if is_planned else self.without_s) * noise
        return ScriptSteps(
            name="function train_step",
            step_s=step_s,
            times_s=np.full(30, step_s),
            inside_share=0.5,
            first_step_s=0.7 if is_planned else 0.5,
            also=[],
            options=self.options if changes is not None else None,
            reports=reports,
            devices={},
            own_s=self.own_s,
        )


@dataclass(frozen=True)
class Desk:
    """A working directory with a script, where `hplacer try` is called."""

    path: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def tried(self, script: Script, *more: str) -> tuple[int, dict[str, Any]]:
        """Exit code and document."""
        script.stands_in(self.monkeypatch)
        code = main(["try", "--json", *more, "train.py", "--json"])
        printed = self.capsys.readouterr()
        return code, json.loads(printed.out) if printed.out else {"error": printed.err}

    def told(self, script: Script) -> str:
        """What people read, on one line each of both streams."""
        self.monkeypatch.setenv("COLUMNS", "200")
        script.stands_in(self.monkeypatch)
        assert main(["try", "train.py"]) == 0
        return " ".join(" ".join(self.capsys.readouterr()).split())

    @property
    def store(self) -> PlanStore:
        return PlanStore(self.path / "cache" / "hplacer")

    @property
    def stored(self) -> Plan:
        plan = self.store.get(made().fingerprint)
        assert plan is not None
        return plan


@pytest.fixture
def desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Desk:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Desk(tmp_path, monkeypatch, capsys)


def test_a_plan_that_pays_is_confirmed(desk: Desk) -> None:
    script = Script()
    code, told = desk.tried(script)
    assert code == 0
    assert (told["outcome"], told["pays"], told["planned_now"]) == ("faster", True, True)
    assert told["sentence"].startswith(
        "The plan pays: 2.0 times as fast as TensorFlow's placement ("
    )
    assert told["first_step_later_s"] == pytest.approx(0.2)
    assert told["outside_share"] == 0.5
    assert told["without_plan"]["step_time_ns"] == pytest.approx(0.2e9, rel=0.01)
    assert told["with_plan"]["step_time_ns"] == pytest.approx(0.1e9, rel=0.01)
    kept = desk.stored
    assert kept.is_confirmed
    assert told["verdict"] == kept.verdict.as_json()  # type: ignore[union-attr]
    # One start looks, one plans, and three turns of two decide.
    assert [changes and changes["on_miss"] for changes in script.starts] == [
        *("skip", "plan"),
        *(None, "skip", "skip", None, None, "skip"),
    ]


def test_a_plan_that_does_not_pay_is_retired_and_tried_again(desk: Desk) -> None:
    code, told = desk.tried(Script(with_s=0.4))
    assert code == 3
    assert told["outcome"] == "slower"
    assert told["sentence"].endswith("so it is retired on this host.")
    kept = desk.stored
    assert kept.is_retired
    code, told = desk.tried(Script(with_s=0.1))  # after an upgrade, say
    assert (code, told["planned_now"]) == (0, False)
    kept = desk.stored
    assert kept.is_confirmed


def running_trial(speedup: float) -> TrialResult:
    """A trial of two blocks of each side, in steps of 0.2 s without the plan."""
    step_s = 0.2 / speedup
    return TrialResult(
        speedup=speedup,
        low=0.9 * speedup,
        high=1.1 * speedup,
        observed=Observations(
            logarithms=(float(np.log(speedup)),), plan_s=step_s, baseline_s=0.2, steps=12
        ),
        blocks_s=((0.2, 0.2), (step_s, step_s)),
    )


@pytest.mark.parametrize(("speedup", "code"), [(1.6, 0), (1.05, 3), (0.5, 3)])
def test_a_function_is_tried_within_one_start(speedup: float, code: int, desk: Desk) -> None:
    script = Script(trial=running_trial(speedup))
    assert desk.tried(script)[0] == code
    assert [changes and changes["on_miss"] for changes in script.starts] == [
        *("skip", "plan", "trial")
    ]
    kept = desk.stored
    assert kept.verdict is not None
    assert (kept.verdict.speedup, kept.verdict.by) == (speedup, "hplacer try train.py")
    assert (kept.is_confirmed, kept.is_retired) == (speedup == 1.6, speedup == 0.5)
    told = desk.told(Script(trial=running_trial(1.6)))
    assert "a step is a call of function train_step" in told
    assert "first step" not in told


def test_steps_of_starts_are_timed_in_starts(desk: Desk) -> None:
    script = Script(trial=running_trial(0.5))
    code, told = desk.tried(script, "--steps", "30")
    assert (code, told["outcome"], len(script.starts)) == (0, "faster", 8)


def test_the_plans_of_a_comparison_outlive_it(desk: Desk) -> None:
    Script().stands_in(desk.monkeypatch)
    found = trial.try_script(trial.Trial(command=["train.py"], cache=str(desk.path / "plans")))
    found.plans[0].report(desk.path / "report.html")
    assert (desk.path / "report.html").stat().st_size > 10_000


def test_a_stored_plan_is_tried(desk: Desk) -> None:
    cache = str(desk.path / "plans")
    PlanStore(cache).put(made(planner="stored"))
    code, told = desk.tried(Script(), "--cache", cache)
    assert code == 0
    assert told["plans"][0]["planner"] == "stored"
    assert told["stored"] == [PlanStore(cache).path(made().fingerprint)]
    assert not (desk.path / "cache").exists()


def test_the_store_of_the_script_is_used(desk: Desk) -> None:
    own = str(desk.path / "own")
    _, told = desk.tried(Script(options={"cache": own}))
    assert told["stored"] == [PlanStore(own).path(made().fingerprint)]


def test_planner_options_plan_anew(desk: Desk) -> None:
    desk.store.put(made((1, 1, 1)))
    script = Script(with_s=0.4)
    arguments = ["--planner", "random", "--seed", "3", "--budget", "20s"]
    code, told = desk.tried(script, *arguments)
    assert (code, told["planned_now"]) == (3, True)
    first = script.starts[0]
    assert first is not None
    assert first["on_miss"] == "plan"
    assert (first["planner"], first["seed"], first["budget_s"]) == ("random", 3, 20.0)
    assert told["notes"] == [
        "the store keeps another plan for function train_step than the one that was measured"
    ]
    assert told["stored"] == []
    assert "retired" not in told["sentence"]


def test_a_pinned_plan_gets_the_verdict(desk: Desk) -> None:
    path = str(desk.path / "pinned.hplan")
    made().save(path)
    script = Script(options={"plan": path})
    desk.store.put(made())  # stands for the file, which is looked at
    code, told = desk.tried(script)
    assert (code, told["stored"]) == (0, [path])
    assert hp.load_plan(path).is_confirmed
    kept = desk.stored
    assert kept.verdict is None
    made(fingerprint="0" * 32).save(path)
    code, told = desk.tried(script)
    assert code == 1
    assert "no graph of this start is that of the plan" in told["error"]


def test_tensorflows_own_placement_is_not_tried(desk: Desk) -> None:
    script = Script(plan=made((0, 0, 0)))
    code, told = desk.tried(script)
    assert (code, told["outcome"], len(script.starts)) == (3, "same placement", 2)
    assert desk.store.fingerprints() == []


def test_what_is_not_certain_is_said_and_not_kept(desk: Desk) -> None:
    code, told = desk.tried(Script(with_s=0.2), "--time", "0.001s")
    assert len(told["with_plan"]["turns_ns"]) == 3
    assert (code, told["outcome"], told["verdict"]) == (4, "uncertain", None)
    assert "a longer --time tells" in told["sentence"]
    assert desk.store.fingerprints() == []


def test_no_difference_is_certain_after_some_turns(desk: Desk) -> None:
    code, told = desk.tried(Script(with_s=0.2))
    assert (code, told["outcome"]) == (3, "no difference")
    assert len(told["with_plan"]["turns_ns"]) == 6


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (Script(fails="failed with exit code 1"), "failed with exit code 1; this was a start with"),
        (Script(options=None), "train.py: switches the optimizer off"),
        (Script(other_graph=True), "it differs from start to start, or the plan is of another one"),
        (Script(outcome="kept"), "the plan for function train_step did not take effect: kept"),
    ],
)
def test_failures_leave_the_store_as_it_was(desk: Desk, script: Script, said: str) -> None:
    code, told = desk.tried(script)
    assert code == 1
    assert said in told["error"]
    assert desk.store.fingerprints() == []
    assert sorted(path.name for path in desk.path.iterdir()) == ["train.py"]


def test_wrong_usage(desk: Desk) -> None:
    for arguments in (["try"], ["try", "-m"]):
        assert main(arguments) == 2
        assert "name a script, or a module with -m" in desk.capsys.readouterr().err
    assert main(["try", "no.py"]) == 1
    assert "no.py: there is no such script" in desk.capsys.readouterr().err
    assert main(["try", "--steps", "0", "train.py"]) == 2
    assert main(["measure", "x.hplan"]) == 2
    desk.monkeypatch.setenv("HPLACER_DISABLE", "1")
    assert main(["try", "train.py"]) == 1
    assert "unset it" in desk.capsys.readouterr().err


def test_tables_are_for_people(desk: Desk) -> None:
    said = desk.told(Script())
    assert "TensorFlow's placement 200 ms" in said
    assert "plan 66b53989 (etf) 100 ms" in said
    assert "the first step ends 0.2 s later, with the plan from the store; planning took" in said
    assert "50% of a step without the plan passes between the calls" in said
    assert "The plan pays: 2.0 times" in said
    assert "train.py: with the plan, turn 1" in said


# ---- emulated devices ----


@pytest.fixture
def emulated(desk: Desk) -> Desk:
    """That of a process whose devices are emulated."""
    found = load_machine("8xa100")
    desk.monkeypatch.setattr(verdict_module, "emulated_machine", lambda: found)
    return desk


def test_a_gain_on_emulated_devices_is_told_as_such(emulated: Desk) -> None:
    code, told = emulated.tried(Script(own_s=0.1))
    assert (code, told["emulated"], told["verdict"]["emulated"]) == (0, "8xa100", "8xa100")
    assert told["sentence"].startswith("The plan pays on the emulated 8xa100: 2.0 times as fast")
    # Without the script's own work 0.2 s against 0.1 s, with it 0.3 s against 0.2 s.
    assert told["own_work_s"] == 0.1
    assert told["speedup_with_own_work"] == pytest.approx(1.5, rel=0.01)
    assert (told["first_step_later_s"], told["outside_share"]) == (None, None)
    kept = emulated.stored
    assert kept.is_confirmed
    emulated.monkeypatch.setattr(verdict_module, "emulated_machine", lambda: None)
    assert not kept.is_confirmed


def test_the_table_of_emulated_devices_says_so(emulated: Desk) -> None:
    said = emulated.told(Script(own_s=0.1))
    assert "placement step (emulated) spread turns times as fast (emulated) 95%" in said
    assert "nothing of this was measured on such devices" in said
    assert "a step is a call of function train_step" in said
    assert "here it takes 100 ms, 50% of an emulated step without the plan. If it is as" in said
    assert "does not overlap with the step, the plan is 1.50 times as fast" in said
    assert "first step" not in said
    assert "between the calls" not in said


def test_own_work_that_is_nothing_changes_no_gain(emulated: Desk) -> None:
    said = emulated.told(Script(own_s=1e-3))
    assert "here it takes 1 ms, 0% of an emulated step" in said
    assert "the gain is" not in said


def test_a_plan_is_retired_where_the_machine_is_emulated(emulated: Desk) -> None:
    code, told = emulated.tried(Script(with_s=0.4))
    assert code == 3
    assert told["sentence"].endswith("so it is retired where this machine is emulated.")
    kept = emulated.stored
    assert kept.is_retired


def test_the_verdict_of_real_devices_stays(emulated: Desk) -> None:
    real = made(verdict=verdict("faster", emulated=None))
    emulated.store.put(real)
    code, told = emulated.tried(Script(with_s=0.4))
    assert (code, told["outcome"], told["stored"]) == (3, "slower", [])
    assert told["notes"] == [trial.KEPT_REAL]
    assert emulated.stored == real
    path = str(emulated.path / "pinned.hplan")
    real.save(path)
    code, told = emulated.tried(Script(with_s=0.4, options={"plan": path}))
    assert (code, told["stored"], told["notes"]) == (3, [], [trial.KEPT_REAL])
    assert hp.load_plan(path) == real


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_what_was_started(tmp_path: Path, sent: int, code: int) -> None:
    work = tmp_path / "work"
    work.mkdir()
    pids = tmp_path / "pids"
    (work / "train.py").write_text(
        "import os, subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}} ')\n"
        "open('left.txt', 'w').write('x')\ntime.sleep(600)"
    )
    before = set(Path(tmp_path).rglob("*"))
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "hplacer_optimizer", "try", "train.py"],
        cwd=work,
        env=clean_environment(tmp_path) | {"TMPDIR": str(tmp_path / "tmp")},
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        wait_for(lambda: pids.exists() and pids.read_text().endswith(" "))
        running.send_signal(sent)
        assert running.stderr is not None
        assert running.stderr.read().splitlines()[-1].startswith("hplacer: interrupted: what was")
        assert running.wait(60) == code
    wait_for(lambda: all(has_ended(int(pid)) for pid in pids.read_text().split()))
    assert set(tmp_path.rglob("*")) == before | {pids, tmp_path / "tmp"}


# ---- with TensorFlow ----


def hplacer(directory: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    done = run_script(
        ["-m", "hplacer_optimizer", *arguments],
        cwd=directory,
        environment=clean_environment(directory) | {"XDG_CACHE_HOME": str(directory / "cache")},
        timeout_s=600,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


FUNCTION = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
weights = [tf.Variable(tf.random.stateless_normal([8, 8], [0, i])) for i in range(8)]

@tf.function
def train_step():
    with tf.GradientTape() as tape:
        hidden = tf.ones([4, 8])
        for weight in weights:
            hidden = tf.tanh(hidden @ weight){noise}
        loss = tf.reduce_mean(hidden**2)
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(1e-3 * gradient)

for _ in range(100_000):
    train_step()
"""


@pytest.mark.parametrize(
    "noise", ["", pytest.param(" + tf.random.uniform([8])", marks=pytest.mark.slow)]
)
@needs_tensorflow
def test_calls_of_a_function_take_turns_unless_its_kernels_keep_state(
    noise: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(FUNCTION.format(noise=noise))
    arguments = ["--planner", "random", "--seed", "1", "--time", "90s"]
    code, told, log = hplacer(tmp_path, "try", "--json", *arguments, "train.py")
    assert code in (0, 3, 4), log  # tiny ops on devices that share cores
    assert "without the plan and with it, in turns" in log
    assert ("with the plan, turn 1" in log) == bool(noise)
    assert (told["first_step_later_s"] is None) == (not noise)
    assert told["without_plan"]["step_time_ns"] > 0


@pytest.mark.slow
@needs_tensorflow
def test_a_bad_plan_of_two_workers_is_retired(tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(TIMED_SCRIPTS, work)
    (work / "kept.txt").write_text("kept")
    arguments = ["--planner", "random", "--seed", "1", "--time", "3m"]
    before = sorted(path.name for path in work.iterdir())
    code, told, log = hplacer(work, "try", "--json", *arguments, "two_workers.py", "watch.json")
    assert code == 3, log
    assert told["outcome"] == "slower"
    assert told["plans"][0]["label"] == "session graph"
    assert told["notes"] == []  # the servers said where they put the nodes
    assert sorted(path.name for path in work.iterdir()) == ["cache", *before]


@pytest.mark.slow
@needs_tensorflow
def test_a_plan_is_measured_without_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HPLACER_DISABLE", "1")  # the command does that to its own process
    graph, machine, path = (str(tmp_path / name) for name in ("g.meta", "c.yaml", "p.hplan"))
    sizes = {"batch_size": 32, "features": 2, "rows": 100, "width": 16, "hidden": 64}
    write_graph("two_tower", graph, pin_tables=False, **sizes)
    with hp.local_cluster(workers=2) as cluster:
        hp.save_machine(describe_cluster(cluster.addresses, timeout_s=120), machine)
        hp.plan(graph, "random", machine).save(path)
        where = ["--machine", machine, "--cluster", ",".join(cluster.addresses)]
        arguments = ["measure", path, "--graph", graph, *where, "--time", "30s", "--json"]
        assert main(arguments) == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["outcome"], told["stored"]) == ("slower", [path])
    judged = hp.load_plan(path)
    assert judged.is_retired
    assert judged.verdict is not None
    assert judged.verdict.by == f"hplacer measure --graph {graph}"


GUARDED = """
on(planner="random", min_gain=-1)
step = trainer()
step()
report(outcomes=outcomes(), entries=[vars(entry) for entry in plugin.history()])
"""


@needs_tensorflow
def test_the_next_start_does_not_use_a_retired_plan_here_and_elsewhere_it_does(
    tmp_path: Path,
) -> None:
    first = run(GUARDED, tmp_path).report["entries"][-1]
    assert first["outcome"] == "planned"
    store = PlanStore(tmp_path / "cache")
    for judged, outcome in (
        (verdict("slower", emulated="8xa100"), "loaded"),
        (verdict("slower"), "kept"),
        (verdict("slower", cores=0.5, measured="2999-01-01T00:00:00Z"), "loaded"),
    ):
        plan = store.get(first["fingerprint"])
        assert plan is not None
        assert store.put(replace(plan, verdict=judged))
        entry = run(GUARDED, tmp_path).report["entries"][-1]
        assert entry["outcome"] == outcome
        assert ("retired" in entry["reason"]) == (outcome == "kept")
    assert os.listdir(tmp_path / "cache")
