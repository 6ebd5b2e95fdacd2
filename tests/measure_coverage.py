"""Tells which part of the lines and branches the fast tests run: `make coverage`.

    python -m tests.measure_coverage [PYTEST_ARGUMENT ...]    such as tests/problem

All is built and run in build/coverage/, a copy of the working tree, whose native modules count what
they run; the C++ tests are linked with the same objects. Branches of C++ are those of conditions,
not those that an exception would take. What a process ran that was killed does not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.scratch_copy import ScratchCopy

_OWN_CPP = ("cc/", "python/")


@dataclass
class Count:
    """Lines and branches of some files, and how many of them were run."""

    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_run: int = 0

    def add(self, other: Count) -> None:
        """Adds the counts of other files."""
        self.lines += other.lines
        self.lines_run += other.lines_run
        self.branches += other.branches
        self.branches_run += other.branches_run

    def row(self, name: str) -> str:
        """A line of the table."""
        return (
            f"{name:34}{self.lines:7}{_share(self.lines_run, self.lines):>8}"
            f"{self.branches:10}{_share(self.branches_run, self.branches):>8}"
        )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def main() -> int:
    """Prints a row per package and folder; returns 1 if a test failed."""
    copy = ScratchCopy("coverage")
    print("building with counters", flush=True)
    counting = f"{os.environ.get('CXX', 'g++')} --coverage"
    # Optimised, as the tests of planners have time limits; with counters GCC warns of other things.
    copy.build(CXX=counting, HPLACER_WERROR="0")
    cpp_tests = copy.run_cpp_tests("")
    print(cpp_tests.stdout, flush=True)
    python_files = {"COVERAGE_FILE": str(copy.directory / "build" / "python.coverage")}
    pytest = ["-m", "pytest", "-q", "-n", str(os.cpu_count()), "--dist", "loadfile", *sys.argv[1:]]
    coverage = [sys.executable, "-m", "coverage"]
    python_tests = copy.run([*coverage, "run", *pytest], stdout=sys.stdout, **python_files)
    copy.run([*coverage, "combine", "--quiet"], check=True, **python_files)
    report = copy.directory / "build" / "python.json"
    copy.run(
        [*coverage, "json", "--quiet", "--ignore-errors", "-o", report], check=True, **python_files
    )

    print(f"\n{'':34}{'lines':>7}{'run':>8}{'branches':>10}{'run':>8}")
    for title, counts in (("Python", _python_counts(report)), ("C++", _cpp_counts(copy))):
        total = Count()
        for name, count in sorted(counts.items()):
            print(count.row(name))
            total.add(count)
        print(total.row(f"{title} in all"))
    return int(cpp_tests.returncode != 0 or python_tests.returncode != 0)


def _python_counts(report: Path) -> dict[str, Count]:
    """By package; the files of the root together. Not of copies that tests make elsewhere."""
    counts: defaultdict[str, Count] = defaultdict(Count)
    for name, file in json.loads(report.read_text())["files"].items():
        if os.path.isabs(name) or name.startswith(os.pardir):
            continue
        found = file["summary"]
        counts["/".join(Path(name).parent.parts[:2])].add(
            Count(
                found["num_statements"],
                found["covered_lines"],
                found["num_branches"],
                found["covered_branches"],
            )
        )
    return counts


def _cpp_counts(copy: ScratchCopy) -> dict[str, Count]:
    """By folder. A line counts once, however many objects it is compiled into."""
    lines: defaultdict[tuple[str, int], bool] = defaultdict(bool)
    branches: defaultdict[tuple[str, int, int], bool] = defaultdict(bool)
    for file, line in _gcov_lines(copy):
        lines[file, line["line_number"]] |= line["count"] > 0
        conditions = [branch for branch in line["branches"] if not branch["throw"]]
        for number, branch in enumerate(conditions):
            branches[file, line["line_number"], number] |= branch["count"] > 0
    counts: defaultdict[str, Count] = defaultdict(Count)
    for (file, _), was_run in lines.items():
        counts[os.path.dirname(file)].add(Count(1, was_run, 0, 0))
    for (file, _, _), was_run in branches.items():
        counts[os.path.dirname(file)].add(Count(0, 0, 1, was_run))
    return counts


def _gcov_lines(copy: ScratchCopy) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every line of ours in every object, as gcov tells it."""
    for notes in sorted(copy.directory.glob("build/native/**/*.gcno")):
        gcov = ["gcov", "--json-format", "--stdout", "--branch-probabilities", notes]
        done = subprocess.run(gcov, cwd=copy.directory, check=True, capture_output=True)
        for file in json.loads(done.stdout)["files"]:
            if file["file"].startswith(_OWN_CPP):
                yield from ((file["file"], line) for line in file["lines"])


if __name__ == "__main__":
    sys.exit(main())
