"""What the documentation shows can be pasted, and its reference is complete."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hplacer_optimizer as hp
import site_pages
import write_docs
from hplacer_optimizer import cli
from tests import examples
from tests.processes import ROOT, clean_environment, run_script

DOCUMENTS = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))
}
PUBLIC = sorted({*hp.__all__} - {"__version__"})

LANGUAGES = {"json", "python", "sh", "yaml"}
MAX_NOT_RUN = 2
LONG_SCRIPTS = {
    "docs/how-to/loading.md",
    "docs/how-to/measuring.md",
    "docs/how-to/variables.md",
    "docs/reference/workloads.md",
    "docs/start/another-machine.md",
}
SHELL_AND_PYTHON_IN_TURN = "docs/start/tutorial.md"  # tests/test_tutorial.py runs it
COMMANDS = ("README.md", "docs/start/first-plan.md", "docs/start/another-machine.md")

_LANGUAGE = re.compile(r"^ *(?:```|~~~) *(\S+)", re.MULTILINE)
_FENCE = r"^(?:<!-- not run: (?P<reason>.+) -->\n)?```{}\n(?P<code>.*?)^```$"
_BLOCK = re.compile(_FENCE.format("python"), re.MULTILINE | re.DOTALL)
_SHELL_BLOCK = re.compile(_FENCE.format("sh"), re.MULTILINE | re.DOTALL)


def run(
    arguments: list[str], directory: Path, *, fresh: bool = False
) -> subprocess.CompletedProcess[str]:
    """Runs Python in an empty directory of its own, without a plan store or options.

    Warnings are errors, but not user warnings. `fresh` is that of `run_script`.
    """
    return run_script(
        [str(ROOT / "tests" / "strict_warnings.py"), *arguments],
        cwd=directory,
        environment=clean_environment(directory)
        | {"XDG_CACHE_HOME": str(directory / "cache"), "HPLACER_LOG": "warning"},
        timeout_s=600,
        fresh=fresh,
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
        if script_of(DOCUMENTS[name]) and name != SHELL_AND_PYTHON_IN_TURN
    ],
)
def test_the_python_of_a_document_runs_as_it_is_printed(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    script = Path(name).name
    (tmp_path / script).write_text(script_of(DOCUMENTS[name]))
    done = run([script], tmp_path, fresh=name == "README.md")  # with the imports' own warnings
    assert done.returncode == 0, done.stderr  # a traceback with the document's name and lines
    assert "hplacer: " not in done.stderr, done.stderr


def test_few_blocks_are_not_run() -> None:
    blocks = [block for text in DOCUMENTS.values() for block in _BLOCK.finditer(text)]
    reasons = [block["reason"] for block in blocks if block["reason"]]
    assert len(reasons) <= MAX_NOT_RUN, reasons


# ---- ratios ----

_RATIO = re.compile(r"\d\.\d+x\b|\b[1-9]\d?x (?:as|faster|slower|TensorFlow)")
_RATIO_CODE = re.compile(r"[}]x(?=[ \"',;)])")  # an x behind a number that is filled in


@pytest.mark.parametrize("text", ["1.62x", "2x faster than", "it is 0.8x.", "2x as fast"])
def test_a_ratio_with_an_x_is_found(text: str) -> None:
    assert _RATIO.search(text)
    assert not _RATIO.search("8xa100, PCIe 3.0 x16, 0x1F, 2 GPUs")


def test_ratios_are_in_words() -> None:
    """As "2.0 times as fast as TensorFlow's placement", here and in what the package prints."""
    documents = DOCUMENTS | {"CHANGELOG.md": (ROOT / "CHANGELOG.md").read_text()}
    assert [name for name, text in documents.items() if _RATIO.search(text)] == []
    sources = {path: path.read_text() for path in (ROOT / "hplacer_optimizer").glob("**/*.py")}
    wrong = [
        path for path, text in sources.items() if _RATIO.search(text) or _RATIO_CODE.search(text)
    ]
    assert wrong == []


def test_each_word_of_the_glossary_stands_once_and_in_order() -> None:
    rows = re.findall(r"^\| (.+?) \| .+ \|$", DOCUMENTS["docs/reference/glossary.md"], re.MULTILINE)
    assert rows[0] == "word"
    words = [word.lower() for word in rows[1:]]
    assert words == sorted({*words})


# ---- commands ----


def commands_of(text: str) -> str:
    """The shell commands of a document, one block after the other."""
    blocks = _SHELL_BLOCK.finditer(text)
    return "".join(block["code"] for block in blocks if not block["reason"])


def environment_of_a_shell(tmp_path: Path) -> dict[str, str]:
    """A reader's, with the programs `python` and `hplacer` and an empty plan store."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for program, arguments in (("python", ""), ("hplacer", "-m hplacer_optimizer ")):
        path = programs / program
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        path.chmod(0o755)
    return clean_environment(tmp_path) | {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_the_commands_of_a_document_run_one_after_the_other(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    directory = tmp_path / "directory"
    directory.mkdir()
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", commands_of(DOCUMENTS[name])],
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment_of_a_shell(tmp_path),
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


# ---- reference ----


def test_the_reference_has_every_public_name() -> None:
    page = DOCUMENTS["docs/reference/api.md"]
    shown = re.findall(r"^::: hplacer_optimizer\.(\w+)$", page, re.MULTILINE)
    assert sorted(shown) == PUBLIC
    assert "`hp.__version__`" in page


def test_pages_have_what_the_code_says(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    done = run([str(ROOT / "tools" / "write_docs.py"), "--check"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", write_docs.PARTS)
def test_a_part_of_a_page_is_written_anew(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part = write_docs.PARTS[name]
    page = (write_docs.DOCS / part.page).read_text()
    monkeypatch.setitem(write_docs.PARTS, name, dataclasses.replace(part, text=lambda: "new\n"))
    new = write_docs.written(name, page)
    assert new != page
    assert write_docs.written(name, new) == new
    if not part.is_whole:
        before, after = new.split("new\n")
        assert page.startswith(before)
        assert page.endswith(after)


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the commands that have no commands of their own."""
    choices = [action.choices for action in parser._actions if action.nargs == argparse.PARSER]
    if not choices:
        yield parser
    for commands in choices:
        for command in dict(commands or {}).values():
            yield from leaves(command)


def test_the_reference_has_every_option_of_every_command() -> None:
    sections = {
        section.partition("\n")[0]: section for section in site_pages.cli_page().split("\n## ")[1:]
    }
    parsers = {parser.prog: parser for parser in leaves(cli._parser())}
    assert sections.keys() == parsers.keys()
    for name, parser in parsers.items():
        for action in parser._actions:
            for option in action.option_strings:
                if action.help != argparse.SUPPRESS and option not in ("-h", "--help"):
                    assert re.search(rf"`{option}[ `]", sections[name]), f"{name} {option}"


def test_pages_of_the_repository_link_to_pages_of_the_site() -> None:
    linked = "[a](docs/faq.md), [b](CONTRIBUTING.md), ![c](docs/c.png), [d](https://a.org/docs/)"
    assert site_pages.site_links(linked) == (
        "[a](faq.md), [b](contributing.md), ![c](c.png), [d](https://a.org/docs/)"
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
