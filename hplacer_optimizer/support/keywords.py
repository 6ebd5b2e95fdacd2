"""Names that a caller may have misspelt: the error suggests the closest valid one."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from hplacer_optimizer.errors import OptionError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def unknown_name(what: str, name: object, valid: Iterable[str]) -> OptionError:
    """As "unknown option 'sed'; did you mean 'seed'? valid are planner, seed, budget_s"."""
    valid = list(valid)
    close = close_name(name, valid)
    hint = f"did you mean {close!r}? " if close else ""
    return OptionError(f"unknown {what} {name!r}; {hint}valid are {', '.join(valid)}")


def close_name(name: object, valid: Iterable[str]) -> str | None:
    """The valid name that somebody may have meant."""
    close = difflib.get_close_matches(str(name), list(valid), n=1)
    return close[0] if close else None


def checks_keywords(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A decorator: a call with a keyword that the function does not have raises `unknown_name`.

    Python's own TypeError suggests nothing. The signature stays what it is.
    """
    valid = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name in kwargs:
            if name not in valid:
                raise unknown_name(f"keyword of {function.__name__}()", name, valid)
        return function(*args, **kwargs)

    return checked
