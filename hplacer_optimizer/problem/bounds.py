"""What is known of the best step time of a problem: the engine's lower bound, and proofs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hplacer_optimizer._engine import Problem, lower_bound

__all__ = ["Proof", "StepBound", "gap", "strongest"]


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


def gap(step_time_ns: int | None, lower_bound_ns: int | None) -> float | None:
    """By what share of the bound the step is longer; None where one of them is not known."""
    if step_time_ns is None or lower_bound_ns is None:
        return None
    return step_time_ns / max(lower_bound_ns, 1) - 1 if step_time_ns else 0.0
