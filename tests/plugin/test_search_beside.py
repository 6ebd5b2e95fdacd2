"""When a search beside a training begins, and what it costs, with processes that are made up."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from hplacer_optimizer.machines.spare_cores import SpareCores
from hplacer_optimizer.measuring.running_trial import TrialBudget, TrialRules
from hplacer_optimizer.options import Options
from hplacer_optimizer.plugin.trials import search_beside
from hplacer_optimizer.plugin.trials.search_beside import SearchBeside
from hplacer_optimizer.pretraining.background import SearchEffort

STEP = SimpleNamespace(num_ops=1_000, label="function train_step")


@dataclass
class Host:
    """A host with so many idle cores, whose clock every wait moves."""

    idle: float = 0.0
    used_s: float = 0.0  # by a search, each second
    lasts_s: float = 1.0  # how long a search lasts
    now_s: float = 0.0
    begun_s: float = math.inf
    efforts: list[SearchEffort] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)
    ends_s: float = math.inf  # when the training ends
    is_ended: bool = False

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        return self.now_s >= self.ends_s

    is_set = lambda self: self.now_s >= self.ends_s  # noqa: E731

    @property
    def is_over(self) -> bool:
        return self.is_ended or self.now_s - self.begun_s >= self.lasts_s

    @property
    def processor_s(self) -> float:
        return self.used_s * (self.now_s - self.begun_s)

    process_id, log = 7, "search.log"

    def kill(self, process_id: int, number: int) -> None:
        assert process_id == 7
        self.signals.append(number)
        self.is_ended = True

    @contextlib.contextmanager
    def beside(self, *arguments: Any) -> Iterator[Host]:
        self.efforts.append(arguments[-1])
        self.begun_s, self.is_ended = self.now_s, False
        yield self


def search(
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_virtual: bool = False,
    rules: TrialRules | None = None,
    step: Any = STEP,
    **options: Any,
) -> tuple[str | None, TrialBudget]:
    monkeypatch.setattr(search_beside.background, "beside", host.beside)
    monkeypatch.setattr(search_beside.time, "monotonic", lambda: host.now_s)
    monkeypatch.setattr(search_beside.os, "kill", host.kill)
    spare: Any = lambda: SimpleNamespace(look=lambda: host.idle)  # noqa: E731
    monkeypatch.setattr(search_beside, "SpareCores", spare)
    budget = TrialBudget(0.0, rules)
    stops: Any = host
    beside = SearchBeside(budget, lambda: host.now_s, is_virtual=is_virtual, stops=stops)
    store: Any = None
    machine: Any = None
    log = beside.run(step, machine, Options(**options), store, lambda: None)
    return log, budget


def test_idle_cores_are_used_at_once_and_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(idle=12.0, used_s=1.0)
    log, budget = search(host, monkeypatch)
    assert (log, budget.spent_s) == ("search.log", 0.0)
    (effort,) = host.efforts
    assert host.begun_s <= 1.0
    assert (effort.gives_way, effort.threads, effort.seconds) == (True, 6, 30.0)


def test_on_busy_cores_a_search_begins_when_it_may_cost_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host(idle=0.2, used_s=0.5)
    log, budget = search(host, monkeypatch)
    assert log == "search.log"
    (effort,) = host.efforts
    assert (effort.gives_way, effort.threads) == (False, 1)
    assert effort.seconds == 0.5
    assert 50 / 1.1 < host.begun_s < 50 * 1.1  # a second, of which 2% of the run are 50 s
    assert budget.spent_s == pytest.approx(0.15 + 0.5 * 0.8, abs=0.11)
    assert budget.spent_s <= budget.allowed_s(host.now_s)


def test_a_larger_step_has_a_longer_search_within_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = SimpleNamespace(num_ops=50_000, label="large")
    host, least = Host(), Host()
    search(host, monkeypatch, step=step)
    search(least, monkeypatch, step=step, budget_s=1.0)
    assert host.efforts[0].seconds == pytest.approx(5.4)
    assert least.efforts[0].seconds == 1.0
    assert least.begun_s < host.begun_s


def test_what_costs_more_than_it_may_is_ended_and_keeps_its_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host(used_s=1.0, lasts_s=1e6)
    log, budget = search(host, monkeypatch)
    assert (log, host.signals) == ("search.log", [signal.SIGTERM])
    assert budget.spent_s < budget.allowed_s(host.now_s) + 0.25


def test_a_search_that_gets_no_idle_core_begins_again_as_on_busy_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host(idle=1.0, used_s=0.01, lasts_s=1e6)

    def kill(process_id: int, number: int) -> None:
        Host.kill(host, process_id, number)
        host.lasts_s = 1.0

    host.kill = kill  # type: ignore[method-assign]
    log, _ = search(host, monkeypatch)
    assert (log, host.signals) == ("search.log", [signal.SIGKILL])
    assert [effort.gives_way for effort in host.efforts] == [True, False]


def test_virtual_time_is_not_lost_by_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(used_s=1.0)
    _, budget = search(host, monkeypatch, is_virtual=True)
    assert host.begun_s == budget.spent_s == 0.0


def test_nothing_begins_that_never_may_or_after_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert search(Host(), monkeypatch, rules=TrialRules(most_s=0.5))[0] is None
    ended = Host(ends_s=10.0)
    assert search(ended, monkeypatch)[0] is None
    assert ended.efforts == []


def test_the_kernel_counts_what_is_idle() -> None:
    """A loop takes a core away, as far as others leave any."""
    own = os.sched_getaffinity(0)
    spare_cores = SpareCores()
    assert os.sched_getaffinity(0) == own
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        threading.Event().wait(0.6)
        busy = spare_cores.look()
        process.kill()
    cores = len(os.sched_getaffinity(0))
    assert 0.0 <= busy <= cores - 0.2
