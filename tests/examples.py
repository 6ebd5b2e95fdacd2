"""Runs the examples in the docstrings of public names: python -m tests.examples NAME ...

An example is self-contained, or goes on from another name's ("Example, after that of `NAME`:").
The exit code is the number of examples that failed, each of which is printed.
"""

from __future__ import annotations

import doctest
import functools
import inspect
import re
import sys
from typing import Any

import hplacer_optimizer as hp

_AFTER = re.compile(r"^Example, after that of `(\w+)`:$", re.MULTILINE)


def documented(name: str) -> doctest.DocTest | None:
    """The example of a public name, None without one."""
    finder = doctest.DocTestFinder(recurse=False)
    return next(iter(finder.find(getattr(hp, name), f"hp.{name}", globs={})), None)


def predecessor(name: str) -> str | None:
    """The public name whose example has to run before."""
    found = _AFTER.search(inspect.getdoc(getattr(hp, name)) or "")
    return found[1] if found else None


def needs_tensorflow(name: str) -> bool:
    """Whether the example, or one before it, names TensorFlow."""
    example, before = documented(name), predecessor(name)
    lines = example.examples if example else []
    is_named = any("tensorflow" in line.source.lower() for line in lines)
    return is_named or (before is not None and needs_tensorflow(before))


def main(names: list[str]) -> int:
    """Runs the examples of these names, each once and in a namespace of its own."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF)

    @functools.cache
    def namespace(name: str) -> dict[str, Any]:
        """What the example leaves behind."""
        example, before = documented(name), predecessor(name)
        assert example is not None, name
        example.globs |= namespace(before) if before else {}
        runner.run(example, clear_globs=False)
        return example.globs

    for name in names:
        namespace(name)
    return runner.failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
