"""What a trial measured before its training ended: the next one goes on from there."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from hplacer_optimizer.measuring.running_trial import Observations
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.training_starts import placement_id
from hplacer_optimizer.plans.verdict import Hardware

FORMAT = "hplacer-trial/1"
_MOST = 1_000  # observations


@dataclass(frozen=True, kw_only=True)
class UnfinishedTrial:
    """Of one plan.

    Attributes:
        plan: its `placement_id`.
        hardware: where it was measured; elsewhere it says nothing.
        observations: what was measured.
    """

    plan: str
    hardware: Hardware
    observations: Observations

    @classmethod
    def of(cls, plan: Plan, observations: Observations) -> UnfinishedTrial:
        """Of what was just measured here."""
        return cls(plan=placement_id(plan), hardware=Hardware.here(), observations=observations)

    def is_of(self, plan: Plan) -> bool:
        """Whether it says something of this plan here."""
        return self.plan == placement_id(plan) and self.hardware.is_same(Hardware.here())

    def to_bytes(self) -> bytes:
        """The content of its file."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> UnfinishedTrial | None:
        """Of such a file; None of one that holds something else, since it can be measured again."""
        try:
            document: Any = json.loads(data)
            observed = document["observations"]
            logarithms = tuple(float(one) for one in observed["logarithms"])
            if document["format"] != FORMAT or not all(map(math.isfinite, logarithms)):
                return None
            return cls(
                plan=str(document["plan"]),
                hardware=Hardware(**document["hardware"]),
                observations=Observations(
                    logarithms=logarithms[-_MOST:],
                    plan_s=float(observed["plan_s"]),
                    baseline_s=float(observed["baseline_s"]),
                    steps=int(observed["steps"]),
                ),
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
