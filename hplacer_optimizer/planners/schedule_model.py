"""A step as a constraint program, for CP-SAT: a device per unit and a schedule in any order.

    x[u, d]                unit u is on device d, one of its candidates
    start[i], end[i]       of op i; on its device, and on all of one pool together, at most `slots`
                           ops run at once
    sent[t, d, e]          tensor t goes from d to e, once however many of its readers are there
    send_start[t, e]       not before t's op has ended; one at a time on each channel

It is a relaxation of the simulator. That starts ops and transfers in a fixed order as they become
ready, here any order will do; memory counts persistent bytes and what each op needs while it runs,
not the tensors that live between ops. Problems with work of transfers or with devices that start
late are not for it. So every feasible placement has a schedule here that is as
short as its simulated step, and a bound for the program is one for all placements.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem

__all__ = ["ScheduleModel", "num_intervals"]

_Int32 = NDArray[np.int32]
_NO_ALIAS = -1


def num_intervals(problem: Problem) -> int:
    """The size of the program: ops on devices, tensors from one device to another."""
    m = problem.num_devices
    pairs = len(problem.link_src)
    return problem.num_ops * m + len(np.unique(problem.edges[:, :2], axis=0)) * pairs


class ScheduleModel:
    """The program of a problem; every unit must have a candidate."""

    def __init__(self, problem: Problem, least_ns: int) -> None:
        """`least_ns`: a step time that is proved already."""
        from ortools.sat.python import cp_model

        self.model = cp_model.CpModel()
        self._problem = problem
        self._units = problem.units.tolist()
        kinds = problem.device_kind
        self._cost_ns: list[list[int]] = problem.cost_ns[:, kinds].tolist()  # [n, m]
        self._link = {
            (int(a), int(b)): link
            for link, (a, b) in enumerate(zip(problem.link_src, problem.link_dst, strict=True))
        }
        self._latency_ns = problem.link_latency_ns.tolist()
        self._bytes_per_s = problem.link_bytes_per_s.tolist()
        self._channel: dict[str, list[Any]] = {name: [] for name in problem.channel_names}
        self.horizon_ns = self._longest_step_ns()
        self.makespan = self.model.new_int_var(least_ns, max(self.horizon_ns, least_ns), "makespan")
        self._place_units()
        self._run_ops()
        self._fit_memory()
        self._send_tensors()
        self._send_signals()
        for intervals in self._channel.values():
            self.model.add_no_overlap(intervals)
        self.model.minimize(self.makespan)

    def _longest_step_ns(self) -> int:
        """Of a schedule without a moment when nothing happens: all ops, all transfers."""
        problem, slowest = self._problem, 0
        for link in self._link.values():
            slowest = max(slowest, *(self._transfer_ns(link, size) for size in self._sizes()))
        transfers = (len(problem.output_bytes) + problem.num_ops) * problem.num_devices
        return sum(max(costs) for costs in self._cost_ns) + transfers * slowest

    def _sizes(self) -> set[int]:
        return {0, *self._problem.output_bytes.tolist()}

    def _transfer_ns(self, link: int, size: int) -> int:
        rate = self._bytes_per_s[link]
        return int(self._latency_ns[link] + (size * 10**9 + rate - 1) // rate)

    def _candidates(self, op: int) -> list[int]:
        ptr, unit = self._problem.candidate_ptr, self._units[op]
        devices: list[int] = self._problem.candidates[ptr[unit] : ptr[unit + 1]].tolist()
        return devices

    # ---- variables and constraints ----

    def _place_units(self) -> None:
        problem, ptr = self._problem, self._problem.candidate_ptr.tolist()
        self._on: dict[tuple[int, int], Any] = {}
        for unit in range(problem.num_units):
            devices = problem.candidates[ptr[unit] : ptr[unit + 1]].tolist()
            choice = [self.model.new_bool_var(f"x{unit},{device}") for device in devices]
            self.model.add_exactly_one(choice)
            self._on |= {(unit, device): x for device, x in zip(devices, choice, strict=True)}

    def _x(self, op: int, device: int) -> Any:
        return self._on[self._units[op], device]

    def _run_ops(self) -> None:
        model, pool = self.model, self._problem.device_pool.tolist()
        running: dict[int, list[Any]] = {p: [] for p in pool}
        load: dict[int, list[Any]] = {p: [] for p in pool}
        self._start, self._end = [], []
        for op in range(self._problem.num_ops):
            start = model.new_int_var(0, self.horizon_ns, f"start{op}")
            devices = self._candidates(op)
            end = start + sum(self._cost_ns[op][d] * self._x(op, d) for d in devices)
            self._start.append(start)
            self._end.append(end)
            model.add(end <= self.makespan)
            for d in devices:
                cost_ns, x = self._cost_ns[op][d], self._x(op, d)
                if cost_ns > 0:
                    running[pool[d]].append(
                        model.new_optional_fixed_size_interval_var(
                            start, cost_ns, x, f"run{op},{d}"
                        )
                    )
                    load[pool[d]].append(cost_ns * x)
        slots_of_pool = dict(zip(pool, self._problem.device_slots.tolist(), strict=True))
        for p, slots in slots_of_pool.items():
            model.add(sum(load[p]) <= slots * self.makespan)
            if slots == 1:
                model.add_no_overlap(running[p])
            elif slots < len(running[p]):
                model.add_cumulative(running[p], [1] * len(running[p]), slots)

    def _fit_memory(self) -> None:
        """The variables, and beside them what any one op needs while it runs."""
        problem = self._problem
        units = problem.units
        persistent = np.zeros(problem.num_units, np.int64)
        np.add.at(persistent, units, problem.persistent_bytes)
        own = np.where(problem.output_alias_src == _NO_ALIAS, problem.output_bytes, 0)
        sums = np.concatenate([[0], np.cumsum(own)])
        while_running = problem.temp_bytes + np.diff(sums[problem.output_ptr])
        most = np.zeros(problem.num_units, np.int64)
        np.maximum.at(most, units, while_running)
        for d, memory_bytes in enumerate(problem.device_memory_bytes.tolist()):
            here = [unit for unit in range(problem.num_units) if (unit, d) in self._on]
            if int(persistent[here].sum() + most[here].max(initial=0)) <= memory_bytes:
                continue
            held = sum(int(persistent[unit]) * self._on[unit, d] for unit in here)
            for unit in here:
                self.model.add(held + int(most[unit]) * self._on[unit, d] <= memory_bytes)

    def _send_tensors(self) -> None:
        problem = self._problem
        readers: dict[tuple[int, int], list[int]] = {}
        for src, output, dst in problem.edges.tolist():
            self.model.add(self._start[dst] >= self._end[src])
            if self._units[src] != self._units[dst]:
                readers.setdefault((src, output), []).append(dst)
        self._sent: dict[tuple[int, int, int], list[tuple[Any, Any]]] = {}
        for (src, output), ops in readers.items():
            size = int(problem.output_bytes[problem.output_ptr[src] + output])
            for to in range(problem.num_devices):
                there = [op for op in ops if (self._units[op], to) in self._on]
                if there:
                    self._send(src, f"{src}:{output}", size, to, there)

    def _send(self, src: int, name: str, size: int, to: int, readers: list[int]) -> None:
        """One tensor to one device."""
        model = self.model
        start = model.new_int_var(0, self.horizon_ns, f"send{name},{to}")
        model.add(start >= self._end[src])
        for device in self._candidates(src):
            if device == to:
                continue
            here = self._x(src, device)
            link = self._link.get((device, to))
            if link is None:
                for op in readers:
                    model.add_bool_or(~here, ~self._x(op, to))
                continue
            sent = model.new_bool_var(f"sent{name},{device},{to}")
            duration_ns = self._transfer_ns(link, size)
            self._occupy(link, start, duration_ns, sent)
            self._sent.setdefault((src, device, to), []).append((sent, start + duration_ns))
            for op in readers:
                reads = self._x(op, to)
                model.add_bool_or(~here, ~reads, sent)
                model.add(self._start[op] >= start + duration_ns).only_enforce_if(sent, reads)

    def _send_signals(self) -> None:
        """A control edge waits for the tensors that its op sends there, else for a signal.

        Ops with the same successors signal together. Which of them does is not expressed: their
        signals take time, but occupy no channel, which is a bound from below.
        """
        problem, model = self._problem, self.model
        every: dict[int, list[int]] = {}
        for src, dst in problem.control_edges.tolist():
            model.add(self._start[dst] >= self._end[src])
            every.setdefault(src, []).append(dst)
        sources = Counter(map(tuple, every.values()))
        for src, ops in every.items():
            for device in self._candidates(src):
                for to in range(problem.num_devices):
                    there = [
                        op
                        for op in ops
                        if self._units[op] != self._units[src] and (self._units[op], to) in self._on
                    ]
                    if there and device != to:
                        self._signal(src, device, to, there, is_shared=sources[tuple(ops)] > 1)

    def _signal(
        self, src: int, device: int, to: int, successors: list[int], *, is_shared: bool
    ) -> None:
        model, here = self.model, self._x(src, device)
        link = self._link.get((device, to))
        if link is None:
            for op in successors:
                model.add_bool_or(~here, ~self._x(op, to))
            return
        latency_ns = self._transfer_ns(link, 0)
        if is_shared:
            for op in successors:
                arrives = self._start[op] >= self._end[src] + latency_ns
                model.add(arrives).only_enforce_if(here, self._x(op, to))
            return
        tensors = self._sent.get((src, device, to), [])
        signal = model.new_bool_var(f"signal{src},{device},{to}")
        start = model.new_int_var(0, self.horizon_ns, f"signal_start{src},{device},{to}")
        model.add(start >= self._end[src])
        self._occupy(link, start, latency_ns, signal)
        for op in successors:
            waits = self._x(op, to)
            model.add_bool_or(~here, ~waits, signal, *(sent for sent, _ in tensors))
            for sent, arrival in (*tensors, (signal, start + latency_ns)):
                model.add(self._start[op] >= arrival).only_enforce_if(here, waits, sent)

    def _occupy(self, link: int, start: Any, duration_ns: int, present: Any) -> None:
        if duration_ns > 0:
            self._channel[self._problem.link_channel[link]].append(
                self.model.new_optional_fixed_size_interval_var(start, duration_ns, present, "")
            )

    # ---- what a search does with it ----

    def placement(self, solution: Any) -> _Int32:
        """int32[n] of a solver, or a callback, that has a solution."""
        device = np.zeros(self._problem.num_units, np.int32)
        for (unit, d), x in self._on.items():
            if solution.boolean_value(x):
                device[unit] = d
        placed: _Int32 = device[self._problem.units]
        return placed

    def exclude(self, placement: _Int32) -> None:
        """Forbids one placement."""
        first = np.unique(self._problem.units, return_index=True)[1]
        chosen = enumerate(placement[first].tolist())
        self.model.add_bool_or(~self._on[unit, device] for unit, device in chosen)

    def beat(self, step_ns: int) -> None:
        """Only shorter steps from now on."""
        self.model.add(self.makespan <= step_ns - 1)

    def start_from(self, placement: _Int32) -> None:
        """Where the search begins."""
        first = np.unique(self._problem.units, return_index=True)[1].tolist()
        self.model.clear_hints()
        for (unit, device), x in self._on.items():
            self.model.add_hint(x, int(placement[first[unit]]) == device)
