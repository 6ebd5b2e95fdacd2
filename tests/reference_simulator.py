"""A second, naive implementation of the step simulator, for comparison with the native one.

Written from the description of the semantics alone, over the dictionary of a problem file, with
plain dictionaries and sorted lists; nothing here is meant to be fast.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.reference_order import places_of


@dataclass
class Result:
    """What a step does; the times are None where there is no trace."""

    feasible: bool = False
    makespan_ns: int | None = None
    start_ns: list[int] | None = None
    finish_ns: list[int] | None = None
    # (src op, output, dst device) ->
    # (src device, channel, issue, sent, start, carried, finish, bytes)
    transfers: dict[tuple[int, int, int], tuple[Any, ...]] = field(default_factory=dict)
    peak_bytes: list[int] | None = None


@dataclass
class Buffer:
    """Memory on one device and who still reads it: (tensor, op) or (tensor, "send", device)."""

    device: int
    size: int
    readers: set[tuple[Any, ...]] = field(default_factory=set)


@dataclass
class Thread:
    """Of the host: ops and transfers of one device that it comes upon."""

    items: list[Any]
    device: int
    is_new: bool  # woken by a transfer, and has run nothing yet
    number: int


@dataclass
class Found:
    """What follows an op or an arrived tensor on a device: ((only waits, reader), what).

    That is an op, a transfer, or None for an op that waits for others, too.
    """

    device: int = 0
    items: list[tuple[tuple[bool, int], Any]] = field(default_factory=list)
    followers: int = 0


def mix_bits(z: int) -> int:
    """The finalizer of SplitMix64."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


class Step:
    """One step under one placement, as it goes on."""

    def __init__(self, document: dict[str, Any], placement: list[int], order: int) -> None:
        self.ops, self.devices = document["ops"], document["devices"]
        self.order = places_of(document, placement)
        self.place = placement
        self.edges = {tuple(edge) for edge in document["edges"]}
        self.controls = {tuple(edge) for edge in document.get("control_edges", [])}
        self.successors: dict[int, set[int]] = defaultdict(set)
        for src, dst in self.controls:
            self.successors[src].add(dst)
        # Of each output, on each device; of each op, its inputs and with -1 whom it waits for.
        self.readers: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        self.inputs: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for src, k, dst in sorted(self.edges):
            self.readers[src, k, placement[dst]].append(dst)
            self.inputs[dst].append((src, k))
        for src, dst in self.controls:
            self.inputs[dst].append((src, -1))
        self.by_order = sorted(range(len(self.ops)), key=lambda i: self.order[i])
        self.barriers: dict[frozenset[int], set[int]] = defaultdict(set)
        for src, waiting in self.successors.items():
            self.barriers[frozenset(waiting)].add(src)
        self.links = {(link["src"], link["dst"]): link for link in document["links"]}
        self.channels = list(dict.fromkeys(link["channel"] for link in document["links"]))
        self.now = 0
        self.start: dict[int, int] = {}
        self.finish: dict[int, int] = {}
        self.ready_at: dict[int, int] = {}
        self.arrived: set[tuple[int, int, int]] = set()  # tensors and signals, on a device
        self.constants: set[tuple[int, int, int]] = set()  # signals that have something to send
        self.issued: dict[tuple[int, int, int], int] = {}
        self.sent: dict[tuple[int, int, int], int] = {}  # waits for the channel
        self.started: dict[tuple[int, int, int], int] = {}  # occupies the channel
        self.carried: dict[tuple[int, int, int], int] = {}
        self.received: dict[tuple[int, int, int], int] = {}
        # Work that waits for a slot: (transfer, part) -> since when; of these, what is due.
        self.waiting: dict[tuple[tuple[int, int, int], str], int] = {}
        self.due: set[tuple[tuple[int, int, int], str]] = set()
        self.due_at: dict[tuple[tuple[int, int, int], str], int] = {}  # at the latest
        # Work on a slot: (transfer, part) -> (its end, the op that it interrupts)
        self.working: dict[tuple[tuple[int, int, int], str], tuple[int, int | None]] = {}
        self.worked: dict[frozenset[int], int] = {}  # by ops since the last work of a transfer
        self.handed_on: dict[int, int] = {}  # what others wait for -> the how manieth op it was
        # Outputs of ops, and with -1 their ends, that are known to the threads of a device.
        self.known: set[tuple[int, int, int]] = set()
        self.woken: dict[frozenset[int], list[Thread]] = defaultdict(list)  # by pool
        self.to_launch: dict[int, list[tuple[int, Thread]]] = defaultdict(list)
        self.launching: dict[int, tuple[int, int, Thread]] = {}  # device -> (end, op, thread)
        # Ops of other devices that wait for a slot or have one, and their threads: since when.
        self.asked: dict[int, tuple[int, Thread]] = {}
        # By task: threads with nothing to do, each by its number, and the queue of each.
        self.inter_op_threads = int(document.get("inter_op_threads", 16))
        threads = range(self.inter_op_threads)
        self.idle: dict[str, list[int]] = defaultdict(lambda: list(reversed(threads)))
        self.queues: dict[str, list[list[tuple[int, bool]]]] = defaultdict(
            lambda: [[] for _ in threads]
        )
        self.draws, self.seed = 0, mix_bits(order)
        self.is_arriving = False
        # (the first of equal constants, device) -> the one that stands for those that became ready
        # with it, and these.
        self.merged: dict[tuple[int, int], tuple[int, list[int]]] = {}
        self.stream_free = [0] * len(self.devices)
        # (device, from, to) -> copies that are not over, in their order.
        self.copies: dict[tuple[int, bool, bool], list[tuple[int, int, int]]] = defaultdict(list)
        self.copy_ready: dict[tuple[int, int, int], int] = {}
        self.end: dict[int, int] = {}  # of ops that run, later by what interrupts them
        self.buffers: dict[tuple[Any, ...], Buffer] = {}
        self.used = [0] * len(self.devices)
        self.peak = [0] * len(self.devices)
        for op, device in zip(self.ops, placement, strict=True):
            self.used[device] += op.get("persistent_bytes", 0)
        self.peak = list(self.used)

    # Static facts.

    def launches(self, device: int) -> bool:
        return bool(self.devices[device].get("launch_ns", 0))

    def has_threads(self, device: int) -> bool:
        """Whether its ops are taken up by threads: a device of its task launches."""
        task = self.task(device)
        return any(self.launches(d) for d in range(len(self.devices)) if self.task(d) == task)

    def is_copy(self, transfer: tuple[int, int, int]) -> bool:
        return self.launches(self.place[transfer[0]]) or self.launches(transfer[2])

    def pool(self, device: int) -> frozenset[int]:
        """The device and those that share its cores."""
        cores = self.devices[device].get("cores")
        if not cores:
            return frozenset([device])
        return frozenset(d for d, other in enumerate(self.devices) if other.get("cores") == cores)

    def cost(self, i: int) -> int | None:
        return self.ops[i]["cost_ns"].get(self.devices[self.place[i]]["kind"])

    def sizes(self, i: int) -> list[int]:
        return self.ops[i].get("output_bytes", [])

    def alias(self, i: int, k: int) -> Any:
        return (self.ops[i].get("output_alias") or [None] * len(self.sizes(i)))[k]

    def consumers(self, i: int, k: int, device: int) -> list[int]:
        return self.readers.get((i, k, device), [])

    def reads(self, i: int) -> list[tuple[int, int]]:
        return [(src, k) for src, k in self.inputs[i] if k >= 0]

    def barrier(self, i: int) -> set[int]:
        """The ops that have the control successors that it has."""
        return self.barriers[frozenset(self.successors[i])] or {i}

    def group(self, i: int) -> set[int]:
        """Those of its device."""
        return {j for j in self.barrier(i) if self.place[j] == self.place[i]}

    def speaker(self, i: int) -> int | None:
        """Who tells other devices that the group of op i has finished; None: it has not."""
        group = self.group(i)
        if group <= set(self.handed_on):
            return max(group, key=lambda j: self.handed_on[j])
        return None

    def needed_transfers(self, i: int) -> list[tuple[int, int, int]]:
        result = []
        for e in range(len(self.devices)):
            if e == self.place[i]:
                continue
            data = [(i, k, e) for k in range(len(self.sizes(i))) if self.consumers(i, k, e)]
            waits = any(self.place[dst] == e for dst in self.successors.get(i, ()))
            if data or not waits:
                result += data
            elif i not in self.handed_on or self.speaker(i) == i:
                result.append((i, -1, e))
        return result

    def has_trace(self) -> bool:
        return all(
            self.cost(i) is not None
            and all((self.place[i], e) in self.links for _, _, e in self.needed_transfers(i))
            for i in range(len(self.ops))
        )

    def channel(self, transfer: tuple[int, int, int]) -> str:
        return self.links[self.place[transfer[0]], transfer[2]]["channel"]

    def size(self, transfer: tuple[int, int, int]) -> int:
        return 0 if transfer[1] < 0 else self.sizes(transfer[0])[transfer[1]]

    def duration(self, transfer: tuple[int, int, int]) -> int:
        link = self.links[self.place[transfer[0]], transfer[2]]
        if self.size(transfer) == 0 and self.is_copy(transfer):
            return 0
        return link["latency_ns"] - (-self.size(transfer) * 10**9 // link["bytes_per_s"])

    def work(self, transfer: tuple[int, int, int], part: str) -> int:
        """Of "send" or "receive"."""
        link = self.links[self.place[transfer[0]], transfer[2]]
        rate = link.get(f"{part}_bytes_per_s")
        bytes_ns = -(-self.size(transfer) * 10**9 // rate) if rate else 0
        return link.get(f"{part}_ns", 0) + bytes_ns

    def worker(self, transfer: tuple[int, int, int], part: str) -> frozenset[int]:
        """The pool whose slot does it."""
        return self.pool(self.place[transfer[0]] if part == "send" else transfer[2])

    # Readiness.

    def input_arrived(self, src: int, k: int, device: int) -> bool:
        """Whether output k of src, or with k = -1 its end, is known on the device."""
        if self.has_threads(device):
            return (src, k, device) in self.known
        if self.place[src] == device:
            return src in self.finish
        if k >= 0:
            return (src, k, device) in self.received
        speaker = self.speaker(src)
        return speaker is not None and all(
            t in self.received for t in self.needed_transfers(speaker) if t[2] == device
        )

    def note_ready_ops(self) -> None:
        for i in range(len(self.ops)):
            is_up = self.devices[self.place[i]].get("start_ns", 0) <= self.now
            if is_up and not self.has_threads(self.place[i]) and self.has_inputs(i):
                self.ready_at.setdefault(i, self.now)

    def has_inputs(self, i: int) -> bool:
        return all(self.input_arrived(src, k, self.place[i]) for src, k in self.inputs[i])

    # Memory.

    def allocate(self, name: tuple[Any, ...], device: int, size: int) -> Buffer:
        self.used[device] += size
        self.peak[device] = max(self.peak[device], self.used[device])
        self.buffers[name] = Buffer(device, size)
        return self.buffers[name]

    def free(self, name: tuple[Any, ...]) -> None:
        buffer = self.buffers.pop(name)
        self.used[buffer.device] -= buffer.size

    def root(self, i: int, k: int, device: int) -> tuple[Any, ...] | None:
        """Name of the buffer that holds output k of op i on the device; None: persistent."""
        if self.place[i] != device:
            return ("copy", i, k, device)
        alias = self.alias(i, k)
        if alias is None:
            return ("own", i, k)
        if alias == "persistent":
            return None
        return self.root(alias[0], alias[1], device)

    def end_read(self, i: int, k: int, device: int, reader: tuple[Any, ...]) -> None:
        name = self.root(i, k, device)
        if name is None:
            return
        self.buffers[name].readers.remove(reader)
        if not self.buffers[name].readers:
            self.free(name)

    # Events.

    def start_op(self, i: int) -> None:
        self.start[i] = self.now
        self.end[i] = self.start[i] + (self.cost(i) or 0)
        self.allocate_outputs(i)

    def allocate_outputs(self, i: int) -> None:
        self.allocate(("temp", i), self.place[i], self.ops[i].get("temp_bytes", 0))
        for k, size in enumerate(self.sizes(i)):
            if self.alias(i, k) is None:
                self.allocate(("own", i, k), self.place[i], size)

    def finish_op(self, i: int) -> None:
        self.finish[i] = self.now
        del self.end[i]
        pool = self.pool(self.place[i])
        self.worked[pool] = self.worked.get(pool, 0) + (self.cost(i) or 0)
        if not self.has_threads(self.place[i]):
            for transfer in self.hand_on(i):
                self.start_send(transfer)
            return
        _, thread = self.asked[i]
        found = Found(self.place[i])
        self.publish(i, thread, found)
        self.take_up_followers(found, thread)
        self.woken[self.pool(thread.device)].append(thread)

    def hand_on(self, i: int) -> list[tuple[int, int, int]]:
        """Frees what op i does not need any more, and tells what has to be sent."""
        device = self.place[i]
        self.handed_on[i] = len(self.handed_on)
        self.free(("temp", i))
        sends = self.needed_transfers(i)
        for transfer in sends:
            self.issued[transfer] = self.finish[i]
        for k in range(len(self.sizes(i))):
            name = self.root(i, k, device)
            if name is None:
                continue
            readers = self.buffers[name].readers
            readers |= {(i, k, reader) for reader in self.consumers(i, k, device)}
            readers |= {(i, k, "send", e) for _, out, e in sends if out == k}
            if not readers:
                self.free(name)
        for src, k in self.reads(i):
            self.end_read(src, k, device, (src, k, i))
        return sorted(sends, key=lambda t: t[1:])

    # Threads of the host, and devices whose ops are launched.

    def task(self, device: int) -> str:
        name: str = self.devices[device]["name"]
        return name.rpartition("/device:")[0]

    def draw(self, number: int) -> int:
        self.draws += 1
        return mix_bits(self.seed ^ self.draws) % number

    def wake_thread(self, i: int, waker: Thread | None = None) -> None:
        task = self.task(self.place[i])
        queues = self.queues[task]
        if self.idle[task] and not any(queues):
            self.start_thread(i, self.is_arriving)
        elif waker is not None:
            queues[waker.number].insert(0, (i, False))
        else:
            queues[self.draw(len(queues))].append((i, self.is_arriving))

    def start_thread(self, i: int, is_new: bool) -> None:
        number = self.idle[self.task(self.place[i])].pop()
        device = self.place[i]
        self.woken[self.pool(device)].append(Thread([i], device, is_new, number))

    def start_waiting(self) -> bool:
        """Idle threads take the first of their queue, or else the last of the next one."""
        has_started = False
        for task in dict.fromkeys(self.task(d) for d in range(len(self.devices))):
            queues = self.queues[task]
            while any(queues) and self.idle[task]:
                if own := queues[self.idle[task][-1]]:
                    waiting = own.pop(0)
                else:
                    other = self.draw(len(queues))
                    while not queues[other]:
                        other = (other + 1) % len(queues)
                    waiting = queues[other].pop()
                self.start_thread(*waiting)
                has_started = True
        return has_started

    def note_known(self, i: int, k: int, device: int, found: Found) -> None:
        """Output k of op i, or with -1 its end, is known to the threads of a device."""
        self.known.add((i, k, device))
        successors = self.consumers(i, k, device) if k >= 0 else sorted(self.successors[i])
        here = [dst for dst in successors if self.place[dst] == device]
        tells = k >= 0 or all((j, -1, device) in self.known for j in self.barrier(i))
        found.followers += len(here) if tells else 0
        if self.devices[device].get("start_ns", 0) > self.now:
            return
        for dst in here:
            if dst not in self.ready_at and self.has_inputs(dst):
                self.ready_at[dst] = self.now
                if not self.is_merged(dst):
                    found.items.append(((k < 0, dst), dst))
            elif dst not in self.ready_at and tells:
                found.items.append(((k < 0, dst), None))

    def constant(self, i: int) -> tuple[int, int]:
        return self.ops[i].get("same_as", i), self.place[i]

    def is_merged(self, i: int) -> bool:
        """Whether a constant that became ready with it, and is the same, stands for it."""
        if self.cost(i):
            return False
        if self.constant(i) in self.merged:
            self.merged[self.constant(i)][1].append(i)
            return True
        self.merged[self.constant(i)] = (i, [])
        return False

    def enqueue(self, i: int, thread: Thread | None) -> None:
        """Of nobody's thread: sends at once, and wakes up a thread for each successor."""
        found = Found(self.place[i])
        self.put_on_stream(i, thread, found)
        self.take_up_followers(found, thread)

    def take_up_followers(self, found: Found, thread: Thread | None) -> None:
        for _, item in found.items:  # grows
            if thread is not None and isinstance(item, int) and self.is_removed(item, False):
                self.allocate_outputs(item)
                self.put_on_stream(item, thread, found)
        found.items = [pair for pair in found.items if pair[1] not in self.start]
        self.take_up(found, thread)

    def put_on_stream(self, i: int, thread: Thread | None, found: Found) -> None:
        device, cost = self.place[i], self.cost(i) or 0
        self.start[i] = max(self.now, self.stream_free[device])
        self.finish[i] = self.stream_free[device] = self.start[i] + cost
        self.publish(i, thread, found)
        if self.merged.get(self.constant(i), (-1,))[0] == i:
            for other in self.merged.pop(self.constant(i))[1]:
                self.allocate_outputs(other)
                self.put_on_stream(other, thread, found)

    def publish(self, i: int, thread: Thread | None, found: Found) -> None:
        """What op i makes is known, or sent."""
        device = self.place[i]
        sends = self.hand_on(i)
        for k in (-1, *range(len(self.sizes(i)))):
            mine = [transfer for transfer in sends if transfer[1] == k]
            found.followers += len(mine) if thread is not None or k < 0 else 0
            if k >= 0:
                self.note_known(i, k, device, found)
            for transfer in mine:
                if thread is None:
                    self.start_send(transfer)
                    continue
                there = self.consumers(i, k, transfer[2]) if k >= 0 else self.successors[i]
                readers = [dst for dst in there if self.place[dst] == transfer[2]]
                reader = min(readers, key=lambda dst: self.order[dst])
                found.items.append(((k < 0, reader), transfer))
        self.note_known(i, -1, device, found)

    def is_removed(self, i: int, follows_transfer: bool) -> bool:
        """It hands on what it reads, or only waits, for readers beside it, and adds no edges."""
        readers = [dst for src, _, dst in self.edges if src == i] + [*self.successors[i]]
        inputs = [src for src, _, dst in self.edges if dst == i]
        inputs += [src for src in range(len(self.ops)) if i in self.successors[src]]
        passes_on = [isinstance(self.alias(i, k), list) for k in range(len(self.sizes(i)))]
        if self.cost(i) or passes_on not in ([], [True]):
            return False
        if any(self.place[dst] != self.place[i] for dst in readers):
            return False
        is_beside = not follows_transfer and all(self.place[src] == self.place[i] for src in inputs)
        adds_none = len(inputs) * len(readers) <= len(inputs) + len(readers)
        return len(readers) <= 1 or (is_beside and adds_none)

    def take_up(self, found: Found, thread: Thread | None) -> None:
        """In the order of the readers; if they are many, in that of a hash table.

        What only waits comes behind what reads.
        """
        followers = sorted(
            found.items, key=lambda pair: (self.order[pair[0][1]], pair[0][0], pair[1] is None)
        )
        if found.followers > 8:
            followers = self.in_table(found.device, followers, found.followers)
        others = []  # that take time on a device that does not launch
        for _, item in sorted(followers, key=lambda pair: pair[0][0]):
            if item is None:
                continue
            if thread is None:
                self.wake_thread(item)
            elif isinstance(item, tuple) or not self.cost(item) or self.launches(self.place[item]):
                thread.items.append(item)
            else:
                others.append(item)
        if thread is not None and others and not thread.items:
            thread.items.append(others.pop())
        for item in others:
            self.wake_thread(item, thread)

    def in_table(self, device: int, followers: list[Any], count: int) -> list[Any]:
        """As their edges lie in a table by address, where those before the readers' lie first."""
        size = 16
        while count >= 0.8 * size:
            size *= 2
        table: dict[int, Any] = {}
        first = mix_bits(self.seed ^ (device + 1)) >> 20
        inputs = [len(self.inputs[i]) if self.place[i] == device else 0 for i in self.by_order]
        for follower in followers:
            address = first + 32 * sum(inputs[: self.order[follower[0][1]]])
            slot, probe = (address + address // 64) // 256 % size, 1
            while slot in table:
                slot, probe = (slot + probe) % size, probe + 1
            table[slot] = follower
        return [table[slot] for slot in sorted(table)]

    def run_thread(self, thread: Thread) -> None:
        device = thread.device
        while thread.items:
            item = thread.items.pop(0)
            if isinstance(item, tuple):
                if item[1] >= 0 or item in self.constants:
                    self.start_send(item)
                else:
                    self.constants.add(item)
                    thread.items.append(item)
                continue
            if self.cost(item):
                thread.is_new = False
                if self.launches(device):
                    self.allocate_outputs(item)
                    self.to_launch[device].append((item, thread))
                else:
                    self.asked[item] = (self.now, thread)
                return
            self.allocate_outputs(item)
            thread.is_new &= self.is_removed(item, True)
            self.is_arriving = thread.is_new
            self.enqueue(item, None if thread.is_new else thread)
            self.is_arriving = False
        self.idle[self.task(device)].append(thread.number)

    def launch(self, device: int) -> None:
        if self.to_launch[device] and device not in self.launching:
            op, thread = self.to_launch[device].pop(0)
            self.launching[device] = (self.now + self.devices[device]["launch_ns"], op, thread)

    def start_send(self, transfer: tuple[int, int, int]) -> None:
        if self.is_copy(transfer):
            self.issue_copy(transfer)
        else:
            self.wait_for_slot(transfer, "send")

    def issue_copy(self, transfer: tuple[int, int, int]) -> None:
        """Behind those of its direction, when all that is launched by now is done."""
        i, _, to = transfer
        source = self.place[i]
        is_from, is_to = self.launches(source), self.launches(to)
        waits = [self.now]
        if is_from:
            waits.append(self.stream_free[source])
        if is_to and (not is_from or self.size(transfer) > 0):
            waits.append(self.stream_free[to])
        self.copy_ready[transfer] = max(waits)
        self.allocate_copy(transfer)
        stream = (source if is_from else to, is_from, is_to)
        self.copies[stream].append(transfer)
        self.continue_copies(stream)

    def continue_copies(self, stream: tuple[int, bool, bool]) -> None:
        first = next(iter(self.copies[stream]), (-1, -1, -1))
        if first in self.copy_ready and self.copy_ready[first] <= self.now:
            del self.copy_ready[first]
            self.wait_for_slot(first, "send")

    def wait_for_slot(self, transfer: tuple[int, int, int], part: str) -> None:
        if self.work(transfer, part) > 0:
            self.waiting[transfer, part] = self.now
        else:
            self.finish_work(transfer, part)

    def finish_work(self, transfer: tuple[int, int, int], part: str) -> None:
        if part == "receive":
            self.received[transfer] = self.now
            self.arrive(transfer)
        else:
            self.sent[transfer] = self.now
            if self.is_copy(transfer) and self.size(transfer) == 0:
                self.started[transfer] = self.now  # without a channel

    def arrive(self, transfer: tuple[int, int, int]) -> None:
        i, k, device = transfer
        if not self.has_threads(device):
            return
        self.is_arriving = True
        found = Found(device)
        if k >= 0:
            self.note_known(i, k, device, found)
        speaker = self.speaker(i)
        if speaker == i and all(
            t in self.received for t in self.needed_transfers(i) if t[2] == device
        ):
            self.known |= {(j, -1, device) for j in self.group(i)}
            self.note_known(i, -1, device, found)
        self.take_up(found, None)
        self.is_arriving = False

    def start_transfer(self, transfer: tuple[int, int, int]) -> None:
        self.started[transfer] = self.now
        if not self.is_copy(transfer):
            self.allocate_copy(transfer)

    def allocate_copy(self, transfer: tuple[int, int, int]) -> None:
        i, k, device = transfer
        if k >= 0:
            copy = self.allocate(("copy", i, k, device), device, self.size(transfer))
            copy.readers = {(i, k, reader) for reader in self.consumers(i, k, device)}

    def leave_channel(self, transfer: tuple[int, int, int]) -> None:
        i, k, device = transfer
        self.carried[transfer] = self.now
        if k >= 0:
            self.end_read(i, k, self.place[i], (i, k, "send", device))
        for stream, copies in self.copies.items():
            if transfer in copies:
                copies.remove(transfer)
                self.continue_copies(stream)
        self.wait_for_slot(transfer, "receive")

    def start_everything(self) -> None:
        self.start_channels()
        for d in range(len(self.devices)):
            if d == min(self.pool(d)):
                self.start_pool(self.pool(d))
        self.start_channels()
        if self.start_waiting():
            self.start_everything()

    def start_channels(self) -> None:
        for channel in self.channels:
            mine = [
                t
                for t in self.sent
                if self.channel(t) == channel and (self.size(t) > 0 or not self.is_copy(t))
            ]
            if any(t in self.started and t not in self.carried for t in mine):
                continue
            queue = sorted((self.sent[t], t) for t in mine if t not in self.started)
            if queue:
                self.start_transfer(queue[0][1])

    def start_pool(self, pool: frozenset[int]) -> None:
        device = self.devices[min(pool)]
        slots = int(device.get("slots", 1))

        def free_slots() -> int:
            ops = [i for i in self.end if self.place[i] in pool]
            own = [
                w for w, (_, op) in self.working.items() if op is None and self.worker(*w) == pool
            ]
            return slots - len(ops) - len(own)

        def ready() -> list[tuple[int, int]]:
            asked = {i: time for i, (time, _) in self.asked.items()}
            return sorted(
                (time, i)
                for i, time in {**self.ready_at, **asked}.items()
                if i not in self.start
                and self.place[i] in pool
                and (i in asked or not self.has_threads(self.place[i]))
            )

        def set_due() -> None:
            ops = len(ready()) + len([i for i in self.end if self.place[i] in pool])
            turns = max(min(ops, self.inter_op_threads), slots)
            for work in waiting():
                wait = device.get("turn_ns", 0) * turns // slots
                self.due_at.setdefault(work, self.now + wait)

        def waiting() -> list[tuple[tuple[int, int, int], str]]:
            mine = [w for w in self.waiting if self.worker(*w) == pool]
            return sorted(mine, key=lambda w: (self.waiting[w], w[0]))

        def start_work(work: tuple[tuple[int, int, int], str], op: int | None) -> None:
            del self.waiting[work]
            del self.due_at[work]
            self.due.discard(work)
            filled = self.worked.pop(pool, 0) // 4
            duration = self.work(*work) + min(device.get("cold_ns", 0), filled)
            self.working[work] = (self.now + duration, op)
            if op is not None:
                self.end[op] += duration

        set_due()
        while queue := waiting():
            if queue[0] not in self.due:
                if self.now < self.due_at[queue[0]]:
                    break
                self.due |= set(queue)
            interrupted = {op for _, op in self.working.values()}
            running = [i for i in self.end if self.place[i] in pool and i not in interrupted]
            if free_slots() > 0:
                start_work(queue[0], None)
            elif running:
                start_work(queue[0], min(running, key=lambda i: (self.start[i], i)))
            else:
                break
        while self.woken[pool]:
            self.run_thread(self.woken[pool].pop(0))
        if self.launches(min(pool)):
            self.launch(min(pool))
        else:
            for _, i in ready()[: free_slots()]:
                self.start_op(i)
        set_due()
        while waiting() and free_slots() > 0:
            start_work(waiting()[0], None)

    def times(self) -> list[int]:
        """When something may happen next."""
        starts = [device.get("start_ns", 0) for device in self.devices]
        return [
            *self.end.values(),
            *(end for end, _ in self.working.values()),
            *(t + self.duration(x) for x, t in self.started.items() if x not in self.carried),
            *(end for end, _, _ in self.launching.values()),
            *(self.copy_ready[c[0]] for c in self.copies.values() if c and c[0] in self.copy_ready),
            *(time for time in (*self.due_at.values(), *starts) if time > self.now),
        ]

    def run(self) -> None:
        self.start_devices()
        self.note_ready_ops()
        self.start_everything()
        while len(self.finish) < len(self.ops):
            self.now = min(self.times())
            self.run_round()
            self.note_ready_ops()
            self.start_everything()

    def start_devices(self) -> None:
        """Ops that were ready before their device: of those that start later, device by device."""
        ready = []
        for i in range(len(self.ops)):
            device = self.place[i]
            if (
                self.has_threads(device)
                and self.devices[device].get("start_ns", 0) == self.now
                and i not in self.ready_at
                and self.has_inputs(i)
            ):
                self.ready_at[i] = self.now
                if not self.is_merged(i):
                    ready.append((device if self.now else 0, self.order[i], i))
        for _, _, i in sorted(ready):
            self.wake_thread(i)

    def run_round(self) -> None:
        """What ends now, as known at the beginning."""
        carried = [
            x
            for x, t in self.started.items()
            if x not in self.carried and t + self.duration(x) == self.now
        ]
        worked = [w for w, (end, _) in self.working.items() if end == self.now]
        ready = [
            (copies[0], stream)
            for stream, copies in self.copies.items()
            if copies and self.copy_ready.get(copies[0]) == self.now
        ]
        ended = {i: None for i, end in self.end.items() if end == self.now}
        launched = {i: d for d, (end, i, _) in self.launching.items() if end == self.now}
        for i in sorted([*ended, *launched]):
            if i in ended:
                self.finish_op(i)
                continue
            _, _, thread = self.launching.pop(launched[i])
            self.enqueue(i, thread)
            self.woken[self.pool(thread.device)].append(thread)
        events: list[tuple[tuple[int, int, int], Any]] = [(x, None) for x in carried]
        events += [(work[0], work[1]) for work in worked]
        events += ready
        for transfer, what in sorted(events, key=lambda event: event[0]):
            if what is None:
                self.leave_channel(transfer)
            elif isinstance(what, str):
                del self.working[transfer, what]
                self.finish_work(transfer, what)
            else:
                self.continue_copies(what)
        self.start_devices()

    def honours_constraints(self) -> bool:
        groups = defaultdict(set)
        for i, op in enumerate(self.ops):
            if self.place[i] not in op.get("allowed_devices", [self.place[i]]):
                return False
            if "colocation_group" in op:
                groups[op["colocation_group"]].add(self.place[i])
        return all(len(devices) == 1 for devices in groups.values())


def simulate(document: dict[str, Any], placement: list[int], launch_orders: int = 3) -> Result:
    """Simulates a step of a problem document: the worst of so many orders of launches."""
    launches = any(device.get("launch_ns", 0) for device in document["devices"])
    orders = range(launch_orders if launches else 1)
    results = [simulate_order(document, placement, order) for order in orders]
    memories = [device["memory_bytes"] for device in document["devices"]]

    def badness(result: Result) -> tuple[int, int]:
        peaks = zip(result.peak_bytes or [], memories, strict=False)
        return sum(max(peak - memory, 0) for peak, memory in peaks), result.makespan_ns or 0

    return max(results, key=badness)


def simulate_order(document: dict[str, Any], placement: list[int], order: int) -> Result:
    """A step under one order of launches."""
    step = Step(document, placement, order)
    if not step.has_trace():
        return Result()
    step.run()
    fits = all(
        peak <= device["memory_bytes"] for peak, device in zip(step.peak, step.devices, strict=True)
    )
    return Result(
        feasible=fits and step.honours_constraints(),
        makespan_ns=max(step.finish.values(), default=0),
        start_ns=[step.start[i] for i in range(len(step.ops))],
        finish_ns=[step.finish[i] for i in range(len(step.ops))],
        transfers={
            x: (
                step.place[x[0]],
                step.channels.index(step.channel(x)),
                step.issued[x],
                step.sent[x],
                step.started[x],
                step.carried[x],
                step.received[x],
                step.size(x),
            )
            for x in step.issued
        },
        peak_bytes=step.peak,
    )
