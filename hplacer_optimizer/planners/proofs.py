"""Step times that a planner proved on its way: no feasible placement of the problem beats them.

    with collect_proofs() as proofs:
        placement = planner(problem, ...)      # calls prove(41_200_000, "...")

Like notes they travel beside the placement. A proof that nobody collects is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from hplacer_optimizer._engine import Problem, lower_bound


@dataclass(frozen=True)
class Proof:
    """A lower bound; `term` names what binds, as `LowerBound.term`."""

    ns: int
    term: str


@dataclass(frozen=True, kw_only=True)
class StepBound:
    """What is known of the best step time of a problem."""

    ns: int | None  # no feasible placement beats it; None: it is proved that none is feasible
    term: str | None
    infeasible_because: list[str]


def strongest(problem: Problem, proofs: Iterable[Proof]) -> StepBound:
    """The engine's lower bound, or a proof that is stronger."""
    bound = lower_bound(problem)
    ns, term = bound.ns, bound.term
    for proof in proofs:
        if ns is not None and proof.ns > ns:
            ns, term = proof.ns, proof.term
    return StepBound(ns=ns, term=term, infeasible_because=list(bound.infeasible_because))


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
