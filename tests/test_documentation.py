"""What the documentation shows can be pasted: Python in documents, examples in docstrings."""

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
from tests.processes import ROOT, clean_environment

DOCUMENTS = {path.name: path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"))}
PUBLIC = sorted({*hp.__all__} - {"__version__"})

LANGUAGES = {"json", "python", "sh", "yaml"}
MAX_NOT_RUN = 2
LONG_SCRIPTS = {"loading.md", "measuring.md", "variables.md", "workloads.md"}

_LANGUAGE = re.compile(r"^ *(?:```|~~~) *(\S+)", re.MULTILINE)
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+) -->\n)?```python\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


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
        timeout=600,
    )


# ---- documents ----


def script_of(text: str) -> str:
    """The Python blocks of a document, on the lines where the document has them."""
    script, end = "", 0
    for block in _BLOCK.finditer(text):
        if not block["reason"]:
            script += "\n" * text.count("\n", end, block.start("code")) + block["code"]
            end = block.end("code")
    return script


def test_a_script_keeps_the_lines_of_its_document() -> None:
    blocks = (
        "```python\na = 1\n```\n",
        "<!-- not run: b -->\n```python\nb\n```\n",
        "```python\na\n```\n",
    )
    assert script_of("# A\n\n" + "".join(blocks)) == "\n\n\na = 1\n" + "\n" * 6 + "a\n"


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_every_block_has_a_language_and_all_python_is_found(name: str) -> None:
    found = _LANGUAGE.findall(DOCUMENTS[name])
    assert {*found} <= LANGUAGES
    assert found.count("python") == len(_BLOCK.findall(DOCUMENTS[name]))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LONG_SCRIPTS else [])
        for name in sorted(DOCUMENTS)
        if script_of(DOCUMENTS[name])
    ],
)
def test_the_python_of_a_document_runs_as_it_is_printed(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    (tmp_path / name).write_text(script_of(DOCUMENTS[name]))
    done = run([name], tmp_path)
    assert done.returncode == 0, done.stderr  # a traceback with the document's name and lines
    assert "hplacer: " not in done.stderr, done.stderr


def test_few_blocks_are_not_run() -> None:
    blocks = [block for text in DOCUMENTS.values() for block in _BLOCK.finditer(text)]
    reasons = [block["reason"] for block in blocks if block["reason"]]
    assert len(reasons) <= MAX_NOT_RUN, reasons


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


@pytest.mark.parametrize("with_tensorflow", [False, pytest.param(True, marks=pytest.mark.slow)])
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
