"""Problem files as Python dictionaries, for whom makes and compare them."""

from __future__ import annotations

import io
import json
from typing import Any

from hplacer_optimizer import _engine
from hplacer_optimizer.problem.problem_file import Problem

__all__ = ["problem_from_dict", "problem_to_dict"]


def problem_from_dict(document: object) -> Problem:
    return _engine.read_problem(io.BytesIO(json.dumps(document).encode()))


def problem_to_dict(problem: Problem) -> dict[str, Any]:
    """The canonical document: defaults left out, edges sorted and distinct."""
    file = io.BytesIO()
    _engine.write_problem(problem, file)
    document: dict[str, Any] = json.loads(file.getvalue())
    return document
