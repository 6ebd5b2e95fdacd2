"""Which results are stale, and how to make them again: `make results`, `make results-simulated`.

    python tools/results.py                     lists the parts
    python tools/results.py run simulated       runs the stale parts that any machine can run
    python tools/results.py run measured        those that time steps: on a quiet machine
    python tools/results.py run PART [PART ...]

docs/results/record.yaml says what made each part. A run writes into build/results/. What a
benchmark finds there it does not run again, so a run may be stopped at any time and goes on later.
Once a part is complete, its files are copied to docs/results/. Then the record, and the headers,
tables and quoted figures of the pages, are brought up to date. The text of the pages is yours: read
it against the new tables.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from hplacer_optimizer.machines import host
from hplacer_optimizer.problem.simulator import SIMULATOR_VERSION

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
RECORD = RESULTS / "record.yaml"
KINDS = ("simulated", "measured", "device")
HEADER = "results"  # tools/write_docs.py calls that of guard.md results-guard


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one command has made."""

    part: str
    page: str  # of docs/results
    section: str  # of the page, or "" for all of it
    files: list[str]  # in docs/results
    kind: str
    command: str  # "": there is none that makes all of it
    commit: str
    date: str
    machine: str
    simulator: int | None  # SIMULATOR_VERSION of then; None: there was none
    stale: str  # why the figures are not today's; "": not known to differ

    @property
    def reason(self) -> str:
        """Why it is stale; "" if it is not."""
        if self.simulator != SIMULATOR_VERSION and not self.stale:
            return f"made with version {self.simulator} of the simulator"
        return self.stale

    def row(self) -> str:
        """Its line in the header of the page."""
        state = f"**stale**: {self.reason}" if self.reason else "as made"
        version = "none" if self.simulator is None else str(self.simulator)
        command = f"`{self.command}`" if self.command else ""
        cells = (self.section or "all", self.commit, self.date, self.machine, version, command)
        return f"| {' | '.join((*cells, state))} |\n"


def read() -> list[Part]:
    """The record, checked.

    Raises ValueError for a part without such a page or kind, or with a file of another part.
    """
    parts = [
        Part(**{**row, "date": str(row["date"])}) for row in yaml.safe_load(RECORD.read_text())
    ]
    owners: dict[str, str] = {}
    for part in parts:
        if part.kind not in KINDS or not (RESULTS / part.page).exists():
            raise ValueError(f"{RECORD.name}: part {part.part}: no such kind or page")
        for file in part.files:
            if file in owners:
                raise ValueError(f"{RECORD.name}: {file} is of {owners[file]} and of {part.part}")
            owners[file] = part.part
    return parts


def header(page: str) -> str:
    """What made the page: a row per part, the parts in the order of the record."""
    rows = "".join(part.row() for part in read() if part.page == page)
    return (
        "| section | commit | date | machine | simulator | command | state |\n"
        "|---|---|---|---|---|---|---|\n" + rows
    )


def write(part: Part) -> None:
    """Replaces the part in the record; the comments above and the other parts stay as they are."""
    text = RECORD.read_text()
    pattern = re.compile(rf"^- part: {re.escape(part.part)}\n(?:  .*\n)*", re.MULTILINE)
    row = yaml.safe_dump(
        [dataclasses.asdict(part)], sort_keys=False, width=10_000, default_flow_style=None
    )
    new, replaced = pattern.subn(lambda _: row, text)
    assert replaced == 1, part.part
    RECORD.write_text(new)


def run(part: Part) -> bool:
    """Makes the part anew; whether it went well."""
    if not part.command:
        print(f"{part.part}: there is no one command for it", flush=True)
        return True
    built = ROOT / "build" / "results"
    arguments = shlex.split(part.command)
    for i, argument in enumerate(arguments[:-1]):
        if argument in ("-o", "--output"):
            target = built / Path(arguments[i + 1]).relative_to("docs/results")
            target.parent.mkdir(parents=True, exist_ok=True)
            arguments[i + 1] = str(target)
    print(f"{part.part}: {shlex.join(arguments)}", flush=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path}
    if subprocess.run(arguments, cwd=ROOT, env=environment, check=False).returncode != 0:
        print(f"{part.part}: failed; what it has found is in {built}", flush=True)
        return False
    for file in part.files:
        if (built / file).exists():
            shutil.copy(built / file, RESULTS / file)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    write(
        dataclasses.replace(
            part,
            commit=commit.stdout.strip(),
            date=datetime.date.today().isoformat(),
            machine=machine(),
            simulator=SIMULATOR_VERSION,
            stale="",
        )
    )
    subprocess.run([sys.executable, "tools/write_docs.py"], cwd=ROOT, check=True)
    return True


def machine() -> str:
    """The cores that this process may use, and their model."""
    return f"{host.whole_cores()} cores, {host.processor().model or 'unknown processor'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a part failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="action")
    running = commands.add_parser("run", help="makes stale parts anew")
    running.add_argument("parts", nargs="+", metavar="PART", help=f"or {', '.join(KINDS)}")
    options = parser.parse_args(arguments)
    parts = read()
    if options.action is None:
        for part in parts:
            print(f"{part.part:24} {part.kind:10} {part.commit}  {part.reason or 'as made'}")
        return 0
    known = {part.part for part in parts} | {*KINDS}
    if unknown := [name for name in options.parts if name not in known]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    chosen = [
        part
        for part in parts
        if part.part in options.parts or (part.kind in options.parts and part.reason)
    ]
    failed = [part.part for part in chosen if not run(part)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
