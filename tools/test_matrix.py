"""Installs the wheels beside every Python and TensorFlow, and tests them there: `make test-matrix`.

    python tools/test_matrix.py [--python 3.12] [--release 2.21.0] [--package tensorflow]
        [--part doctor] [--jobs 1] [--write docs/results/releases.md]

Each pair of a Python and a TensorFlow release that exists is tested twice: with `tensorflow`, which
is the build for GPUs, and with `tensorflow-cpu`. Each has an environment of its own in
build/matrix/, whose PATH holds no compiler, and which is removed afterwards. As many run at a time
as there are cores. There run

    doctor      `hplacer doctor`
    readme      the commands of the README
    core        tests of switching on, planning, stored plans, losses, variables and capture
    emulated    steps on emulated GPUs that take what was worked out by hand, and scripts whose
                results are those of the CPU; not with `tensorflow`, under which none are emulated
    container   the README's commands as process 1 of a container with one core, where only one
                directory can be written; with the newest TensorFlow alone

What was tested with the same wheel is kept in build/matrix/rows.json and not tested again, so a run
may be stopped at any time. For each Python there follows an environment without TensorFlow: the
offline part must work, and the rest must say what is missing. At last comes a TensorFlow that is
too old: training there must go on, after one line. Exits with 1 if anything fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from build_wheel import PYTHONS, RELEASES, ROOT, find_interpreter, releases_for

_MATRIX = ROOT / "build" / "matrix"
_SUITE = _MATRIX / "suite"  # the tests without the sources of the package
_CORE = (
    "tests/capture/test_loaders.py::test_a_function_is_captured_as_in_training",
    "tests/capture/test_loaders.py::test_a_session_is_captured_as_in_training",
    "tests/capture/test_loaders.py::test_every_form_of_a_graph_is_the_same_problem",
    "tests/capture/test_loaders.py::test_the_command_takes_graphs",
    "tests/plugin/test_switch.py",
    "tests/plugin/test_training.py::test_the_plan_is_what_ran_and_changes_no_loss[lstm2-exact]",
    "tests/plugin/test_training.py::test_the_next_process_loads_the_plan[lstm2-exact]",
    "tests/plugin/test_training.py::test_the_next_process_loads_the_plan[while_function-default]",
    "tests/plugin/test_variables.py::test_a_keras_model_is_spread_saved_loaded_and_moved",
    *(
        f"tests/test_scripts.py::test_a_script_does_the_same_with_plans[{script}]"
        for script in ("branches.py", "interrupted.py", "threads.py")
    ),
)
_EMULATED = ("tests/emulation/test_clock.py", "tests/emulation/test_results.py")
_README = "test_the_commands_of_a_document_run_one_after_the_other[README.md]"
_CONTAINER = "test_the_commands_run[process 1 with one core and a read-only root]"
_TESTS = ("-m", "pytest", "-q", "--tb", "short")
_SLOW_TOO = (*_TESTS, "-m", "")
PARTS = {
    "doctor": ("-m", "hplacer_optimizer", "doctor"),
    "readme": (*_SLOW_TOO, f"tests/test_documentation.py::{_README}"),
    "core": (*_TESTS, *_CORE),
    "emulated": (*_SLOW_TOO, *_EMULATED),
    "container": (*_SLOW_TOO, f"tests/test_containers.py::{_CONTAINER}"),
}
PACKAGES = ("tensorflow-cpu", "tensorflow")
# Besides the environment's own: for commands of documents, and to make containers.
_PROGRAMS = ("bash", "mount", "sh", "taskset", "touch", "true", "unshare")
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
_PAGE = """\
# Python and TensorFlow releases

The wheels beside each Python and TensorFlow release that they support, on a machine without a
compiler. `tensorflow` is the build for GPUs, which was tested without one.

<!-- results-releases: written by `python tools/write_docs.py` -->
<!-- end of results-releases -->

{rows}

"Well" means that nothing failed, and a dash that it was not run with this wheel. The numbers count
core tests that passed. GPUs are emulated beside `tensorflow-cpu` alone, and containers ran beside
its newest release alone.

Wheels: {sizes}.

Beside TensorFlow {too_old}, which is not supported, one line says so and training goes on. Without
TensorFlow the offline part works: `hplacer simulate`, `plan` and `report` of a problem file.
`import hplacer_optimizer` takes {import_ms} ms of processor time there, the least of {imports}
starts.
"""


@dataclass(frozen=True, order=True)
class Pair:
    """A Python and a build of TensorFlow."""

    python: str
    release: str
    package: str

    @property
    def name(self) -> str:
        """Of its environment."""
        return f"{self.python}-{self.package}-{self.release}"


def all_pairs() -> list[Pair]:
    """Those that exist, what most users have first."""
    return [
        Pair(python, release, package)
        for release in reversed(RELEASES)
        for package in PACKAGES
        for python in PYTHONS
        if release in releases_for(python)
    ]


def wheels_for(python: str) -> list[Path]:
    """What dist/ has of this Python: one wheel, or none before `make wheel`."""
    tag = f"cp{python.replace('.', '')}"
    return [*(ROOT / "dist").glob(f"hplacer_optimizer-*-{tag}-{tag}-*.whl")]


def wheel_for(python: str) -> Path:
    """The one wheel of this Python."""
    wheels = wheels_for(python)
    if len(wheels) != 1:
        sys.exit(f"dist/ holds {len(wheels)} wheels for Python {python}: run `make wheel`")
    return wheels[0]


def parts_of(pair: Pair) -> list[str]:
    """What is tested there."""
    left_out = set()
    if pair.package == "tensorflow":
        left_out.add("emulated")
    if (pair.release, pair.package) != (RELEASES[-1], "tensorflow-cpu"):
        left_out.add("container")
    return [part for part in PARTS if part not in left_out]


class Environment:
    """A virtual environment with the wheel, beside a build of TensorFlow or beside none."""

    def __init__(self, pair: Pair) -> None:
        self.directory = _MATRIX / pair.name
        shutil.rmtree(self.directory, ignore_errors=True)
        interpreter = find_interpreter(pair.python)
        if interpreter is None:
            sys.exit(f"no Python {pair.python} is here")
        subprocess.run([str(interpreter.file), "-m", "venv", str(self.directory)], check=True)
        programs = self.directory / "programs"
        programs.mkdir()
        for name in _PROGRAMS:
            (programs / name).symlink_to(shutil.which(name) or name)
        self._install(pair)

    def remove(self) -> None:
        """Gives back its 2 GB."""
        shutil.rmtree(self.directory)

    def _install(self, pair: Pair) -> None:
        pip = ("-m", "pip", "install", "--quiet", "--no-cache-dir", "--only-binary", ":all:")
        # Most of what is installed is never imported.
        pip += ("--disable-pip-version-check", "--no-compile")
        wheel = str(wheel_for(pair.python))
        if pair.release == _NO_TENSORFLOW:
            self.run(*pip, wheel)
            return
        # With protobuf 7, TensorFlow 2.20 itself cannot write a graph as text.
        packages = (*_TEST_PACKAGES, "scikit-learn", "protobuf<7")
        tensorflow = f"{pair.package}=={pair.release}"
        if pair.release == _TOO_OLD:  # its wrapt is too old for the wheel, too
            self.run(*pip, tensorflow, *packages, "pyyaml", "rich", "shtab")
            self.run(*pip, "--no-deps", wheel)
            return
        self.run(*pip, wheel, tensorflow, *packages)
        # They require the package tensorflow, which must not lie over tensorflow-cpu.
        line = pair.release.rpartition(".")[0]
        self.run(*pip, "--no-deps", "tf-slim", f"tf_keras=={line}.*")

    def run(
        self, *arguments: str, check: bool = True, cwd: Path = _MATRIX
    ) -> subprocess.CompletedProcess[str]:
        """Runs the environment's Python; no program but its own ones and a shell are there."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HPLACER_", "PYTHON"))}
        path = os.pathsep.join([str(self.directory / "bin"), str(self.directory / "programs")])
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


class Rows:
    """What was found, by pair, kept in a file; what another wheel did counts no more."""

    def __init__(self) -> None:
        self._file = _MATRIX / "rows.json"
        self._known = json.loads(self._file.read_text()) if self._file.exists() else {}
        self._digests: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, pair: Pair) -> dict[str, str]:
        """A word for each part that was run, and the release of NumPy."""
        if pair.python not in self._digests:
            wheels = b"".join(file.read_bytes() for file in wheels_for(pair.python))
            self._digests[pair.python] = hashlib.sha256(wheels).hexdigest()
        row = self._known.get(pair.name, {})
        digest = self._digests[pair.python]
        return row if row.get("wheel") == digest else {"wheel": digest}

    def keep(self, pair: Pair, found: dict[str, str]) -> None:
        """Adds to what is known."""
        with self._lock:
            self._known[pair.name] = self.of(pair) | found
            self._file.write_text(json.dumps(self._known, indent=1))


def test_pair(pair: Pair, parts: Sequence[str], rows: Rows) -> None:
    """Runs these parts in a new environment, and keeps what each did as soon as it is known."""
    environment = Environment(pair)
    numpy = environment.run("-c", "import numpy; print(numpy.__version__)").stdout.strip()
    rows.keep(pair, {"numpy": numpy})
    for part in parts:
        cwd = _MATRIX if part == "doctor" else _SUITE
        done = environment.run(*PARTS[part], check=False, cwd=cwd)
        word = "well" if done.returncode == 0 else "failed"
        if part == "core":
            counts = re.findall(r"\d+ (?:passed|failed|skipped|errors?)", _last(done.stdout))
            word = ", ".join(counts) or "failed"
        elif done.returncode == 0 and "skipped" in _last(done.stdout):
            word = "skipped"
        rows.keep(pair, {part: word})
        (_MATRIX / f"{pair.name}-{part}.log").write_text(done.stdout + done.stderr)
        print(f"{pair.name} {part}: {word}", flush=True)
    environment.remove()


def _last(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""


def is_well(found: dict[str, str]) -> bool:
    """Whether nothing that was run failed."""
    return not any("failed" in word or "error" in word for word in found.values())


def table(rows: Rows) -> str:
    """A line for each Python, release and package."""
    lines = [
        "| Python | TensorFlow | package | NumPy | `hplacer doctor` | README's commands "
        "| core tests | emulated GPUs | as process 1 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for pair in sorted(all_pairs(), key=lambda p: (p.python, RELEASES.index(p.release), p.package)):
        found = rows.of(pair)
        cells = [pair.python, pair.release, f"`{pair.package}`", found.get("numpy", "–")]
        cells += [found.get(part, "–") for part in PARTS]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def offline_import_s(python: str) -> float:
    """Seconds to import the package without TensorFlow, in CPU time; checks the offline part."""
    environment = Environment(Pair(python, _NO_TENSORFLOW, "tensorflow"))
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
    seconds = min(float(environment.run("-c", _TIME_IMPORT).stdout) for _ in range(_IMPORTS))
    environment.remove()
    return seconds


def check_too_old() -> None:
    """Training with the optimizer switched on, where there is no native part for TensorFlow."""
    environment = Environment(Pair("3.11", _TOO_OLD, "tensorflow-cpu"))
    done = environment.run("-c", _TRAINING, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("hplacer: ")]
    if done.returncode != 0 or len(lines) != 1 or "the optimizer is off" not in lines[0]:
        sys.exit(f"TensorFlow {_TOO_OLD}: not one line and training, but\n{done.stderr}")
    environment.remove()


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if anything failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this one")
    parser.add_argument("--release", action="append", choices=RELEASES, help="only this one")
    parser.add_argument("--package", action="append", choices=PACKAGES, help="only this one")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="environments at a time")
    parser.add_argument("--write", type=Path, metavar="FILE", help="writes the page of the results")
    options = parser.parse_args(arguments)
    copy_suite()
    rows = Rows()
    pairs = [
        pair
        for pair in all_pairs()
        if pair.python in (options.python or PYTHONS)
        and pair.release in (options.release or RELEASES)
        and pair.package in (options.package or PACKAGES)
    ]

    def test(pair: Pair) -> None:
        wanted = [part for part in parts_of(pair) if part in (options.part or PARTS)]
        missing = [part for part in wanted if part not in rows.of(pair)]
        if missing:
            test_pair(pair, missing, rows)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(test, pairs))
    imports_s = [offline_import_s(python) for python in options.python or PYTHONS]
    print("without TensorFlow: import in", *(f"{s * 1e3:.0f} ms" for s in imports_s), flush=True)
    check_too_old()
    print(f"TensorFlow {_TOO_OLD}: one line, and training goes on", flush=True)
    if options.write:
        options.write.write_text(
            _PAGE.format(
                rows=table(rows),
                sizes=", ".join(
                    f"{wheel_for(python).stat().st_size / 1e6:.1f} MB for Python {python}"
                    for python in PYTHONS
                ),
                too_old=_TOO_OLD,
                import_ms=f"{min(imports_s) * 1e3:.0f} to {max(imports_s) * 1e3:.0f}",
                imports=_IMPORTS,
            )
        )
        print("`python tools/write_docs.py results-releases` writes the header of the page")
    return 0 if all(is_well(rows.of(pair)) for pair in pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
