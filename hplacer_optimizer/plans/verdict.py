"""What was measured of a plan beside TensorFlow's own placement, and on which hardware.

A verdict of emulated devices says what their model says. It counts where the devices are emulated
as the same machine, and nowhere else; there no verdict of real devices counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from hplacer_optimizer.machines import host
from hplacer_optimizer.machines.emulated import emulated_machine
from hplacer_optimizer.plans.fields import (
    count,
    list_of,
    matching,
    number,
    optional,
    record,
    text,
)
from hplacer_optimizer.support.formats import format_ns, format_ratio, times_as_fast

if TYPE_CHECKING:
    from hplacer_optimizer.measuring.turns import Turns

FASTER, SLOWER, NO_DIFFERENCE = "faster", "slower", "no difference"

CREATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", re.ASCII)

_check = record(
    {
        "speedup": number,
        "low": number,
        "high": number,
        "plan_ns": count,
        "baseline_ns": count,
        "turns": count,
        "by": text,
        "measured": matching(CREATED, "a UTC time such as 2024-05-01T12:00:00Z"),
        "host": text,
        "models": list_of(text),
        "emulated": optional(text),
        "cores": optional(number),
        "failure": optional(text),
    }
)


_ABSENT = {"emulated": None, "cores": None, "failure": None}  # where they say nothing


def emulated_here() -> str | None:
    """The name of the machine that the devices of this process are emulated as; None: real ones."""
    machine = emulated_machine()
    return machine.name if machine else None


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """What a verdict is of.

    Attributes:
        host: where.
        models: of the processor and the accelerators there.
        emulated: the name of the machine that the devices are emulated as; None: real devices.
        cores: that a process may use there; None: not known.
    """

    host: str
    models: list[str]
    emulated: str | None = None
    cores: float | None = None

    @classmethod
    def here(cls) -> Hardware:
        """That of this process."""
        return cls(
            host=host.name(),
            models=list(host.models()),
            emulated=emulated_here(),
            cores=host.usable_cores(),
        )

    def is_same(self, other: Hardware) -> bool:
        """Whether what was measured on one holds on the other.

        A host of the same models and as many cores is the same, whatever its name: a container has
        another one at each start. Emulated devices are the same on every host.
        """
        if self.emulated is not None or other.emulated is not None:
            return self.emulated == other.emulated
        if self.cores is None or other.cores is None:
            return (self.host, self.models) == (other.host, other.models)
        return (self.models, self.cores) == (other.models, other.cores)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A plan measured beside TensorFlow's own placement.

    Attributes:
        speedup: how many times as many steps a second as under TensorFlow's own placement.
        low, high: the 95% interval of it.
        plan_ns, baseline_ns: median steps under both, ns.
        turns: how often both were measured.
        by: what was run, such as "hplacer try train.py".
        measured: when, ISO 8601 in UTC.
        host: where.
        models: of the processor and the accelerators there.
        emulated: the name of the machine that the devices were emulated as; None: real devices.
        cores: that a process may use there; None: not known, as of older versions.
        failure: the error of a step with the plan, for people; None: none failed.
    """

    speedup: float
    low: float
    high: float
    plan_ns: int
    baseline_ns: int
    turns: int
    by: str
    measured: str
    host: str
    models: list[str]
    emulated: str | None = None
    cores: float | None = None
    failure: str | None = None

    @classmethod
    def now(cls, **fields: Any) -> Verdict:
        """Of what was just measured on this host's devices; the fields up to `by`."""
        measured = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        return cls(**fields, measured=measured, **vars(Hardware.here()))

    @classmethod
    def of_turns(cls, baseline: Turns, planned: Turns, by: str) -> Verdict:
        """Of the steps without and with the plan, at least two turns of each; as `now`."""
        low, high = planned.interval
        return cls.now(
            speedup=planned.speedup,
            low=low,
            high=high,
            plan_ns=round(planned.step_s * 1e9),
            baseline_ns=round(baseline.step_s * 1e9),
            turns=len(planned.logarithms),
            by=by,
        )

    @classmethod
    def checked(cls, value: Any) -> Verdict | None:
        """Of a Verdict, or of what JSON holds of one; raises ValueError."""
        if value is None:
            return None
        found = cls(**_check({**_ABSENT, **_as_mapping(value)}))
        if not found.low <= found.speedup <= found.high:
            raise ValueError("has a speedup outside of its interval")
        return found

    def as_json(self) -> Mapping[str, Any]:
        """What a plan file holds of it: some fields only where they say something."""
        return {key: found for key, found in asdict(self).items() if found is not None}

    def replaces(self, other: Verdict | None) -> bool:
        """Whether it takes the place of another one on the same plan.

        The later one does, but what emulated devices say never replaces what real ones said.
        """
        if other is None:
            return True
        is_real, was_real = self.emulated is None, other.emulated is None
        return self.measured >= other.measured if is_real == was_real else is_real

    @property
    def outcome(self) -> str:
        """FASTER or SLOWER if the interval says so, else NO_DIFFERENCE."""
        if self.high < 1.0 or self.failure is not None:
            return SLOWER
        return FASTER if self.low > 1.0 else NO_DIFFERENCE

    def outcome_on(self, hardware: Hardware) -> str | None:
        """The outcome if that is what was measured; None: elsewhere a verdict is advice."""
        there = Hardware(
            host=self.host, models=self.models, emulated=self.emulated, cores=self.cores
        )
        return self.outcome if there.is_same(hardware) else None

    @property
    def outcome_here(self) -> str | None:
        """The same for the hardware of this process."""
        return self.outcome_on(Hardware.here())

    @property
    def binds(self) -> bool:
        """Whether it counts on the hardware of this process."""
        return self.outcome_here is not None

    def __str__(self) -> str:
        """As "1.42 times as fast as TensorFlow's placement (1.38 to 1.46; 10.1 ms instead of
        14.3 ms)".
        """
        if self.failure is not None:
            return f"a step with the plan failed ({self.failure})"
        low, high = format_ratio(self.low), format_ratio(self.high)
        times = f"{format_ns(self.plan_ns)} instead of {format_ns(self.baseline_ns)}"
        times += f"; emulated {self.emulated}" if self.emulated is not None else ""
        ratio = times_as_fast(self.speedup)
        return f"{ratio} as TensorFlow's placement ({low} to {high}; {times})"

    @property
    def source(self) -> str:
        """Who measured it, and where if that was elsewhere."""
        where = "" if self.binds else f" on {self.host} ({', '.join(self.models) or 'unknown'})"
        if self.emulated is not None:
            where = f" on emulated devices ({self.emulated})"
        return f"by {self.by}{where}, {self.measured}"


def _as_mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Verdict):
        return vars(value)
    return value if isinstance(value, Mapping) else {}
