"""A second, naive implementation of the order of ops, for comparison with the native one.

Written from its description in `cc/engine/problem/op_order.h` alone, over the dictionary of a
problem file.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

WAITS = 2**31  # as the number of an output: behind all that are read


class Nodes:
    """The nodes to order, then the groups that they wait for instead of others."""

    def __init__(self, document: dict[str, Any], placement: list[int]) -> None:
        self.names = [device["name"] for device in document["devices"]]
        nodes = document["order"]["nodes"]
        self.op: list[Any] = [node["op"] for node in nodes]
        self.device = [placement[op] for op in self.op]
        self.inputs = [
            [(x[0], x[1] if len(x) > 1 else WAITS) for x in node.get("inputs", [])]
            for node in nodes
        ]

    def share(self) -> None:
        """One more node for all of a device that wait for the same several ones."""
        waits = [tuple(x for x, k in inputs if k == WAITS) for inputs in self.inputs]
        made: dict[Any, int] = {}
        for node, sources in enumerate(waits):
            if len(sources) < 2 or self.op[node] in [self.op[x] for x in sources]:
                continue
            alike = [i for i, others in enumerate(waits) if others == sources]
            if len([i for i in alike if self.op[i] not in [self.op[x] for x in sources]]) < 2:
                continue
            key = sources, self.device[node]
            if key not in made:
                made[key] = self.make("shared", self.device[node], [(x, WAITS) for x in sources])
            read = [pair for pair in self.inputs[node] if pair[1] != WAITS]
            self.inputs[node] = [*read, (made[key], WAITS)]

    def make(self, what: str, device: int, inputs: list[tuple[int, int]]) -> int:
        self.op.append((what, len(self.op)))
        self.device.append(device)
        self.inputs.append(inputs)
        return len(self.op) - 1

    def task(self, device: int) -> str:
        name = self.names[device]
        return name.partition("/device:")[0] if "/device:" in name else ""

    def group(self, by_task: bool) -> None:
        """Lets each node wait once for each other device, or task, for which it waits often."""
        for node in range(len(self.op)):
            places = [self.task(d) if by_task else self.names[d] for d in self.device]
            waits = Counter(places[x] for x, k in self.inputs[node] if k == WAITS)
            grouped = {place for place, count in waits.items() if count > 1} - {places[node]}
            groups: dict[str, list[tuple[int, int]]] = {place: [] for place in sorted(grouped)}
            inputs, i = self.inputs[node], 0
            while i < len(inputs):
                if inputs[i][1] == WAITS and places[inputs[i][0]] in grouped:
                    inputs[i], inputs[-1] = inputs[-1], inputs[i]
                    moved = inputs.pop()
                    groups[places[moved[0]]].append(moved)
                else:
                    i += 1
            for inside in groups.values():
                inputs.append((self.make("group", self.device[inside[-1][0]], inside), WAITS))

    def searched(self, targets: list[int]) -> list[int]:
        """All nodes: what is found first from the targets, or what nobody reads, comes last."""
        read = {x for inputs in self.inputs for x, _ in inputs}
        found: list[int] = []

        def search(stack: list[int]) -> None:
            while stack:
                node = stack.pop()
                if node not in found:
                    found.append(node)
                    stack += [x for x, _ in self.inputs[node]]

        search(sorted(targets or set(range(len(self.op))) - read))
        search([node for node in range(len(self.op)) if node not in found])
        return found[::-1]


def _by_readiness(sequence: list[Any], sources: dict[Any, list[tuple[Any, int]]]) -> list[Any]:
    """What has all its inputs follows in the order in which they came, of one by the sequence.

    What nodes share passes on at once.
    """
    done = [x for x in sequence if not sources[x]]
    passed: set[Any] = set()

    def pass_on(source: Any) -> None:
        passed.add(source)
        for x in sequence:
            inputs = {y for y, _ in sources[x]}
            if x not in done and source in inputs and inputs <= passed:
                done.append(x)
                if isinstance(x, tuple) and x[0] == "shared":
                    pass_on(x)

    for source in done:  # grows
        if source not in passed:
            pass_on(source)
    return done


def _remapped(order: list[Any], sources: dict[Any, list[tuple[Any, int]]]) -> list[Any]:
    """A depth-first search from the last that reads nothing on, turned round."""
    left: list[Any] = []
    followers: dict[Any, list[Any]] = defaultdict(list)
    edges = [(k, order.index(x), source, x) for x in order for source, k in sources[x]]
    for _, _, source, x in sorted(edges, key=lambda edge: edge[:2]):
        followers[source].append(x)
    entered: set[Any] = set()
    for root in reversed([x for x in order if not sources[x]]):
        stack = [root]
        while stack:
            x = stack[-1]
            if x not in entered:
                entered.add(x)
                stack += [y for y in followers[x] if y not in entered]
                continue
            stack.pop()
            if x not in left:
                left.append(x)
    return left[::-1]


def places_of(document: dict[str, Any], placement: list[int]) -> list[int]:
    """The place of each op in TensorFlow's order under a placement."""
    number = len(document["ops"])
    if not document.get("order", {}).get("nodes"):
        return list(range(number))
    nodes = Nodes(document, placement)
    known = set(nodes.op)
    nodes.share()
    nodes.group(by_task=False)
    if len({nodes.task(d) for d in range(len(nodes.names))}) > 1:
        nodes.group(by_task=True)
    sequence: list[Any] = []
    for node in nodes.searched(document["order"].get("targets", [])):
        if nodes.op[node] not in sequence:
            sequence.append(nodes.op[node])
    sources: dict[Any, list[tuple[Any, int]]] = defaultdict(list)
    for op, inputs in zip(nodes.op, nodes.inputs, strict=True):
        sources[op] += [(nodes.op[x], k) for x, k in inputs if nodes.op[x] != op]
    edges = sorted({tuple(edge) for edge in document["edges"]})
    added = [op for op in range(number) if op not in known]
    first = {op: len(sequence) for op in added}
    for src, k, dst in edges:
        if dst in first:
            sources[dst].append((src, k))
        if src in first:
            sources[dst].append((src, 0))
    ranks = {op: rank for rank, op in enumerate(sequence)}
    for op in added:
        readers = [ranks[dst] for src, _, dst in edges if src == op and dst in ranks]
        first[op] = min(readers, default=len(sequence))
    for op in sorted(added, key=lambda x: (first[x], x), reverse=True):
        sequence.insert(first[op], op)
    order = _by_readiness(sequence, sources)
    order = _by_readiness(_remapped(order, sources), sources)
    of_ops = [x for x in order if isinstance(x, int)]
    return [of_ops.index(op) for op in range(number)]
