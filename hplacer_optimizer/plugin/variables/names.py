"""By what a variable is known: the same in planning, in creation and afterwards.

A Keras variable is known by its path ("dense/kernel"), any other by its own name ("w", without name
scopes: those differ between graphs and eager execution), below the Keras layer that makes it. The
second of a name is "w#2": in order of creation.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

_UNNAMED = "Variable"  # as TensorFlow calls it


class KeyMaker:
    """Distinct keys of names, in order of creation."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def __call__(self, name: str) -> str:
        self._seen[name] += 1
        count = self._seen[name]
        return name if count == 1 else f"{name}#{count}"


def name_in_creation(name: str | None, initial_value: object) -> str:
    """The name of the variable that a variable creator is asked for."""
    keras = sys.modules.get("keras")
    if keras is None:
        return name or _UNNAMED
    # Keras hands over a function of its variable; where it creates one later than it named it,
    # nothing else has the path.
    for cell in getattr(initial_value, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # it is empty
            if isinstance(cell.cell_contents, keras.Variable):
                return str(cell.cell_contents.path)
    return "/".join(part for part in (_keras_path(), name or _UNNAMED) if part)


def _keras_path() -> str:
    from keras.src.backend.common.name_scope import current_path

    return str(current_path())


def name_of(variable: Any) -> str:
    """The name of an existing variable."""
    path = getattr(variable, "path", None)
    if isinstance(path, str):
        return path
    return str(variable.name).rpartition("/")[2].partition(":")[0]


def in_order_of_creation(variables: list[Any], value: Callable[[Any], Any]) -> list[Any]:
    """The variables, each once; `value` has the tf.Variable of one, which counts upwards."""
    distinct = {id(value(variable)): variable for variable in variables}.values()
    return sorted(distinct, key=lambda variable: _creation(value(variable)))


def _creation(variable: Any) -> int:
    return int(str(variable._unique_id).rpartition("_")[2])
