"""What the documentation shows can be pasted: examples in docstrings."""

from __future__ import annotations

import contextlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hplacer_optimizer as hp
from tests import examples
from tests.processes import clean_environment

PUBLIC = sorted({*hp.__all__} - {"__version__"})


def run(arguments: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python in an empty directory of its own, without a plan store or options.

    Warnings are errors, but not user warnings: Keras has some about its own defaults.
    """
    return subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::UserWarning", *arguments],
        capture_output=True,
        text=True,
        cwd=directory,
        env=clean_environment(directory)
        | {"XDG_CACHE_HOME": str(directory / "cache"), "HPLACER_LOG": "warning"},
        timeout=200,
    )


# ---- docstrings ----


def is_exception(name: str) -> bool:
    value = getattr(hp, name)
    return isinstance(value, type) and issubclass(value, Exception)


def to_describe(value: Any) -> set[str]:
    """The parameters, and the public members that have no docstring of their own."""
    members = vars(value) if isinstance(value, type) else {}
    names = {name for name, member in members.items() if not member.__doc__}
    with contextlib.suppress(ValueError):  # a native class does not tell
        names |= inspect.signature(value).parameters.keys()
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_documented(name: str) -> None:
    value = getattr(hp, name)
    text = value.__doc__ or ""
    assert text
    if is_exception(name):
        return
    assert {word for word in to_describe(value) if not re.search(rf"\b{word}\b", text)} == set()
    assert examples.documented(name), f"hp.{name} has no `Example:` in its docstring"


@pytest.mark.parametrize("with_tensorflow", [False, True])
def test_the_examples_of_public_names_run(with_tensorflow: bool, tmp_path: Path) -> None:
    if with_tensorflow:
        pytest.importorskip("tensorflow")
    names = [
        name
        for name in PUBLIC
        if not is_exception(name) and examples.needs_tensorflow(name) == with_tensorflow
    ]
    done = run(["-m", "tests.examples", *names], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hplacer: " not in done.stderr, done.stderr
