"""What single changes of a machine would do to a step: simulated, not estimated.

A change gives another Problem, on which the placement is simulated again. More devices or more
memory help only who uses them, so a local search goes on from the placement there. It does so on
the machine as it is, too, for as long: what searching alone gains is no reason to buy anything. In
the end each placement that was found is tried on every machine that has its devices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import InfeasibleError
from hplacer_optimizer.planners import Budget, local_search
from hplacer_optimizer.planners.devices import accelerators, candidate_mask
from hplacer_optimizer.planners.host_offload import accelerators_first
from hplacer_optimizer.problem.simulator import simulate_batch
from hplacer_optimizer.support.quantities import BYTE_RATE

__all__ = ["UNCHANGED", "WhatIf", "changes", "default_seconds", "what_ifs"]

_Int32 = NDArray[np.int32]
_Int64 = NDArray[np.int64]

UNCHANGED = "as it is"
_SECONDS, _OPS, _MOST_SECONDS = 8.0, 2_000, 60.0
_MAX = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """Step times on a changed machine; None where the placement is infeasible."""

    change: str
    same_placement_ns: int | None
    placed_again_ns: int | None

    @property
    def best_ns(self) -> int | None:
        """The smaller one."""
        times = [t for t in (self.same_placement_ns, self.placed_again_ns) if t is not None]
        return min(times, default=None)


def default_seconds(problem: Problem) -> float:
    """For all searches together: 8 s, more above 2,000 ops, at most a minute."""
    return min(_SECONDS * max(1.0, problem.num_ops / _OPS), _MOST_SECONDS)


def what_ifs(
    problem: Problem,
    placement: _Int32,
    *,
    seconds: float | None = None,
    seed: int = 0,
    on_start: Callable[[str], None] | None = None,
) -> list[WhatIf]:
    """The machine as it is, and every single change of it.

    Args:
        problem: the graph and the machine.
        placement: int32[n], one device index per op.
        seconds: for all searches together; None: `default_seconds`.
        seed: of the searches.
        on_start: is told which machine comes next.
    """
    problem = _searched(problem, placement)
    machines = [(UNCHANGED, problem), *changes(problem)]
    budget = Budget(
        seconds=(seconds or default_seconds(problem)) / (1 + len(machines)),
        patience=local_search.patience(problem.num_ops),
    )

    def search(machine: Problem, starts: Sequence[_Int32]) -> _Int32:
        try:
            return local_search.search(
                machine, starts, budget=budget, seed=seed, on_progress=None
            ).placement
        except InfeasibleError:
            return placement

    starts = [placement, search(problem, [placement])]
    found = []
    for change, machine in machines:
        if on_start is not None:
            on_start(change)
        found.append(search(machine, starts))
    common = [row for row in found if row.max(initial=0) < problem.num_devices]
    return [
        _tried(change, machine, np.array([*starts, *common, own]))
        for (change, machine), own in zip(machines, found, strict=True)
    ]


def _searched(problem: Problem, placement: _Int32) -> Problem:
    """As a search gets it: without hosts for accelerators' ops, unless the placement has these."""
    try:
        offered = accelerators_first(problem)
    except InfeasibleError:
        return problem
    is_offered = candidate_mask(offered)[problem.units, placement]
    return offered if is_offered.all() else problem


def _tried(change: str, machine: Problem, placements: _Int32) -> WhatIf:
    """The first of the placements is the one to be explained."""
    step_ns, feasible, _ = simulate_batch(machine, placements)
    fits = [int(ns) for ns, fit in zip(step_ns, feasible, strict=True) if fit]
    return WhatIf(
        change=change,
        same_placement_ns=int(step_ns[0]) if feasible[0] else None,
        placed_again_ns=min(fits, default=None),
    )


def changes(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Every single change as a sentence and the problem that it makes.

    Devices keep their indices. A further device comes last; it is like the last one of its kind,
    may run what all devices of that kind may, and has links like its.
    """
    for name, links in _link_classes(problem).items():
        rates = problem.link_bytes_per_s.copy()
        rates[links] = np.minimum(rates[links], _MAX // 2) * 2
        yield f"twice the bandwidth of {name}", problem.replace(link_bytes_per_s=rates)
        latency_ns = problem.link_latency_ns.copy()
        latency_ns[links] //= 2
        yield f"half the latency of {name}", problem.replace(link_latency_ns=latency_ns)
    for kind in np.unique(problem.device_kind).tolist():
        name = problem.device_kinds[kind]
        cost_ns = problem.cost_ns.copy()
        cost_ns[:, kind] = np.where(cost_ns[:, kind] < 0, -1, (cost_ns[:, kind] + 1) // 2)
        yield f"{name} twice as fast", problem.replace(cost_ns=cost_ns)
        memory = problem.device_memory_bytes.copy()
        mine = problem.device_kind == kind
        memory[mine] = np.minimum(memory[mine], _MAX // 2) * 2
        yield f"twice the memory of {name}", problem.replace(device_memory_bytes=memory)
    kinds = problem.device_kind[accelerators(problem)]
    for kind in np.unique(kinds).tolist():
        yield f"one more {problem.device_kinds[kind]}", _with_one_more(problem, kind)


def _link_classes(problem: Problem) -> dict[str, list[int]]:
    """Links by the kinds of their ends and their rate to two digits."""
    classes: dict[str, list[int]] = {}
    for link, rate in enumerate(problem.link_bytes_per_s.tolist()):
        ends = (problem.link_src[link], problem.link_dst[link])
        kinds = sorted(problem.device_kinds[problem.device_kind[end]] for end in ends)
        rounded = BYTE_RATE.format(int(float(f"{rate:.1e}")))
        name = f"the links between {kinds[0]} and {kinds[1]} at {rounded}"
        classes.setdefault(name, []).append(link)
    return classes


# ---- one more device ----


def _with_one_more(problem: Problem, kind: int) -> Problem:
    of_kind = np.flatnonzero(problem.device_kind == kind)
    twin = int(of_kind[-1])
    names = problem.device_names
    links = _TwinLinks(problem, twin, _next_name(names, names[twin]))
    links.copy_those_of_the_twin()
    links.connect_with_the_twin(of_kind)
    ptr, allowed = _allowed(problem, of_kind)
    return problem.replace(
        device_names=[*names, links.name],
        device_kind=np.append(problem.device_kind, np.int32(kind)),
        device_memory_bytes=np.append(
            problem.device_memory_bytes, problem.device_memory_bytes[twin]
        ),
        device_slots=np.append(problem.device_slots, problem.device_slots[twin]),
        device_cores=[*problem.device_cores, ""],  # it comes with its own
        device_start_ns=np.append(problem.device_start_ns, problem.device_start_ns[twin]),
        device_turn_ns=np.append(problem.device_turn_ns, problem.device_turn_ns[twin]),
        device_cold_ns=np.append(problem.device_cold_ns, problem.device_cold_ns[twin]),
        device_launch_ns=np.append(problem.device_launch_ns, problem.device_launch_ns[twin]),
        link_src=np.array(links.src, np.int32),
        link_dst=np.array(links.dst, np.int32),
        link_channel=links.channel,
        link_latency_ns=problem.link_latency_ns[links.like],
        link_bytes_per_s=problem.link_bytes_per_s[links.like],
        link_send_ns=problem.link_send_ns[links.like],
        link_send_bytes_per_s=problem.link_send_bytes_per_s[links.like],
        link_receive_ns=problem.link_receive_ns[links.like],
        link_receive_bytes_per_s=problem.link_receive_bytes_per_s[links.like],
        allowed_ptr=ptr,
        allowed_device=allowed,
    )


def _next_name(names: list[str], name: str) -> str:
    """The first of "/device:GPU:1", "/device:GPU:2", ... that no device has."""
    stem = re.sub(r"\d+$", "", name)
    return next(f"{stem}{i}" for i in range(len(names) + 1) if f"{stem}{i}" not in names)


def _allowed(problem: Problem, of_kind: _Int64) -> tuple[_Int64, _Int32]:
    """The devices that each op is allowed on; the new one where all of its kind are."""
    new = problem.num_devices
    ptr, allowed = problem.allowed_ptr, problem.allowed_device
    op = np.repeat(np.arange(problem.num_ops), np.diff(ptr))
    count = np.bincount(op[np.isin(allowed, of_kind)], minlength=problem.num_ops)
    gets_it = np.flatnonzero(count == len(of_kind))
    ops = np.concatenate([op, gets_it])
    devices = np.concatenate([allowed, np.full(len(gets_it), new)]).astype(np.int32)
    order = np.argsort(ops, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(ops, minlength=problem.num_ops))])
    return ptr.astype(np.int64), devices[order]


class _TwinLinks:
    """The links of a machine with one more device."""

    def __init__(self, problem: Problem, twin: int, name: str) -> None:
        self.name = name
        self._twin, self._new = twin, problem.num_devices
        self.src, self.dst = problem.link_src.tolist(), problem.link_dst.tolist()
        self.channel = problem.link_channel
        # The link of the problem whose times each link has; its own, of the first L ones.
        self.like = list(range(len(self.src)))
        self._link = {ends: i for i, ends in enumerate(zip(self.src, self.dst, strict=True))}
        self._ends: dict[str, set[tuple[int, int]]] = {}
        for ends, i in self._link.items():
            self._ends.setdefault(self.channel[i], set()).add(ends)

    def copy_those_of_the_twin(self) -> None:
        for (src, dst), link in self._link.items():
            if src == self._twin:
                self._add(self._new, dst, link, self._own_channel(self.channel[link]))
            elif dst == self._twin:
                self._add(src, self._new, link, self._own_channel(self.channel[link]))

    def connect_with_the_twin(self, of_kind: _Int64) -> None:
        """As the twin and another of its kind are, or any other device where it is the only one."""
        peers = [*of_kind.tolist(), *range(self._new)]
        for peer in peers:
            out, back = self._link.get((self._twin, peer)), self._link.get((peer, self._twin))
            if out is not None and back is not None:
                break
        else:
            return
        if self._is_of_a_pair(self.channel[out]):
            between = f"{{}} between {self._twin} and {self._new}"
            self._add(self._twin, self._new, out, between.format(self.channel[out]))
            self._add(self._new, self._twin, back, between.format(self.channel[back]))
        else:
            self._add(self._twin, self._new, out, self.channel[out])
            self._add(self._new, self._twin, out, self._own_channel(self.channel[out]))

    def _own_channel(self, channel: str) -> str:
        """A channel that only the twin's links use is not shared with the new device."""
        is_twins = all(self._twin in ends for ends in self._ends[channel])
        return f"{channel} of {self.name}" if is_twins else channel

    def _is_of_a_pair(self, channel: str) -> bool:
        return len({frozenset(ends) for ends in self._ends[channel]}) == 1

    def _add(self, src: int, dst: int, like: int, channel: str) -> None:
        self.src.append(src)
        self.dst.append(dst)
        self.channel.append(channel)
        self.like.append(like)
