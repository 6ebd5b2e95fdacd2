"""Docstrings as Griffe reads them, for the reference of Python: an extension (mkdocs.yml).

Docstrings of this package have one example each, under `Example:` or, where it goes on from that of
another name, under "Example, after that of `NAME`:". Griffe knows `Examples:` only. The signature
of a native function is the first line of its docstring, and nowhere else.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^Example(?:, after that of `(?P<before>\w+)`)?:$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Renames the heading of each example, and gives native functions their parameters."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every object that Griffe has read."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(_renamed, obj.docstring.value)

    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        """Called for every function, after `on_instance`."""
        text = func.docstring.value if func.docstring else ""
        signature, _separator, rest = text.partition("\n\n")
        if func.docstring and signature.startswith(f"{func.name}("):
            func.docstring.value = rest
            func.parameters = _parameters(signature)


def _renamed(heading: re.Match[str]) -> str:
    before = heading["before"]
    return f"Examples: Example, after that of {before}:" if before else "Examples: Example:"


def _parameters(signature: str) -> griffe.Parameters:
    """Of `NAME(parameter: module.Type) -> module.Type`; types without their module."""
    (function,) = ast.parse(f"def {signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    kind = griffe.ParameterKind.positional_or_keyword
    return griffe.Parameters(
        *(
            griffe.Parameter(
                argument.arg,
                annotation=ast.unparse(argument.annotation).rpartition(".")[2],
                kind=kind,
            )
            for argument in function.args.args
            if argument.annotation
        )
    )
