"""Do trials change results? 25 trainings alone, with switches at every call, and with real trials.

testbed/same_results.py says how each is run. Those that same_results.json in the folder of --output
has are not run again.

    python -m benchmarks.same_results --output docs/results/trials
    python -m benchmarks.same_results --names "lookup tables" loops.py
    python -m benchmarks.same_results --gpu 0 --jobs 8 --output build/gpu

With --gpu, trainings run on a GPU of this machine, divided into two, instead of two CPU devices.
NVIDIA_TF32_OVERRIDE=0 has its products in float32, as a CPU computes them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from testbed.same_results import NAMES, Found, compare_in_process
from testbed.told_rows import keep, kept


def table(rows: Sequence[Found]) -> list[str]:
    """In Markdown, with what it comes to."""
    lines = ["| training | tried | calls with the plan, switched and in the trial | largest "]
    lines[0] += "difference | with `bitwise=True` |"
    lines.append("|---" * 5 + "|")
    for row in rows:
        bits = {True: "equal to the bit", False: "differs", None: "differs without a plan, too"}
        told = "yes" if row.is_tried else f"no: {row.left_out}"
        difference = f"{row.difference:.1e}" if row.difference else "none"
        calls = f"{row.switched}, {row.tried}"
        lines.append(f"| {row.name} | {told} | {calls} | {difference} | {bits[row.is_exact]} |")
    tried = sum(row.is_tried for row in rows)
    same = sum(row.is_same for row in rows)
    lines += ["", f"{tried} of {len(rows)} are tried; {same} of {len(rows)} have the same results."]
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Runs, prints the table and writes it; exit code 1 if a result differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for same_results.json and .md")
    parser.add_argument("--gpu", default="", metavar="N", help="as CUDA counts, default: none")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once, default: 1")
    options = parser.parse_args(argv)
    file = options.output / "same_results.json" if options.output else None
    rows = [Found(**row) for row in kept(file)]
    known = {row.name for row in rows}

    def compared(name: str) -> Found:
        with tempfile.TemporaryDirectory() as directory:
            return compare_in_process(name, Path(directory), gpu=options.gpu)

    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(compared, [name for name in options.names if name not in known]):
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
            keep(file, [asdict(row) for row in rows], table(rows))
    print("\n".join(table(rows)))
    return 0 if all(row.is_same for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
