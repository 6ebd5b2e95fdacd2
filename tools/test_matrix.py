"""Installs the wheel beside each TensorFlow release and tests it there: `make test-matrix`.

    python tools/test_matrix.py [--release 2.16.2] [--write docs/results/releases.md]

Each release has an environment of its own in build/matrix/, whose PATH holds no compiler. There run
`hplacer doctor`, the commands of the README, and the core tests: switching on, planning, stored
plans, losses, fingerprints, capture, variables and measuring. Emulated GPUs follow: steps that take
what was worked out by hand, and scripts whose results are those of the CPU. One more environment
has no TensorFlow: there the offline part must work, and the rest must say what is missing. The last
has a TensorFlow that is too old: training there must go on, after one line. Exits with 1 if
anything fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from build_wheel import RELEASES, ROOT

_MATRIX = ROOT / "build" / "matrix"
_SUITE = _MATRIX / "suite"  # the tests without the sources of the package
_CORE = (
    "tests/capture/test_loaders.py",
    "tests/measuring/test_measuring.py",
    "tests/plugin/test_guard.py",
    "tests/plugin/test_switch.py",
    "tests/plugin/test_training.py",
    "tests/plugin/test_variables.py",
    "tests/test_scripts.py",
    "tests/workloads",
)
# They take both cores, so that they run one after the other.
_EMULATED = ("tests/emulation/test_clock.py", "tests/emulation/test_results.py")
_README = "test_the_commands_of_a_document_run_one_after_the_other[README.md]"
_TEST_PACKAGES = ("hypothesis", "pytest", "pytest-randomly", "pytest-timeout", "pytest-xdist")
_NO_TENSORFLOW = "none"
_TOO_OLD = "2.15.1"
_TRAINING = """
import hplacer_optimizer
import tensorflow as tf

tf.config.optimizer.set_experimental_options({"hierarchical_placer": True})
weight = tf.Variable(1.0)

@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = (weight - 3.0) ** 2
    weight.assign_sub(0.1 * tape.gradient(loss, weight))
    return loss

assert float(step()) == 4.0 and float(step()) < 4.0
"""
_IMPORTS = 11
_TIME_IMPORT = """
import time
start_s = time.process_time()
import hplacer_optimizer
print(time.process_time() - start_s)
"""
_LONGEST_IMPORT_S = 0.05
_PAGE = """\
# TensorFlow releases

The wheel beside each TensorFlow release that it supports, on a machine without a compiler. Command:
`make test-matrix`. Machine: {machine}.

| TensorFlow | NumPy | `hplacer doctor` | README's commands | core tests | emulated GPUs |
|---|---|---|---|---|---|
{rows}

Beside TensorFlow {too_old}, which is not supported, one line says so and training goes on.

Without TensorFlow the offline part works: `hplacer simulate`, `plan` and `report` of a problem
file.
`import hplacer_optimizer` takes {import_ms:.0f} ms of CPU time there, the least of {imports}
starts.
"""


@dataclass(frozen=True)
class Row:
    """How one release did."""

    release: str
    numpy: str
    doctor: bool
    readme: bool
    passed: int
    failed: int
    skipped: int
    emulated: bool

    @property
    def is_well(self) -> bool:
        """Whether nothing failed."""
        is_core_well = not self.failed and self.passed > 0
        return self.doctor and self.readme and is_core_well and self.emulated

    def markdown(self) -> str:
        """A line of the page's table."""
        tests = f"{self.passed} passed"
        tests += f", {self.failed} failed" * bool(self.failed)
        tests += f", {self.skipped} skipped" * bool(self.skipped)
        words = {True: "well", False: "failed"}
        cells = (self.release, self.numpy, words[self.doctor], words[self.readme], tests)
        return f"| {' | '.join((*cells, words[self.emulated]))} |"


class Environment:
    """A virtual environment with the wheel, beside a release or beside no TensorFlow."""

    def __init__(self, release: str) -> None:
        self.directory = _MATRIX / release
        (wheel,) = (ROOT / "dist").glob("hplacer_optimizer-*.whl")
        if not (self.directory / "complete").exists():
            shutil.rmtree(self.directory, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(self.directory)], check=True)
            self._install(release)
            (self.directory / "complete").touch()
        self.run("-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel))

    def _install(self, release: str) -> None:
        pip = ("-m", "pip", "install", "--quiet", "--only-binary", ":all:")
        ours = ("numpy", "pyyaml>=6", "rich>=13", "shtab>=1.13", "wrapt")
        if release == _NO_TENSORFLOW:
            self.run(*pip, *ours)
            return
        # With protobuf 7, TensorFlow 2.20 itself cannot write a graph as text.
        packages = (*ours, *_TEST_PACKAGES, "scikit-learn", "protobuf<7")
        self.run(*pip, f"tensorflow-cpu=={release}", *packages)
        # They require the package tensorflow, which must not lie over tensorflow-cpu.
        if release != _TOO_OLD:
            line = release.rpartition(".")[0]
            self.run(*pip, "--no-deps", "tf-slim", f"tf_keras=={line}.*")

    def run(
        self, *arguments: str, check: bool = True, cwd: Path = _MATRIX
    ) -> subprocess.CompletedProcess[str]:
        """Runs the environment's Python; no program but its own ones and a shell are there."""
        programs = self.directory / "programs"
        programs.mkdir(parents=True, exist_ok=True)
        for name in ("bash", "sh"):
            link = programs / name
            if not link.exists():
                link.symlink_to(f"/bin/{name}")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HPLACER_", "PYTHON"))}
        path = os.pathsep.join([str(self.directory / "bin"), str(programs)])
        done = subprocess.run(
            [str(self.directory / "bin" / "python"), *arguments],
            cwd=cwd,
            env=kept | {"PATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
        )
        if check and done.returncode != 0:
            sys.exit(
                f"{' '.join(arguments)} failed in {self.directory}:\n{done.stdout}{done.stderr}"
            )
        return done


def copy_suite() -> None:
    """Copies what the tests need, but not the package: the installed one is tested."""
    shutil.rmtree(_SUITE, ignore_errors=True)
    _SUITE.mkdir(parents=True)
    for folder in ("docs", "examples", "testbed", "tests", "tools"):
        shutil.copytree(
            ROOT / folder, _SUITE / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / file, _SUITE / file)


def tested(release: str) -> Row:
    """What the release does with the wheel."""
    environment = Environment(release)
    numpy = environment.run("-c", "import numpy; print(numpy.__version__)").stdout.strip()
    doctor = environment.run("-m", "hplacer_optimizer", "doctor", check=False)
    readme = environment.run(
        *("-m", "pytest", "-q", "-m", "", f"tests/test_documentation.py::{_README}"),
        check=False,
        cwd=_SUITE,
    )
    workers = str(len(os.sched_getaffinity(0)))
    core = environment.run(
        *("-m", "pytest", "-q", "-n", workers, "--dist", "loadfile", "--tb", "short", *_CORE),
        check=False,
        cwd=_SUITE,
    )
    emulated = environment.run(
        *("-m", "pytest", "-q", "-m", "", "--tb", "short", *_EMULATED), check=False, cwd=_SUITE
    )
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", _last(core.stdout))}
    row = Row(
        release=release,
        numpy=numpy,
        doctor=doctor.returncode == 0,
        readme=readme.returncode == 0,
        passed=counts.get("passed", 0),
        failed=counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0),
        skipped=counts.get("skipped", 0),
        emulated=emulated.returncode == 0,
    )
    log = _MATRIX / f"{release}.log"
    runs = (doctor, readme, core, emulated)
    log.write_text("\n".join(done.stdout + done.stderr for done in runs))
    print(row.markdown() + ("" if row.is_well else f"   see {log.relative_to(ROOT)}"), flush=True)
    return row


def _last(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""


def import_s() -> float:
    """Seconds to import the package without TensorFlow, in CPU time; checks the offline part."""
    environment = Environment(_NO_TENSORFLOW)
    problem = _SUITE / "tests" / "golden" / "two_towers.hplacer.json"
    plan = str(_MATRIX / "offline.hplan")
    Path(plan).unlink(missing_ok=True)
    for command in (
        ("plan", str(problem), "-o", plan, "--planner", "etf"),
        ("simulate", str(problem), "--placement", plan),
        ("report", plan, "-o", str(_MATRIX / "offline.html")),
    ):
        environment.run("-m", "hplacer_optimizer", *command)
    (_MATRIX / "graph.meta").touch()
    refused = environment.run("-m", "hplacer_optimizer", "plan", "graph.meta", check=False)
    if "tensorflow" not in refused.stderr.lower() or "Traceback" in refused.stderr:
        sys.exit(f"a graph without TensorFlow: not one clear line but\n{refused.stderr}")
    return min(float(environment.run("-c", _TIME_IMPORT).stdout) for _ in range(_IMPORTS))


def check_too_old() -> None:
    """Training with the optimizer switched on, where there is no native part for TensorFlow."""
    done = Environment(_TOO_OLD).run("-c", _TRAINING, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("hplacer: ")]
    if done.returncode != 0 or len(lines) != 1 or "the optimizer is off" not in lines[0]:
        sys.exit(f"TensorFlow {_TOO_OLD}: not one line and training, but\n{done.stderr}")


def kept_rows(page: str) -> dict[str, str]:
    """The rows of a page by release: those of releases that are not tested now stay."""
    return {found[1]: found[0] for found in re.finditer(r"^\| ([\d.]+) \|.*$", page, re.MULTILINE)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if anything failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--release", action="append", choices=RELEASES, help="only this one")
    parser.add_argument("--write", type=Path, metavar="FILE", help="writes the page of the results")
    options = parser.parse_args(arguments)
    copy_suite()
    seconds = import_s()
    print(f"without TensorFlow: import in {seconds * 1e3:.0f} ms", flush=True)
    check_too_old()
    print(f"TensorFlow {_TOO_OLD}: one line, and training goes on", flush=True)
    rows = [tested(release) for release in options.release or RELEASES]
    if options.write:
        shown = {row.release: row.markdown() for row in rows}
        if options.write.exists():
            shown = kept_rows(options.write.read_text()) | shown
        cores = len(os.sched_getaffinity(0))
        options.write.write_text(
            _PAGE.format(
                machine=f"{cores} shared cores, Python {sys.version.split()[0]}, no GPU",
                rows="\n".join(shown[release] for release in RELEASES if release in shown),
                too_old=_TOO_OLD,
                import_ms=seconds * 1e3,
                imports=_IMPORTS,
            )
        )
    well = all(row.is_well for row in rows) and seconds <= _LONGEST_IMPORT_S
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
