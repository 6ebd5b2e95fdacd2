"""The named parts of a fingerprint: what each stands for, where two differ, and how a lookup that
found nothing stands in a script's log.

    no stored plan for function train_step: graph=09af.., targets=51c2.., ..., format=hplacer-plan/1
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Difference", "Miss", "differences", "miss_line", "read_misses"]

_MISS = re.compile(r"no stored plan for (.+): (\w+=[^,]*(?:, \w+=[^,]*)*)$")

# By part: what it is made of, what to do about a difference.
_MEANING = {
    "graph": (
        "the step's ops: types, dtypes, shapes, other attributes, edges, requested devices",
        "the model or its batch size changed; a new plan is needed",
    ),
    "targets": (
        "which ops the step ends in",
        "name the same targets, or leave the option out both times",
    ),
    "machine": (
        "names, types and order of the session's devices, and which of them may be used",
        "use a machine description with the session's own devices, and the same option `devices`",
    ),
    "constraints": (
        "colocation with ops outside of the step, and allow_soft_placement",
        "use the same allow_soft_placement and the same initialisers",
    ),
    "format": (
        "the versions of TensorFlow and of the fingerprint",
        "plan again with this TensorFlow",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One part of two fingerprints that is not the same; None where a side has no such part."""

    part: str
    wanted: str | None
    found: str | None
    meaning: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.part} ({self.meaning})"


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[Difference]:
    """The parts that differ, in the order of `wanted`."""
    names = [*wanted, *(name for name in found if name not in wanted)]
    return [
        Difference(
            part=name,
            wanted=wanted.get(name),
            found=found.get(name),
            meaning=_MEANING.get(name, ("unknown to this version", ""))[0],
            remedy=_MEANING.get(name, ("", "upgrade hplacer-optimizer"))[1],
        )
        for name in names
        if wanted.get(name) != found.get(name)
    ]


@dataclass(frozen=True, kw_only=True)
class Miss:
    """A lookup that found no plan."""

    label: str
    parts: dict[str, str]


def miss_line(label: str, parts: Mapping[str, str]) -> str:
    """What the log says of a miss; `read_misses` reads it."""
    named = ", ".join(f"{name}={value}" for name, value in parts.items())
    return f"no stored plan for {label}: {named}"


def read_misses(lines: Iterable[str]) -> Iterator[Miss]:
    """The misses in a log, whatever stands before them in their lines."""
    for line in lines:
        if match := _MISS.search(line.rstrip()):
            pairs = (pair.partition("=") for pair in match[2].split(", "))
            yield Miss(label=match[1], parts={name: value for name, _, value in pairs})
