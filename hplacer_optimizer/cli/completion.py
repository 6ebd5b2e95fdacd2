"""`hplacer completion`: what a shell needs to complete the commands and options of `hplacer`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from hplacer_optimizer.cli.arguments import OK, add_command
from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.machines import machine_names
from hplacer_optimizer.planners import PLANNERS

SHELLS = ("bash", "zsh", "fish")
_FILES = ("FILE", "GRAPH", "PLAN", "LOG", "A", "B", "FROM")
_DIRECTORIES = ("DIR", "TO")
_EXAMPLES = """\
examples:
  hplacer completion bash > ~/.local/share/bash-completion/completions/hplacer
  hplacer completion zsh > ~/.zfunc/_hplacer          (with fpath+=~/.zfunc before compinit)
  hplacer completion fish > ~/.config/fish/completions/hplacer.fish
"""


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    text = "print what a shell needs to complete commands and options"
    parser = add_command(commands, "completion", _completion, text, _EXAMPLES)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def _completion(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise HPlacerError("completion needs the library shtab: pip install shtab") from None

    for action in _actions(options.whole):
        if action.dest == "planner":
            action.choices = [name for name, one in PLANNERS.items() if not one.for_studies]
        elif action.metavar == "MACHINE":
            action.choices = machine_names()
        elif action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _DIRECTORIES:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(options.whole, options.shell))
    return OK


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of all commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
