"""Misspelt keywords."""

from __future__ import annotations

import inspect

import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.support.keywords import checks_keywords


def plain(first: int, *, batch_size: int = 1, signature: str | None = None) -> tuple[int, int]:
    """Returns two of its arguments."""
    return first, batch_size


checked = checks_keywords(plain)


def test_a_call_goes_through() -> None:
    assert checked(3) == (3, 1)
    assert checked(first=3, batch_size=2) == (3, 2)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        checked(batch_size=2)


@pytest.mark.parametrize(
    ("name", "hint"), [("batchsize", "did you mean 'batch_size'? "), ("zzz", "")]
)
def test_an_unknown_keyword_gets_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(OptionError) as caught:
        checked(3, **{name: 4})
    assert str(caught.value) == (
        f"unknown keyword of plain() '{name}'; {hint}valid are first, batch_size, signature"
    )


def test_the_signature_stays() -> None:
    assert inspect.signature(checked) == inspect.signature(plain)
    assert (checked.__name__, checked.__doc__) == ("plain", plain.__doc__)


@pytest.mark.parametrize("name", ["learn", "load_problem", "measure", "plan", "plan_model"])
def test_public_functions_check_their_keywords(name: str) -> None:
    function = getattr(hp, name)
    last = list(inspect.signature(function).parameters)[-1]
    with pytest.raises(OptionError, match=f"keyword of {name}.*did you mean '{last}'"):
        function(**{f"{last}s": None})
