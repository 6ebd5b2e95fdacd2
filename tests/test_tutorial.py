"""The tutorial: its page and its notebook say the same, and what they show can be had."""

from __future__ import annotations

import code
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tutorial_notebook
from tests.processes import ROOT
from tests.test_documentation import environment_of_a_shell

PAGE = ROOT / "docs" / "start" / "tutorial.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
LEAST_GAIN = 1.1
MOST_OTHER_WORK = 0.1  # share of the cores' time; with more, no gain can be measured


def page_blocks() -> Iterator[tuple[str, str]]:
    """The code of the page, each block with its language."""
    return (
        part
        for part in tutorial_notebook.parts(PAGE.read_text())
        if part[0] != tutorial_notebook.TEXT
    )


def notebook_cells() -> Iterator[tuple[str, str]]:
    """The code of the notebook, each cell with its language."""
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        text = "".join(cell["source"])
        is_shell = text.startswith(tutorial_notebook.SHELL_MARK)
        language = tutorial_notebook.SHELL if is_shell else tutorial_notebook.PYTHON
        yield language, text.removeprefix(tutorial_notebook.SHELL_MARK)


def script_of(blocks: Iterator[tuple[str, str]]) -> str:
    """One Python script, which runs shell commands in processes of their own."""
    script = "import subprocess\n"
    for language, text in blocks:
        if language == tutorial_notebook.SHELL:
            arguments = ["bash", "-eux", "-c", text]
            text = f"subprocess.run({arguments!r}, check=True)"
        script += f"{text}\n"
    return script


def test_the_notebook_has_all_code_of_the_page() -> None:
    assert [*notebook_cells()] == [*page_blocks()]


def test_the_python_of_the_page_can_be_pasted_into_a_prompt() -> None:
    """A prompt takes line by line, and an empty line ends a block."""

    class Prompt(code.InteractiveConsole):
        def runcode(self, code: Any) -> None:
            pass

        def showsyntaxerror(self, *arguments: Any, **options: Any) -> None:
            raise AssertionError(self.buffer)

    prompt = Prompt()
    for language, text in page_blocks():
        if language == tutorial_notebook.PYTHON:
            assert not [prompt.push(line) for line in [*text.splitlines(), ""]][-1]


def processor_s() -> tuple[float, float]:
    """Seconds that all cores were busy, and of these what ended children of this process used."""
    fields = Path("/proc/stat").read_text().split()[1:8]
    user, nice, system, _, _, interrupts, soft_interrupts = map(int, fields)
    busy = user + nice + system + interrupts + soft_interrupts
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return busy / os.sysconf("SC_CLK_TCK"), children.ru_utime + children.ru_stime


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [page_blocks, notebook_cells])
def test_a_reader_sees_a_gain(blocks: Any, tmp_path: Path) -> None:
    """Unless other programs need the cores, which is no fault of the tutorial."""
    pytest.importorskip("tensorflow")
    directory = tmp_path / "directory"
    directory.mkdir()
    began, busy_before, own_before = time.monotonic(), *processor_s()
    done = subprocess.run(
        [sys.executable, "-u", "-c", script_of(blocks())],
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment_of_a_shell(tmp_path),
        timeout=600,
    )
    busy, own = processor_s()
    assert done.returncode == 0, done.stdout + done.stderr
    assert (directory / "towers.html").read_text().startswith("<!DOCTYPE html>")
    (gain,) = re.findall(r"^measured: ([\d.]+) times as fast$", done.stdout, re.MULTILINE)
    others_s = (busy - busy_before) - (own - own_before)
    others = others_s / (time.monotonic() - began) / (os.cpu_count() or 1)
    if float(gain) <= LEAST_GAIN and others > MOST_OTHER_WORK:
        pytest.skip(f"other programs used {others:.0%} of the cores; measured: {gain}")
    assert float(gain) > LEAST_GAIN, done.stdout
