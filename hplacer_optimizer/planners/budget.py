"""How long a planner may search, and what it tells meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.support.quantities import INT64_MAX


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a search has come.

    Attributes:
        steps: of the planner (evaluations, updates) done so far.
        best_ns: makespan of the best feasible placement so far; None if none was found.
        placements: scored so far.
        mean_ns: mean makespan of what a policy drew last, of what fits; None if nothing does.
        infeasible: share of the last step's placements that are infeasible, 0..1.
        entropy: of the device of a group in nats, 0 where it is certain; None: nothing is drawn.
        measured: placements that were run so far, failures included; None: they are simulated.
        failed: of these.

    Example:
        >>> import hplacer_optimizer as hp
        >>> told = []  # of Progress
        >>> plan = hp.plan("example", "local_search", on_progress=told.append)
        >>> told[-1].best_ns
        438000
    """

    steps: int
    best_ns: int | None
    placements: int = 0
    mean_ns: float | None = None
    infeasible: float = 0.0
    entropy: float | None = None
    measured: int | None = None
    failed: int = 0


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Where a search stops: at whichever limit it meets first.

    Without any limit a planner takes its own default.

    Attributes:
        seconds: of wall-clock time, more than 0; None: no limit.
        steps: of the planner (evaluations, updates), at least 1; None: no limit.
        patience: ends after so many steps without a better placement, at least 1; None: no limit.
        stop: ends the search as soon as somebody sets it, such as a signal handler.

    Raises:
        OptionError: a limit is out of range.

    Example:
        >>> import hplacer_optimizer as hp
        >>> budget = hp.Budget(seconds=60, patience=1_000)
        >>> hp.Budget(steps=0)
        Traceback (most recent call last):
        hplacer_optimizer.errors.OptionError: budget steps: must be an integer of at least 1, got 0
    """

    seconds: float | None = None
    steps: int | None = None
    patience: int | None = None
    stop: threading.Event | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and (
            isinstance(self.seconds, bool)
            or not isinstance(self.seconds, (int, float))
            or not self.seconds > 0
        ):
            raise OptionError(f"budget seconds: must be more than 0, got {self.seconds!r}")
        for name in ("steps", "patience"):
            count = getattr(self, name)
            if count is not None and (type(count) is not int or count < 1):
                raise OptionError(f"budget {name}: must be an integer of at least 1, got {count!r}")
            if count is not None and count > INT64_MAX:
                raise OptionError(f"budget {name}: must be at most {INT64_MAX}, got {count}")

    @property
    def stopped(self) -> bool:
        """Whether `stop` is set."""
        return self.stop is not None and self.stop.is_set()

    def or_default(self, default: Budget) -> Budget:
        """Itself; `default`, which ends by the same `stop`, if it has no limit at all."""
        is_limited = any(limit is not None for limit in (self.seconds, self.steps, self.patience))
        return self if is_limited else replace(default, stop=self.stop)

    def share(self, share: float) -> Budget:
        """So much of each limit, at least one step; 0 < share <= 1."""
        return replace(
            self,
            seconds=None if self.seconds is None else share * self.seconds,
            steps=None if self.steps is None else max(1, int(share * self.steps)),
            patience=None if self.patience is None else max(1, int(share * self.patience)),
        )

    def left(self, begin_s: float) -> Budget:
        """What is left of it, at least a moment, if it began at that `time.monotonic()`."""
        if self.seconds is None:
            return self
        return replace(self, seconds=max(self.seconds - (time.monotonic() - begin_s), 1e-3))
