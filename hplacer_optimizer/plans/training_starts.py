"""What option `verify` knows of the starts of training scripts, and what follows for a plan.

A start runs with the plan or with TensorFlow's own placement, and its steps are timed. Starts that
ran the same, as far as can be seen, make pairs; the logarithm of a pair's ratio is one observation,
as a turn is for `hplacer try`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hplacer_optimizer.measuring.turns import Turns, is_decided
from hplacer_optimizer.plans.fields import boolean, count, list_of, optional, record, text
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.verdict import Verdict

FORMAT = "hplacer-starts/1"
_MOST_KEPT = 80  # starts of a graph; the oldest ones go first
_MOST_PAIRS = 12  # then the interval is taken as it is


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of a script, for one of its graphs.

    Attributes:
        start: its name, unlike that of all others.
        script: which script it was, and with what arguments.
        plan: `placement_id` of the plan that there was; None: there was none.
        moves: whether this start could choose between the plan and TensorFlow's placement.
        applied: whether the plan took effect.
        step_ns: of a step of the script; None: not timed, or not yet.
        context: what else a step depends on; starts with another one are not compared.
    """

    start: str
    script: str
    plan: str | None
    moves: bool
    applied: bool
    step_ns: int | None = None
    context: str | None = None

    @property
    def step_s(self) -> float:
        """The same in seconds; 0: not timed."""
        return (self.step_ns or 0) / 1e9


_check = record(
    {
        "start": text,
        "script": text,
        "plan": optional(text),
        "moves": boolean,
        "applied": boolean,
        "step_ns": optional(count),
        "context": optional(text),
    }
)


def to_bytes(starts: Sequence[Start]) -> bytes:
    """The content of a file of starts, without the oldest ones beyond the limit."""
    document = {"format": FORMAT, "starts": [asdict(start) for start in starts[-_MOST_KEPT:]]}
    return json.dumps(document, indent=1).encode()


def from_bytes(data: bytes) -> list[Start]:
    """Of such a file; none of one that holds something else, since they can be timed again."""
    try:
        document: Any = json.loads(data)
        if document["format"] != FORMAT:
            return []
        return [Start(**one) for one in list_of(_check)(document["starts"])]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []


def placement_id(plan: Plan) -> str:
    """The same for plans that have the same nodes on the same devices."""
    placed = hashlib.sha256("\n".join(plan.device_names).encode())
    placed.update(plan.node_hashes.tobytes())
    placed.update(plan.node_devices.tobytes())
    return placed.hexdigest()[:16]


def applies_next(starts: Sequence[Start], script: str, plan: str) -> bool:
    """Whether the next start of the script takes the plan: the side that was timed less often."""
    timed = [start for start in starts if start.script == script and start.step_ns is not None]
    with_plan = sum(start.applied and start.plan == plan for start in timed)
    return with_plan <= sum(not start.applied for start in timed)


def verdict(
    starts: Sequence[Start], plan: str, context: str, *, by: Callable[[int], str]
) -> Verdict | None:
    """What the starts of this context say of a plan; None: not enough.

    `by`: names who measured, from the number of pairs.
    """
    same = [start for start in starts if start.context == context and start.step_ns]
    plans = [start.step_s for start in same if start.applied and start.plan == plan]
    baselines = [start.step_s for start in same if not start.applied]
    pairs = min(len(plans), len(baselines))
    plans, baselines = plans[len(plans) - pairs :], baselines[len(baselines) - pairs :]
    logarithms = [math.log(one / other) for one, other in zip(baselines, plans, strict=True)]
    if not (is_decided(logarithms) or pairs >= _MOST_PAIRS):
        return None
    planned = Turns(times_s=plans, logarithms=logarithms)
    return Verdict.of_turns(Turns(times_s=baselines), planned, by(pairs))
