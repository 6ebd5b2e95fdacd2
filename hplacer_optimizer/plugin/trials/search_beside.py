"""The search for a plan beside a training: when it begins, and what it costs.

    idle cores    it begins at once, at the lowest priority, and takes what nobody uses
    busy cores    a short one, on one thread: once the run has lasted so long that it may cost that
    virtual time  is not lost by a search

At the lowest priority a search on busy cores would never end. So it runs there as any process does,
for about as long as was set aside for it. It costs a training no more than the processor time that
it takes, which is charged to the budget that trials have, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from hplacer_optimizer.log import LOGGER
from hplacer_optimizer.machines import Machine
from hplacer_optimizer.machines.spare_cores import SpareCores
from hplacer_optimizer.measuring.running_trial import TrialBudget
from hplacer_optimizer.options import Options
from hplacer_optimizer.planners import local_search
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.pretraining import background
from hplacer_optimizer.pretraining.background import Detached, SearchEffort

_POLL_S, _LOOK_S = 0.2, 1.0
_LEAST_SPARE = 0.5  # of a core, that counts as idle
_PATIENT = 3.0  # times the budget, for a search that takes what nobody uses
_STARVED_S, _STARVED = 5.0, 0.1  # after so long, with less than such a share of a core
_MARGIN_S = 60.0  # beyond what it has: loading, the last step, storing
# Of a short search: seconds; small graphs have no better placement after that.
_SHORT_S, _SHORT_S_PER_OP = 0.4, 1e-4
# Besides: interpreters that start, the step that is written and read, the plan that is stored.
_AROUND_S, _AROUND_S_PER_OP = 0.4, 1e-4
_START_S = 0.15  # processor time of what starts it


class SearchBeside:
    """Searches of this process, one at a time, on a thread that is theirs.

    Args:
        budget: of all that a run may cost.
        now: seconds of the run's clock.
        is_virtual: whether that is an emulated one.
        stops: set when the process ends.
    """

    def __init__(
        self,
        budget: TrialBudget,
        now: Callable[[], float],
        *,
        is_virtual: bool,
        stops: threading.Event,
    ) -> None:
        self._budget, self._now, self._is_virtual, self._stops = budget, now, is_virtual, stops

    def run(
        self,
        captured: Any,
        machine: Machine,
        options: Options,
        store: PlanStore,
        on_start: Callable[[], None],
    ) -> str | None:
        """Returns the path of its log once it has ended; None: it did not begin, or the process
        ends.

        Raises what `background.beside` raises.
        """
        looks = True
        while not self._stops.is_set():
            effort = self._effort(captured, options.budget_s, looks=looks)
            if effort is None:
                return None
            with background.beside(captured, machine, options, store, effort) as search:
                on_start()
                is_over = self._watch(search, effort)
            if self._stops.is_set():
                return None
            if is_over:
                return search.log
            looks = False  # it was starved: what looked idle is not
        return None

    def _effort(self, captured: Any, budget_s: float, *, looks: bool) -> SearchEffort | None:
        """Waits until a search may begin; None: it will not."""
        num_ops = captured.num_ops
        patience = local_search.patience(num_ops)
        if self._is_virtual:
            return SearchEffort(seconds=budget_s, patience=patience, threads=0, gives_way=False)
        seconds = min(budget_s, _SHORT_S + _SHORT_S_PER_OP * num_ops)
        cost_s = seconds + _AROUND_S + _AROUND_S_PER_OP * num_ops
        spare_cores, waits = SpareCores(), False
        while not self._stops.wait(_LOOK_S):
            spare = spare_cores.look()
            if looks and spare >= _LEAST_SPARE:
                # Half of them: two may be threads of one core.
                threads = max(1, int(spare / 2))
                return SearchEffort(
                    seconds=_PATIENT * budget_s, patience=patience, threads=threads, gives_way=True
                )
            if self._budget.is_exhausted_by(cost_s):
                LOGGER.debug("no search for %s: trials have cost what they may", captured.label)
                return None
            if self._budget.allows(self._now(), cost_s):
                return SearchEffort(seconds=seconds, patience=patience, threads=1, gives_way=False)
            if not waits:
                waits = True
                LOGGER.debug(
                    "no core is idle: the search for %s begins once it may cost %.1f s",
                    captured.label,
                    cost_s,
                )
        return None

    def _watch(self, search: Detached, effort: SearchEffort) -> bool:
        """Until the search is over; False: it gets no processor time, and was killed."""
        began_s, charged_s, is_told = time.monotonic(), 0.0, False
        is_charged = not (effort.gives_way or self._is_virtual)
        while not self._stops.wait(_POLL_S):
            lasted_s = time.monotonic() - began_s
            used_s = _START_S + min(search.processor_s, lasted_s)
            if search.is_over:  # what it has used is not known any more
                return True
            if is_charged:
                self._budget.charge(used_s - charged_s)
                charged_s = max(charged_s, used_s)
            if effort.gives_way and lasted_s > _STARVED_S and used_s < _STARVED * lasted_s:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(search.process_id, signal.SIGKILL)
                return False
            is_too_much = is_charged and not self._budget.allows(self._now(), 0.0)
            if (is_too_much or lasted_s > effort.seconds + _MARGIN_S) and not is_told:
                is_told = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(search.process_id, signal.SIGTERM)  # it keeps its best plan
        return True
