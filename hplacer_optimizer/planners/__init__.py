"""The planners by name: `plan(problem, *, budget, seed, on_progress) -> int32[n]`."""

from __future__ import annotations

import importlib
from typing import cast

from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.planners import etf
from hplacer_optimizer.planners.budget import Budget, Planner, ProgressCallback

__all__ = ["PLANNERS", "Budget", "Planner", "ProgressCallback", "get_planner"]

PLANNERS: dict[str, Planner] = {
    "etf": etf.plan,
}


def get_planner(name: str) -> Planner:
    """Returns a planner of the table, or one's own as "package.module:function".

    Raises OptionError, which lists the valid names.
    """
    if name in PLANNERS:
        return PLANNERS[name]
    module_name, colon, function = name.partition(":")
    if not (module_name and colon and function):
        raise OptionError(
            f"planner: unknown name '{name}'; valid are {', '.join(sorted(PLANNERS))} or "
            "'package.module:function'"
        )
    try:
        planner = getattr(importlib.import_module(module_name), function)
    except (ImportError, AttributeError) as error:
        raise OptionError(
            f"planner: cannot load '{name}': {error}; valid are {', '.join(sorted(PLANNERS))} or "
            "'package.module:function'"
        ) from error
    if not callable(planner):
        raise OptionError(f"planner: '{name}' is not callable")
    return cast(Planner, planner)
