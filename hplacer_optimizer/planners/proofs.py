"""Step times that a planner proved on its way: no feasible placement of the problem beats them.

    with collect_proofs() as proofs:
        placement = planner(problem, ...)      # calls prove(41_200_000, "...")

Like notes they travel beside the placement. A proof that nobody collects is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from hplacer_optimizer.problem.bounds import Proof

_collected: ContextVar[list[Proof] | None] = ContextVar("planner proofs", default=None)


def prove(ns: int, term: str) -> None:
    """Tells a bound to whoever called the planner."""
    proofs = _collected.get()
    if proofs is not None:
        proofs.append(Proof(ns, term))


@contextmanager
def collect_proofs() -> Iterator[list[Proof]]:
    """Collects the proofs of the planners that this thread runs within, in order."""
    proofs: list[Proof] = []
    token = _collected.set(proofs)
    try:
        yield proofs
    finally:
        _collected.reset(token)
