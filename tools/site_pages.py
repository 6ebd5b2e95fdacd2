"""The pages of the documentation site that are made of other files: a hook of MkDocs (mkdocs.yml).

The home page is README.md, and `reference/cli.md` is written from the parsers of `hplacer`. Links
of files in the root of the repository are those of the site afterwards.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROOT_FILES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
CLI_PAGE = "reference/cli.md"


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages, when MkDocs has listed those of docs/."""
    from mkdocs.structure.files import File

    for source, page in ROOT_FILES.items():
        text = site_links((ROOT / source).read_text())
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, CLI_PAGE, content=cli_page()))
    return files


def site_links(markdown: str) -> str:
    """A file of the repository's root with its links as they are on the site."""
    markdown = re.sub(r"\]\(docs/", "](", markdown)
    return re.sub(
        rf"\]\(({'|'.join(map(re.escape, ROOT_FILES))})",
        lambda link: f"]({ROOT_FILES[link[1]]}",
        markdown,
    )


# ---- the command line ----


def cli_page() -> str:
    """Markdown: a section for each command with its usage, arguments and options."""
    from hplacer_optimizer import cli

    parser = cli._parser()
    text = (
        "# Command line\n\n"
        "Every command explains itself with `--help`. This page is made of the same texts.\n\n"
        "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 after Ctrl-C. "
        "The reason of a failure is one line on stderr.\n"
    )
    for name, command in commands(parser):
        text += f"\n## {name}\n\n{_section(command)}"
    return text


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands that can be run, by their full names, in the order of `--help`."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield parser.prog, parser
    for group in groups:
        for command in group.choices.values():
            yield from commands(command)


def _section(command: argparse.ArgumentParser) -> str:
    rows = "".join(
        f"| {_cell(_spelling(command, action))} | {_cell(_help(command, action))} |\n"
        for action in command._actions
        if action.help != argparse.SUPPRESS and "--help" not in action.option_strings
    )
    table = f"| argument | meaning |\n|---|---|\n{rows}\n" if rows else ""
    more = f"```text\n{command.epilog.strip()}\n```\n" if command.epilog else ""
    return f"{command.description or ''}\n\n{table}{more}"


def _spelling(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    value = action.metavar or action.dest.upper()
    value = " ".join(value) if isinstance(value, tuple) else value
    if action.choices and action.metavar is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return f"`{value}`"
    suffix = "" if action.nargs == 0 else f" {value}"
    return ", ".join(f"`{name}{suffix}`" for name in action.option_strings)


def _help(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    values = {"prog": command.prog, **vars(action)}
    return (action.help or "") % values


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
