"""What would change the advice: the same ways on the machine with other links or more memory.

Nothing is searched again: a plan is simulated with the placement that was found, so that it may be
better still on the changed machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.inspection.advice.ways import Change, Way, Ways
from hplacer_optimizer.support.formats import format_bytes
from hplacer_optimizer.support.quantities import BYTE_RATE

__all__ = ["Tried", "best", "changed_ways"]

_FACTORS = {"twice": 2.0, "4 times": 4.0, "half": 0.5}
_HARDLY = 1.05
_LIMIT = np.iinfo(np.int64).max // 8


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A changed machine.

    Attributes:
        change: such as "twice the bandwidth of every link (the slowest: 50 GB/s)".
        best: the kind of the best way there; None: nothing fits.
        best_name: its name.
        step_time_ns: of the best way.
    """

    change: str
    best: str | None
    best_name: str
    step_time_ns: int | None


def best(ways: list[Way]) -> Way | None:
    """The one with the shortest step of those that fit, the first of equals."""
    fitting = [way for way in ways if way.feasible]
    return min(fitting, key=lambda way: way.step_time_ns or 0, default=None)


def changed_ways(ways: Ways, now: Way | None) -> list[Tried]:
    """Twice and four times the bandwidth, half of it, twice and half the memory.

    `now` is the best way as things are. It stays the best where it is hardly slower than another.
    """
    return [_tried(text, ways, change, now) for text, change in _changes(ways.step.problem)]


def _tried(text: str, ways: Ways, change: Change, now: Way | None) -> Tried:
    rows = ways.rows(change)
    found = best(rows)
    same = best([way for way in rows if now is not None and way.kind == now.kind])
    if found and same and (same.step_time_ns or 0) <= _HARDLY * (found.step_time_ns or 0):
        found = same
    return Tried(
        change=text,
        best=found.kind if found else None,
        best_name=found.name if found else "",
        step_time_ns=found.step_time_ns if found else None,
    )


def _changes(problem: Problem) -> Iterator[tuple[str, Change]]:
    if len(problem.link_src):
        slowest = int(problem.link_bytes_per_s.min())
        for word, factor in _FACTORS.items():
            rate = BYTE_RATE.format(round(slowest * factor))
            yield f"{word} the bandwidth of every link (the slowest: {rate})", with_links(factor)
    least = int(problem.device_memory_bytes.min())
    for word in ("twice", "half"):
        size = format_bytes(round(least * _FACTORS[word]))
        text = f"{word} the memory of every device (the smallest: {size})"
        yield text, with_memory(_FACTORS[word])


def with_links(factor: float) -> Change:
    """So many times the bandwidth of every link."""

    def change(problem: Problem) -> Problem:
        rates = np.minimum(problem.link_bytes_per_s, _LIMIT) * factor
        return problem.replace(link_bytes_per_s=np.maximum(rates, 1).astype(np.int64))

    return change


def with_memory(factor: float) -> Change:
    """So many times the memory of every device."""

    def change(problem: Problem) -> Problem:
        sizes = np.minimum(problem.device_memory_bytes, _LIMIT) * factor
        return problem.replace(device_memory_bytes=sizes.astype(np.int64))

    return change
