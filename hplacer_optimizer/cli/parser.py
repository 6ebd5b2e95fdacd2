"""The parser of every command: one line per error, which suggests what was meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from hplacer_optimizer.support.keywords import close_name, unknown_name

ADVANCED = "advanced options"


class Parser(argparse.ArgumentParser):
    """Options are written out, since an abbreviation of today may be ambiguous tomorrow."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **keywords})
        # "-5s" is a value, whose type tells what is wrong with it, and not an option.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def parse_known_args(  # type: ignore[override]  # the overloads of typeshed are narrower
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """The same, but what is not known ends the program here, where the options are known."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._say_unknown(unknown[0]))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Without the usage, which is long: the help has it."""
        self.exit(2, f"{self.prog}: error: {message}\nsee: {self.prog} --help\n")

    def _say_unknown(self, argument: str) -> str:
        name = argument.partition("=")[0]
        if not name.startswith("-"):
            return f"{argument!r} is one argument too many"
        close = close_name(name, self._option_string_actions)
        return f"unknown option {name!r}" + (f"; did you mean {close!r}?" if close else "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = str(action.metavar or "value").lower()
            raise argparse.ArgumentError(action, str(unknown_name(what, value, action.choices)))

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if not arg_string and action.nargs != argparse.REMAINDER:
            raise argparse.ArgumentError(action, "must not be empty")
        return super()._get_value(action, arg_string)


def advanced(parser: Any) -> Any:
    """The group of the options that few need; of a group, itself."""
    if not isinstance(parser, argparse.ArgumentParser):
        return parser
    groups: Iterable[Any] = parser._action_groups
    found = next((group for group in groups if group.title == ADVANCED), None)
    return found or parser.add_argument_group(ADVANCED)
