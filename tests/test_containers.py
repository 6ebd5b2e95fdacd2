"""README's commands and a training script as containers run them.

A container is made of the kernel's namespaces and control groups, without any program for
containers. What cannot be made here is skipped, with the reason.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.processes import PRELUDE, ROOT, clean_environment
from tests.test_documentation import DOCUMENTS, commands_of, environment_of_a_shell

TRAIN = (
    PRELUDE
    + """
if sys.argv[1:] == ["with"]:
    hp.enable(planner="random", min_gain=-1)
print("losses", *[float(x).hex() for x in losses(trainer(), steps=30)])
"""
)
# What a user does with the two lines, and without them; 3 and 4: the plan did not pay, or perhaps.
SCRIPT = """
python train.py with
hplacer try --planner random --steps 10 --time 1m train.py || (( $? >= 3 ))
hplacer doctor --json > doctor.json || [ $? = 1 ]
python train.py
"""
NAMESPACES = ("unshare", "--user", "--map-root-user")
FIRST_CORE = str(min(os.sched_getaffinity(0)))
AS_PROCESS_1 = (*NAMESPACES, "--pid", "--fork", "--mount-proc")
WITHOUT_NAME = ("unshare", "--user", "--map-user=12345")
# All but the directory $WRITABLE; the tests' own home and cache directories among them.
READ_ONLY = """
mount --make-rprivate /
mount --bind "$WRITABLE" "$WRITABLE"
while read -r _ _ _ _ point _; do
  case $point in
    "$WRITABLE" | /proc* | /sys* | /dev*) ;;
    *) mount -o remount,bind,ro "$point" || true ;;
  esac
done < /proc/self/mountinfo
if touch "$HOME/written" 2> /dev/null; then exit 1; fi
cd "$PWD"
exec "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Container:
    """How commands are run in it: behind others, and with other variables ("": without it)."""

    wrapper: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    keeps_plans: bool = True


CONTAINERS = {
    "process 1": Container(wrapper=AS_PROCESS_1),
    "read-only root": Container(
        wrapper=(*NAMESPACES, "--mount", "sh", "-euc", READ_ONLY, "sh"),
        variables={"XDG_CACHE_HOME": ""},
        keeps_plans=False,
    ),
    "process 1 with one core and a read-only root": Container(
        wrapper=(
            *(*AS_PROCESS_1, "--mount", "taskset", "--cpu-list", FIRST_CORE),
            *("sh", "-euc", READ_ONLY, "sh"),
        ),
        variables={"XDG_CACHE_HOME": ""},
        keeps_plans=False,
    ),
    "user without a name or a home": Container(
        wrapper=WITHOUT_NAME,
        variables=dict.fromkeys(("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME"), ""),
    ),
}


def need(*wrapper: str, why: str = "no such namespace can be made here") -> None:
    """Skips the test where a command behind these fails."""
    if subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip(why)


@contextlib.contextmanager
def processor_quota(cores: float) -> Iterator[Path]:
    """A control group's file that takes processes in, which then have so many cores together."""
    period_us = 100_000
    quota_us = int(cores * period_us)
    for parent, limits in (
        ("/sys/fs/cgroup", {"cpu.max": f"{quota_us} {period_us}"}),
        ("/sys/fs/cgroup/cpu", {"cpu.cfs_quota_us": str(quota_us)}),
    ):
        group = Path(parent) / f"hplacer-{uuid.uuid4().hex[:8]}"
        if not (Path(parent) / "cgroup.procs").exists():
            continue
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if all((group / name).exists() for name in limits):
                for name, limit in limits.items():
                    (group / name).write_text(limit)
                yield group / "cgroup.procs"
                return
        finally:
            group.rmdir()
    pytest.skip("no control group with a CPU quota can be made here")


def inside(procs: Path) -> tuple[str, ...]:
    """Puts the command that follows into a control group."""
    return ("sh", "-euc", f'echo $$ > {procs}\nexec "$@"', "sh")


def run_commands(directory: Path, container: Container) -> str:
    """README's commands, then `SCRIPT`'s, each as a container's first process; what they print."""
    (directory / "work").mkdir()
    (directory / "work" / "train.py").write_text(TRAIN)
    (directory / "tmp").mkdir()
    environment = environment_of_a_shell(directory)
    for program in (directory / "programs").iterdir():
        text = program.read_text()
        program.write_text(text.replace("exec", f"exec {shlex.join(container.wrapper)}", 1))
    environment |= {"TMPDIR": str(directory / "tmp"), "WRITABLE": str(directory)}
    environment |= container.variables | {"HPLACER_LOG": "info"}
    environment = {name: value for name, value in environment.items() if value}
    commands = commands_of(DOCUMENTS["README.md"]).replace("--budget 5s", "--budget 1s") + SCRIPT
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", commands],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=directory / "work",
        env=environment,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout
    return done.stdout


def check_output(output: str, *, keeps_plans: bool) -> None:
    """The optimizer changes no loss, and plans; without a store it says so, once a start."""
    losses = re.findall(r"^losses .*$", output, re.MULTILINE)
    assert len(losses) >= 2
    assert len(set(losses)) == 1
    assert "plan made for function train_step" in output
    assert ("plans are not kept for the next run" not in output) is keeps_plans


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTAINERS)
def test_the_commands_run(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    container = CONTAINERS[name]
    need(*NAMESPACES, "--pid", "--fork", "--mount-proc")
    need(*WITHOUT_NAME)
    check_output(run_commands(tmp_path, container), keeps_plans=container.keeps_plans)


@pytest.mark.slow
def test_the_commands_run_with_a_part_of_a_core(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    with processor_quota(0.9) as procs:
        check_output(run_commands(tmp_path, Container(wrapper=inside(procs))), keeps_plans=True)


def test_a_quota_counts_as_so_many_cores() -> None:
    code = "from hplacer_optimizer.machines import host; print(host.usable_cores())"
    with processor_quota(0.5) as procs:
        command = [*inside(procs), sys.executable, "-c", code]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "0.5\n"


TRAINS_WITH_OTHERS = """
hp.enable(planner="random", min_gain=-1, cache=CACHE, seed=int(sys.argv[1]))
print("losses", *[float(x).hex() for width in (16, 24, 32) for x in losses(trainer(width=width))])
"""


def test_two_containers_share_a_store(tmp_path: Path) -> None:
    """Each has its own processes, with the same numbers, and another name; both start at once."""
    pytest.importorskip("tensorflow")
    from hplacer_optimizer.plans.store import PlanStore

    container = (*AS_PROCESS_1, "--uts", "--ipc", "sh", "-euc")
    need(*container, "hostname tried")
    (tmp_path / "train.py").write_text(PRELUDE + TRAINS_WITH_OTHERS)
    train = f"hostname container-$0; exec {shlex.quote(sys.executable)} train.py $0"
    losses: set[str] = set()
    for numbers in ((0, 1), (1,)):  # none has a plan, then one finds all three
        processes = [
            subprocess.Popen(
                [*container, train, str(number)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
                env=clean_environment(tmp_path) | {"container": "podman", "HPLACER_LOG": "info"},
            )
            for number in numbers
        ]
        outputs = [process.communicate(timeout=300) for process in processes]
        assert {process.returncode for process in processes} == {0}, outputs
        losses.update(printed for printed, _ in outputs)
        stored = PlanStore(tmp_path / "cache")
        assert len([*stored.entries()]) == 3
        assert all(stored.get(entry.fingerprint) for entry in stored.entries())
    assert len(losses) == 1
    ((_, said),) = outputs
    assert said.count("hplacer: plan loaded for function train_step") == 3
    left = {path.name for path in (tmp_path / "cache").iterdir() if path.suffix != ".hplan"}
    assert left <= {".lock"}
