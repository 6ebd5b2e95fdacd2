"""How long devices take to add up what each of them has, such as gradients.

    ring           2 (n - 1) steps; in each, every device sends 1/n of the bytes to the next one
    direct         every device sends all to every other one: few steps, for little or few
    hierarchical   a ring within each host, one across the hosts for each part, a ring within again

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009;
the third is that of Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 4.2. A transfer
is work for the devices at both ends where the machine says so, and transfers at the same time share
the channel that they occupy.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import InfeasibleError
from hplacer_optimizer.planners.devices import tasks

__all__ = [
    "DIRECT",
    "HIERARCHICAL",
    "RING",
    "AllReduce",
    "Links",
    "all_gather",
    "all_reduce",
    "all_reduce_groups",
    "direct",
    "hosts_of",
    "ring",
]

RING, DIRECT, HIERARCHICAL = "ring", "direct", "hierarchical"
_RING_STEPS = 20_000  # of the search for a ring


@dataclass(frozen=True, kw_only=True)
class AllReduce:
    """What the exchange takes; times are ns.

    Attributes:
        kind: RING, DIRECT or HIERARCHICAL.
        wire_ns: on the links, latencies included; a device can compute meanwhile.
        work_ns: of each device's own slots, for sending and receiving.
        added_bytes: of what a device receives, so many it adds to its own.
    """

    kind: str
    wire_ns: int
    work_ns: int
    added_bytes: int = 0

    @property
    def total_ns(self) -> int:
        """With nothing beside it."""
        return self.wire_ns + self.work_ns


class Links:
    """The links of a problem by their ends."""

    def __init__(self, problem: Problem) -> None:
        self._names = problem.device_names
        self._channel = problem.link_channel
        self._latency_ns = problem.link_latency_ns.tolist()
        self._rate = problem.link_bytes_per_s.tolist()
        self._send = problem.link_send_ns.tolist(), problem.link_send_bytes_per_s.tolist()
        self._receive = problem.link_receive_ns.tolist(), problem.link_receive_bytes_per_s.tolist()
        ends = zip(problem.link_src.tolist(), problem.link_dst.tolist(), strict=True)
        self._of = {pair: link for link, pair in enumerate(ends)}

    def link(self, src: int, dst: int) -> int:
        """The index; raises InfeasibleError if the two cannot talk."""
        found = self._of.get((src, dst))
        if found is None:
            names = self._names[src], self._names[dst]
            raise InfeasibleError(f"there is no link from {names[0]} to {names[1]}")
        return found

    def best_ring(self, devices: Sequence[int]) -> list[int]:
        """The devices in an order whose slowest link is as fast as can be, as NCCL finds it.

        As they are where that is not found soon.
        """
        rates = {
            (src, dst): self._rate[self._of[src, dst]]
            for src in devices
            for dst in devices
            if (src, dst) in self._of
        }
        for slowest in sorted(set(rates.values()), reverse=True):
            allowed = {pair: rate for pair, rate in rates.items() if rate >= slowest}
            if found := _cycle(list(devices), allowed):
                return found
        return list(devices)

    def round_ns(
        self, pairs: Sequence[tuple[int, int]], size_bytes: float, messages: int
    ) -> tuple[float, float]:
        """All pairs send so many bytes at once, in so many messages: wire ns, work ns."""
        links = [self.link(*pair) for pair in pairs]
        users: dict[str, int] = {}
        for link in links:
            users[self._channel[link]] = users.get(self._channel[link], 0) + 1
        wire = max(
            messages * self._latency_ns[link]
            + users[self._channel[link]] * size_bytes / self._rate[link] * 1e9
            for link in links
        )
        work = max(self._work_ns(link, size_bytes, messages) for link in links)
        return wire, work

    def _work_ns(self, link: int, size_bytes: float, messages: int) -> float:
        """A device of a ring sends as much as it receives."""
        total = 0.0
        for fixed_ns, rates in (self._send, self._receive):
            total += messages * fixed_ns[link]
            if rates[link]:
                total += size_bytes / rates[link] * 1e9
        return total


def _cycle(devices: list[int], rates: Mapping[tuple[int, int], int]) -> list[int] | None:
    """A ring of all devices over these links, fast ones first; None if none is found soon."""
    after = {
        src: sorted(
            (dst for dst in devices if (src, dst) in rates), key=lambda dst: -rates[src, dst]
        )
        for src in devices
    }
    trail, todo = [devices[0]], [iter(after[devices[0]])]
    for _ in range(_RING_STEPS):
        if len(trail) == len(devices) and (trail[-1], trail[0]) in rates:
            return trail
        following = next((dst for dst in todo[-1] if dst not in trail), None)
        if following is not None:
            trail.append(following)
            todo.append(iter(after[following]))
            continue
        trail.pop()
        todo.pop()
        if not trail:
            break
    return None


def all_reduce(
    problem: Problem, devices: Sequence[int], size_bytes: int, *, messages: int = 1
) -> AllReduce:
    """The fastest of the ways, of those that the machine's links allow.

    Args:
        problem: for its links.
        devices: indices of the n devices, in the order of the ring.
        size_bytes: that each of them has.
        messages: how many pieces they go in, each with its own latency.

    Raises InfeasibleError where a link of the ring is missing.
    """
    ways = [ring(problem, devices, size_bytes, messages=messages)]
    parts = hosts_of(problem, devices)
    if len(parts) > 1 and len(parts[0]) > 1 and len({len(part) for part in parts}) == 1:
        with contextlib.suppress(InfeasibleError):
            ways.append(_hierarchical(Links(problem), parts, size_bytes, messages))
    with contextlib.suppress(InfeasibleError):  # neighbours of the ring can talk, others need not
        ways.append(direct(problem, devices, size_bytes, messages=messages))
    return min(ways, key=lambda found: found.total_ns)


def all_reduce_groups(
    problem: Problem, groups: Sequence[Sequence[int]], size_bytes: int, *, messages: int = 1
) -> AllReduce:
    """Each device of a group with those in its place in the other groups, all rings at once.

    `size_bytes`: that each device has. Raises as `all_reduce`.
    """
    return _rings(Links(problem), list(zip(*groups, strict=True)), size_bytes, messages)


def all_gather(
    problem: Problem, devices: Sequence[int], size_bytes: int, *, messages: int = 1
) -> AllReduce:
    """Each gets what every other one has, such as the rows of a sparse gradient."""
    links = Links(problem)
    steps, order = len(devices) - 1, links.best_ring(_by_host(problem, devices))
    if not steps or not size_bytes:
        return AllReduce(kind=RING, wire_ns=0, work_ns=0)
    wire, work = links.round_ns(_neighbours(order), size_bytes, messages)
    return AllReduce(kind=RING, wire_ns=math.ceil(steps * wire), work_ns=math.ceil(steps * work))


def ring(
    problem: Problem, devices: Sequence[int], size_bytes: int, *, messages: int = 1
) -> AllReduce:
    """By a ring; raises as `all_reduce`."""
    links = Links(problem)
    return _rings(links, [links.best_ring(_by_host(problem, devices))], size_bytes, messages)


def direct(
    problem: Problem, devices: Sequence[int], size_bytes: int, *, messages: int = 1
) -> AllReduce:
    """Each sends all to every other one; raises as `all_reduce`."""
    n, links, wire, work = len(devices), Links(problem), 0.0, 0.0
    for step in range(1, n if size_bytes else 1):
        pairs = [(devices[i], devices[(i + step) % n]) for i in range(n)]
        more = links.round_ns(pairs, size_bytes, messages)
        wire, work = wire + more[0], work + more[1]
    return AllReduce(
        kind=DIRECT,
        wire_ns=math.ceil(wire),
        work_ns=math.ceil(work),
        added_bytes=(n - 1) * size_bytes,
    )


def _rings(
    links: Links, orders: Sequence[Sequence[int]], size_bytes: float, messages: int
) -> AllReduce:
    """Several rings of equal length at the same time."""
    n = len(orders[0])
    if n < 2 or not size_bytes:
        return AllReduce(kind=RING, wire_ns=0, work_ns=0)
    pairs = [pair for order in orders for pair in _neighbours(order)]
    wire, work = links.round_ns(pairs, size_bytes / n, messages)
    steps = 2 * (n - 1)
    return AllReduce(
        kind=RING,
        wire_ns=math.ceil(steps * wire),
        work_ns=math.ceil(steps * work),
        added_bytes=round((n - 1) / n * size_bytes),
    )


def _hierarchical(
    links: Links, hosts: Sequence[Sequence[int]], size_bytes: float, messages: int
) -> AllReduce:
    """Hosts work at the same time, and so do the rings across them."""
    each, count = len(hosts[0]), len(hosts)
    inside = [pair for host in hosts for pair in _neighbours(links.best_ring(host))]
    across = [pair for ring in zip(*hosts, strict=True) for pair in _neighbours(ring)]
    wire_in, work_in = links.round_ns(inside, size_bytes / each, messages)
    wire_out, work_out = links.round_ns(across, size_bytes / each / count, messages)
    steps_in, steps_out = 2 * (each - 1), 2 * (count - 1)
    return AllReduce(
        kind=HIERARCHICAL,
        wire_ns=math.ceil(steps_in * wire_in + steps_out * wire_out),
        work_ns=math.ceil(steps_in * work_in + steps_out * work_out),
        added_bytes=round((1 - 1 / each + (1 - 1 / count) / each) * size_bytes),
    )


def _neighbours(order: Sequence[int]) -> list[tuple[int, int]]:
    return [(order[i], order[(i + 1) % len(order)]) for i in range(len(order))]


def hosts_of(problem: Problem, devices: Sequence[int]) -> list[list[int]]:
    """The devices by the task that they are of."""
    task = tasks(problem)
    found: dict[str, list[int]] = {}
    for device in devices:
        found.setdefault(task[device], []).append(device)
    return list(found.values())


def _by_host(problem: Problem, devices: Sequence[int]) -> list[int]:
    """Neighbours of a ring are on one host where they can be."""
    return [device for host in hosts_of(problem, devices) for device in host]
