"""Writes what pages take from the code: parts between two marks, and the notebook of the tutorial.

python tools/write_docs.py              all parts but those that take minutes
python tools/write_docs.py workloads    this part
python tools/write_docs.py --check      only tells which parts are old; exit code 1 if one is
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import architecture
import figures
import result_tables
import results
import tutorial_notebook
import workloads_table

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
_HUGE = 1e6  # a limit from here on only keeps numbers within their type


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """What is written into a page of docs/, and how it is made."""

    page: str
    text: Callable[[], str]
    is_whole: bool = False  # all of the file, which has no marks
    takes_minutes: bool = False


def main() -> int:
    """Writes parts or checks them; 1 if one is old."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    names = options.parts or [name for name in PARTS if not PARTS[name].takes_minutes]
    old = 0
    for name in names:
        path = DOCS / PARTS[name].page
        page = path.read_text()
        if (new := written(name, page)) == page:
            continue
        if options.check:
            print(f"{path.relative_to(ROOT)} is old: run `python tools/write_docs.py {name}`")
            old = 1
        else:
            path.write_text(new)
    return old


def written(name: str, page: str) -> str:
    """The page with this part as it is now."""
    text = PARTS[name].text()
    if PARTS[name].is_whole:
        return text
    begin = f"<!-- {name}: written by `python tools/write_docs.py` -->\n"
    end = f"<!-- end of {name} -->\n"
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return before + begin + text + end + after


def packages() -> str:
    """A row per package and file of the root."""
    return architecture.table(architecture.read_package())


def tutorial() -> str:
    """The notebook of the page."""
    return tutorial_notebook.notebook((DOCS / "start" / "tutorial.md").read_text())


def options() -> str:
    """A row per option in the order of their declaration."""
    from hplacer_optimizer.options import Options

    rows = [
        f"| `{field.name}` | `{field.default!r}` | {_values(field)} | {field.metadata['doc']} |\n"
        for field in dataclasses.fields(Options)
    ]
    return "| option | default | values | meaning |\n|---|---|---|---|\n" + "".join(rows)


def _values(field: dataclasses.Field[Any]) -> str:
    if field.metadata["choices"]:
        return ", ".join(f"`{choice!r}`" for choice in field.metadata["choices"])
    limits = []
    if field.metadata["minimum"] is not None:
        limits.append(f"at least {field.metadata['minimum']:g}")
    if (field.metadata["maximum"] or math.inf) < _HUGE:
        limits.append(f"at most {field.metadata['maximum']:g}")
    kind = str(field.type).replace(" | None", " or None").replace("tuple[str, ...]", "list of str")
    return ", ".join([kind, *limits])


def estimates() -> str:
    """A row per estimate of ours, its op types sorted."""
    from hplacer_optimizer.capture import native

    types = collections.defaultdict(list)
    for op_type, estimate in sorted(native.load().op_estimates().items()):
        types[estimate].append(op_type)
    rows = [f"| {estimate} | {', '.join(types[estimate])} |\n" for estimate in sorted(types)]
    return "| counted | op types |\n|---|---|\n" + "".join(rows)


def _with_figures(path: Path) -> str:
    return figures.written(path.read_text())


PARTS = (
    {
        "packages": Part(page="explanation/architecture.md", text=packages),
        "tutorial": Part(page="start/tutorial.ipynb", text=tutorial, is_whole=True),
        "options": Part(page="reference/options.md", text=options),
        "estimates": Part(page="reference/costs.md", text=estimates),
        "workloads": Part(
            page="reference/workloads.md", text=workloads_table.table, takes_minutes=True
        ),
    }
    | {
        f"{results.HEADER}-{page.removesuffix('.md')}": Part(
            page=f"results/{page}", text=functools.partial(results.header, page)
        )
        for page in sorted({part.page for part in results.read()})
    }
    | {
        f"table-{name}": Part(page=f"results/{page}", text=text)
        for name, (page, text) in result_tables.TABLES.items()
    }
    | {
        f"figures-{'-'.join(path.relative_to(ROOT).with_suffix('').parts)}": Part(
            page=os.path.relpath(path, DOCS),
            text=functools.partial(_with_figures, path),
            is_whole=True,
        )
        for path in figures.pages()
        if figures.quotes(path.read_text())
    }
)

if __name__ == "__main__":
    sys.exit(main())
