from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from numpy.typing import NDArray

import hplacer_optimizer as hp
from tests.documents import problem_from_dict
from tests.random_problems import problems


def every_placement(problem: hp.Problem) -> NDArray[np.int32]:
    """All placements, [m ** n, n]."""
    rows = list(itertools.product(range(problem.num_devices), repeat=problem.num_ops))
    return np.array(rows, np.int32).reshape(len(rows), problem.num_ops)


def best_makespan_ns(problem: hp.Problem) -> int | None:
    """Of all feasible placements; None if there is none."""
    makespans, feasible, _ = hp.simulate_batch(problem, every_placement(problem))
    return int(makespans[feasible].min()) if feasible.any() else None


def assert_bounds(document: dict[str, Any]) -> None:
    problem = problem_from_dict(document)
    bound = hp.lower_bound(problem)
    best = best_makespan_ns(problem)
    if bound.ns is None:
        assert bound.infeasible_because
        assert best is None
    else:
        assert not bound.infeasible_because
        assert bound.ns == max(bound.terms.values()) == bound.terms[bound.term or ""]
        assert best is None or bound.ns <= best


@settings(max_examples=600, deadline=None)
@given(problems(max_ops=5))
def test_no_feasible_placement_beats_the_bound(document: dict[str, Any]) -> None:
    assert_bounds(document)
