"""Fingerprints of random mutations of one graph: `python -m tests.fingerprint_collisions --help`.

Each mutant is the graph of `base_graph` after 1 to 12 changes of op type, dtype, shape, attribute,
edge, control edge, pin, number of ops, targets, devices or soft placement, under new node names and
in a new order of NodeDefs. Its canonical form leaves names and order out, so two laws are checked
at once: mutants with different forms have different fingerprints, mutants with one form have one.

Exits with 1 and shows the mutants if that is not so.

    python -m tests.fingerprint_collisions --count 20000 --seed 7
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import machines
from hplacer_optimizer.capture import native
from hplacer_optimizer.machines import DeviceKind

UNARY = ["Tanh", "Sigmoid", "Exp", "Neg", "Square", "Relu"]
BINARY = ["AddV2", "Sub", "Mul", "Maximum", "Minimum"]
DTYPES = [1, 2, 14, 19]  # DT_FLOAT, DT_DOUBLE, DT_BFLOAT16, DT_HALF
FLAGS = ["transpose_a", "transpose_b"]
PINS = ["", "/device:CPU:0", "/device:CPU:1", "/job:localhost/replica:0/task:0/device:CPU:1"]

Form = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Node:
    """An op; inputs are positions of earlier nodes."""

    op: str
    inputs: tuple[int, ...] = ()
    controls: frozenset[int] = frozenset()
    flags: tuple[bool, bool] = (False, False)  # FLAGS of a MatMul
    pin: str = ""


@dataclass(kw_only=True)
class Mutant:
    """Square matrices in, the last node out; every node is an ancestor of it by data edges."""

    nodes: list[Node]
    dtype: int = 1
    width: int = 8
    num_devices: int = 2
    soft_placement: bool = True
    more_targets: set[int] = field(default_factory=set)

    def form(self) -> Form:
        """Canonical: nodes are numbered along the ordered inputs, from the last node on."""
        number: dict[int, int] = {}
        stack = [len(self.nodes) - 1]
        while stack:
            position = stack.pop()
            if position not in number:
                number[position] = len(number)
                stack.extend(reversed(self.nodes[position].inputs))
        nodes = []
        for position in number:
            node = self.nodes[position]
            inputs = tuple(number[i] for i in node.inputs)
            controls = tuple(sorted(number[i] for i in node.controls))
            nodes.append((node.op, inputs, controls, node.flags, node.pin))
        targets = tuple(sorted(number[i] for i in self.more_targets))
        whole = (self.dtype, self.width, self.num_devices, self.soft_placement)
        return (*whole, targets, tuple(nodes))

    def replace(self, position: int, **changes: Any) -> None:
        old = self.nodes[position]
        fields = {name: getattr(old, name) for name in Node.__dataclass_fields__}
        self.nodes[position] = Node(**fields | changes)

    def prune(self) -> None:
        """Drops what the last node does not need by data edges."""
        needed = {len(self.nodes) - 1}
        for position in reversed(range(len(self.nodes))):
            if position in needed:
                needed.update(self.nodes[position].inputs)
        new = {old: i for i, old in enumerate(sorted(needed))}
        self.nodes = [
            Node(
                op=node.op,
                inputs=tuple(new[i] for i in node.inputs),
                controls=frozenset(new[i] for i in node.controls if i in new),
                flags=node.flags,
                pin=node.pin,
            )
            for position, node in enumerate(self.nodes)
            if position in needed
        ]
        self.more_targets = {new[i] for i in self.more_targets if i in new}


def base_graph() -> Mutant:
    """Two towers, equal up to the order in which their results meet, as TensorFlow builds them."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        x, w = (v1.placeholder(tf.float32, [8, 8]) for _ in range(2))
        towers = []
        for _ in range(2):
            hidden = tf.tanh(tf.matmul(x, w))
            towers.append(tf.nn.relu(tf.matmul(hidden, w)) * hidden)
        tf.square(towers[0] - towers[1])
    position = {node.name: i for i, node in enumerate(graph.as_graph_def().node)}
    return Mutant(
        nodes=[
            Node(op=node.op, inputs=tuple(position[name] for name in node.input))
            for node in graph.as_graph_def().node
        ]
    )


def _change_op(mutant: Mutant, rng: random.Random) -> None:
    position = rng.randrange(len(mutant.nodes))
    for family in (UNARY, BINARY):
        if mutant.nodes[position].op in family:
            mutant.replace(position, op=rng.choice(family))


def _change_dtype(mutant: Mutant, rng: random.Random) -> None:
    mutant.dtype = rng.choice(DTYPES)


def _change_shape(mutant: Mutant, rng: random.Random) -> None:
    mutant.width = rng.randrange(1, 100)


def _change_attribute(mutant: Mutant, rng: random.Random) -> None:
    position = rng.randrange(len(mutant.nodes))
    if mutant.nodes[position].op == "MatMul":
        mutant.replace(position, flags=rng.choice([(False, True), (True, False), (True, True)]))


def _change_edge(mutant: Mutant, rng: random.Random) -> None:
    position = rng.randrange(len(mutant.nodes))
    inputs = list(mutant.nodes[position].inputs)
    if inputs:
        inputs[rng.randrange(len(inputs))] = rng.randrange(position)
        mutant.replace(position, inputs=tuple(inputs))
        mutant.prune()


def _change_control_edge(mutant: Mutant, rng: random.Random) -> None:
    position = rng.randrange(1, len(mutant.nodes))
    if mutant.nodes[position].inputs:
        controls = mutant.nodes[position].controls ^ {rng.randrange(position)}
        mutant.replace(position, controls=controls)


def _change_pin(mutant: Mutant, rng: random.Random) -> None:
    mutant.replace(rng.randrange(len(mutant.nodes)), pin=rng.choice(PINS))


def _add_op(mutant: Mutant, rng: random.Random) -> None:
    """One more op in an edge."""
    position = rng.randrange(len(mutant.nodes))
    inputs = mutant.nodes[position].inputs
    if not inputs:
        return
    edge = rng.randrange(len(inputs))

    def moved(i: int) -> int:
        return i + (i >= position)

    nodes = [
        Node(
            op=node.op,
            inputs=tuple(map(moved, node.inputs)),
            controls=frozenset(map(moved, node.controls)),
            flags=node.flags,
            pin=node.pin,
        )
        for node in mutant.nodes
    ]
    nodes.insert(position, Node(op=rng.choice(UNARY), inputs=(inputs[edge],)))
    mutant.nodes = nodes
    mutant.more_targets = set(map(moved, mutant.more_targets))
    now = list(nodes[position + 1].inputs)
    now[edge] = position
    mutant.replace(position + 1, inputs=tuple(now))


def _remove_op(mutant: Mutant, rng: random.Random) -> None:
    """Consumers of the op take its first input instead."""
    position = rng.randrange(len(mutant.nodes))
    inputs = mutant.nodes[position].inputs
    if not inputs or position == len(mutant.nodes) - 1:
        return
    for i, node in enumerate(mutant.nodes):
        if position in node.inputs:
            now = tuple(inputs[0] if j == position else j for j in node.inputs)
            mutant.replace(i, inputs=now)
    mutant.prune()


def change_targets(mutant: Mutant, rng: random.Random) -> None:
    mutant.more_targets = mutant.more_targets ^ {rng.randrange(len(mutant.nodes) - 1)}


def change_devices(mutant: Mutant, rng: random.Random) -> None:
    mutant.num_devices = rng.randrange(2, 5)


def change_soft_placement(mutant: Mutant, rng: random.Random) -> None:
    mutant.soft_placement = not mutant.soft_placement


Change = Callable[[Mutant, random.Random], None]
CHANGES: list[Change] = [
    _change_op,
    _change_dtype,
    _change_shape,
    _change_attribute,
    _change_edge,
    _change_control_edge,
    _change_pin,
    _add_op,
    _remove_op,
    change_targets,
    change_devices,
    change_soft_placement,
]
_LOCAL = [_change_op, _change_edge, _change_control_edge, _change_pin, _add_op, _remove_op]


def mutate(base: Mutant, rng: random.Random) -> Mutant:
    """Half of the changes are to single ops and edges, where graphs resemble each other most."""
    mutant = Mutant(nodes=list(base.nodes))
    for _ in range(rng.randint(1, 12)):
        change = rng.choice(rng.choice([CHANGES, _LOCAL]))
        if len(mutant.nodes) > 2:
            change(mutant, rng)
    return mutant


def graph_def(mutant: Mutant, rng: random.Random) -> tuple[Any, list[str]]:
    """The GraphDef under random names in random order, and its targets."""
    from tensorflow.core.framework import graph_pb2

    labels = rng.sample(range(1000), len(mutant.nodes))
    names = [f"{rng.choice('abc')}/op_{label}" for label in labels]
    order = rng.sample(range(len(names)), len(names))
    graph = graph_pb2.GraphDef()
    graph.versions.producer = 1882
    for position in order:
        node = mutant.nodes[position]
        controls = [f"^{names[i]}" for i in node.controls]
        rng.shuffle(controls)
        proto = graph.node.add(name=names[position], op=node.op, device=node.pin)
        proto.input.extend([*(names[i] for i in node.inputs), *controls])
        if node.op == "Placeholder":
            proto.attr["dtype"].type = mutant.dtype
            for _ in range(2):
                proto.attr["shape"].shape.dim.add(size=mutant.width)
            continue
        proto.attr["T"].type = mutant.dtype
        if node.op == "MatMul":
            for name, flag in zip(FLAGS, node.flags, strict=True):
                proto.attr[name].b = flag
    targets = [names[-1], *(names[i] for i in mutant.more_targets)]
    rng.shuffle(targets)
    return graph, targets


@functools.cache
def _machine(num_devices: int) -> dict[str, Any]:
    tf_module = native.load()
    devices = [
        tf_module.SessionDevice(
            name=f"/job:localhost/replica:0/task:0/device:CPU:{i}",
            type="CPU",
            description="",
            memory_bytes=1 << 28,
        )
        for i in range(num_devices)
    ]
    kinds: list[DeviceKind] = list(machines.detect(devices).kinds)
    return {"devices": devices, "rates": native.machine_rates(kinds)}


def captured(
    graph: Any, targets: list[str], num_devices: int = 2, soft_placement: bool = True
) -> Any:
    """What the pass sees of the step of these targets in a session of CPU devices."""
    return native.load().capture_graph(
        graph.SerializeToString(),
        **_machine(num_devices),
        function="",
        argument_devices=[],
        handles=[],
        free_arguments=[],
        targets=targets,
        allow_soft_placement=soft_placement,
        batch_size=0,
        loop_trip_count=10,
        shapes={},
    )


def fingerprint(
    graph: Any, targets: list[str], num_devices: int = 2, soft_placement: bool = True
) -> str:
    """What the pass computes for it."""
    return str(captured(graph, targets, num_devices, soft_placement).fingerprint)


def _mutant(base: Mutant, seed: int, index: int) -> tuple[Mutant, random.Random]:
    rng = random.Random(f"{seed}/{index}")
    return mutate(base, rng), rng


def hash_mutants(seed: int, begin: int, end: int) -> NDArray[np.uint64]:
    """uint64[end - begin, 5]: digest of the form (2 words), fingerprint (2 words), index."""
    base = base_graph()
    rows = np.empty((end - begin, 5), np.uint64)
    for row, index in zip(rows, range(begin, end), strict=True):
        mutant, rng = _mutant(base, seed, index)
        digest = hashlib.blake2b(repr(mutant.form()).encode(), digest_size=16).digest()
        key = fingerprint(*graph_def(mutant, rng), mutant.num_devices, mutant.soft_placement)
        row[:2] = np.frombuffer(digest, np.uint64)
        row[2:4] = np.frombuffer(bytes.fromhex(key), np.uint64)
        row[4] = index
    return rows


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What comparing the mutants of `hash_mutants` has shown."""

    mutants: int
    distinct: int
    collisions: list[tuple[int, int]]  # indices: different graphs, one fingerprint
    splits: list[tuple[int, int]]  # indices: one graph, different fingerprints


def compare(rows: NDArray[np.uint64]) -> Outcome:
    def pairs(same: slice, other: slice) -> list[tuple[int, int]]:
        keys = [rows[:, i] for i in range(*same.indices(4))]
        values = [rows[:, i] for i in range(*other.indices(4))]
        ordered = rows[np.lexsort(values + keys)]
        first, second = ordered[:-1], ordered[1:]
        found = (first[:, same] == second[:, same]).all(1)
        found &= (first[:, other] != second[:, other]).any(1)
        return [(int(a), int(b)) for a, b in zip(first[found, 4], second[found, 4], strict=True)]

    form, key = slice(0, 2), slice(2, 4)
    distinct = len(np.unique(rows[:, form], axis=0))
    return Outcome(
        mutants=len(rows), distinct=distinct, collisions=pairs(key, form), splits=pairs(form, key)
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000, help="mutants (1000000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    outcome = compare(hash_mutants(options.seed, 0, options.count))
    print(
        f"{outcome.mutants:,} mutants, {outcome.distinct:,} distinct graphs: "
        f"{len(outcome.collisions)} collisions, {len(outcome.splits)} graphs with two fingerprints"
    )
    base = base_graph()
    for first, second in outcome.collisions[:5] + outcome.splits[:5]:
        for index in (first, second):
            print(f"{index}: {_mutant(base, options.seed, index)[0].form()}")
    return int(bool(outcome.collisions or outcome.splits))


if __name__ == "__main__":
    sys.exit(main())
