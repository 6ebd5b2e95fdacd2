"""Writes the table of our own op estimates into docs/reference/costs.md."""

from __future__ import annotations

import collections
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "reference" / "costs.md"
BEGIN = "checked by tests/costs/test_costs.py -->\n"
END = "<!-- end of estimates -->\n"


def table(estimates: dict[str, str]) -> str:
    """The Markdown table of `_tf.op_estimates()`: a row per estimate, its op types sorted."""
    types = collections.defaultdict(list)
    for op_type, estimate in sorted(estimates.items()):
        types[estimate].append(op_type)
    rows = [f"| {estimate} | {', '.join(types[estimate])} |\n" for estimate in sorted(types)]
    return "| counted | op types |\n|---|---|\n" + "".join(rows)


def main() -> None:
    """Replaces what stands between the two marks."""
    from hplacer_optimizer.capture import native

    before, rest = DOCUMENT.read_text().split(BEGIN)
    _, after = rest.split(END)
    estimates = native.load().op_estimates()
    DOCUMENT.write_text(before + BEGIN + table(estimates) + END + after)


if __name__ == "__main__":
    main()
