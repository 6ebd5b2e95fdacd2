"""Alike nodes told apart: the order that a capture gives them, and plans mapped with it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.plans.matching import map_nodes
from hplacer_optimizer.plans.plan import Plan
from tests.fingerprint_collisions import BINARY, UNARY, captured
from tests.plans.test_plan import make_plan


@dataclass(frozen=True, kw_only=True)
class Op:
    """Inputs, controls and `beside`, whose device it shares, are positions of earlier ops."""

    type: str
    inputs: tuple[int, ...] = ()
    controls: frozenset[int] = frozenset()
    beside: int | None = None


def symmetric_graph(rng: random.Random) -> list[Op]:
    """Copies of a random block with shared inputs, perhaps in a ring, joined without any order."""
    block: list[Op] = []
    for position in range(rng.randint(3, 8)):
        kind = rng.choice(["Placeholder", "unary", "binary"]) if position else "Placeholder"
        inputs = {"Placeholder": 0, "unary": 1, "binary": 2}[kind]
        choices = [-1, *range(position)]  # -1: the shared input
        block.append(
            Op(
                type={"unary": rng.choice(UNARY), "binary": rng.choice(BINARY)}.get(kind, kind),
                inputs=tuple(rng.choice(choices) for _ in range(inputs)),
                controls=frozenset(rng.sample(range(position), rng.randint(0, min(position, 2)))),
                beside=rng.randrange(position) if position and rng.random() < 0.3 else None,
            )
        )
    size, copies = len(block), rng.randint(2, 4)
    ops = [Op(type="Placeholder")]

    def moved(copy: int, position: int) -> int:
        return 0 if position < 0 else 1 + copy * size + position

    for copy in range(copies):
        for op in block:
            inputs = tuple(moved(copy, i) for i in op.inputs)
            controls = frozenset(moved(copy, i) for i in op.controls)
            beside = None if op.beside is None else moved(copy, op.beside)
            ops.append(Op(type=op.type, inputs=inputs, controls=controls, beside=beside))
    for copy in range(copies if rng.random() < 0.5 else 0):
        here, there = rng.randrange(size), rng.randrange(size)
        ring = rng.choice(BINARY)
        if copy == 0:
            first = (here, there, ring)
        here, there, ring = first
        inputs = (moved(copy, here), moved((copy + 1) % copies, there))
        ops.append(Op(type=ring, inputs=inputs))
    return [*ops, Op(type="NoOp", controls=frozenset(range(len(ops))))]


def capture(ops: list[Op], rng: random.Random) -> tuple[Any, list[int]]:
    """What the pass sees under random names in random order, and the op of each of its nodes."""
    graph = tf.Graph().as_graph_def()
    names = [f"{rng.choice('abc')}/op_{label}" for label in rng.sample(range(1000), len(ops))]
    for position in rng.sample(range(len(ops)), len(ops)):
        op = ops[position]
        controls = [f"^{names[i]}" for i in op.controls]
        rng.shuffle(controls)
        node = graph.node.add(name=names[position], op=op.type)
        node.input.extend([*(names[i] for i in op.inputs), *controls])
        if op.beside is not None:
            node.attr["_class"].list.s.append(f"loc:@{names[op.beside]}".encode())
        if op.type == "Placeholder":
            node.attr["dtype"].type = tf.float32.as_datatype_enum
        elif op.type != "NoOp":
            node.attr["T"].type = tf.float32.as_datatype_enum
    found = captured(graph, [names[-1]])
    return found, [names.index(name) for name in found.node_names]


def plan_of(graph: Any, node_devices: Any) -> Plan:
    return make_plan(
        fingerprint=graph.fingerprint,
        node_names=graph.node_names,
        node_hashes=graph.node_hashes,
        node_ranks=graph.node_ranks,
        structure=graph.structure,
        node_devices=node_devices,
    )


def groups(ops: list[Op]) -> set[frozenset[int]]:
    """The sets of ops that share a device."""
    group_of = {i: frozenset([i]) for i in range(len(ops))}
    for i, op in enumerate(ops):
        if op.beside is not None:
            joined = group_of[i] | group_of[op.beside]
            group_of |= dict.fromkeys(joined, joined)
    return set(group_of.values())


def test_a_renamed_graph_gets_an_isomorphic_image_of_the_plan() -> None:
    ties = 0
    for seed in range(200):
        rng = random.Random(seed)
        ops = symmetric_graph(rng)
        (first, op_of_first), (second, op_of_second) = capture(ops, rng), capture(ops, rng)
        assert len(op_of_first) == len(op_of_second) == len(ops)
        assert (first.fingerprint, first.structure) == (second.fingerprint, second.structure)
        planned = zip(first.node_hashes.tolist(), first.node_ranks.tolist(), strict=True)
        found = zip(second.node_hashes.tolist(), second.node_ranks.tolist(), strict=True)
        op_of_key = dict(zip(planned, op_of_first, strict=True))
        image = {op_of_key[key]: op for key, op in zip(found, op_of_second, strict=True)}
        assert image.keys() == set(range(len(ops)))
        for position, op in enumerate(ops):
            other = ops[image[position]]
            assert other.type == op.type
            assert other.inputs == tuple(image[i] for i in op.inputs)
            assert other.controls == {image[i] for i in op.controls}
        assert {frozenset(image[i] for i in group) for group in groups(ops)} == groups(ops)

        unit_devices = np.array([rng.randrange(2) for _ in range(first.num_units)])
        node_devices = unit_devices[first.units[first.node_op]]
        mapped = map_nodes(plan_of(first, node_devices), second)
        for unit in range(second.num_units):
            assert len(set(mapped[second.units[second.node_op] == unit].tolist())) == 1
        if len({*zip(first.node_hashes.tolist(), node_devices.tolist(), strict=True)}) > len(
            set(first.node_hashes.tolist())
        ):
            ties += 1
            device_of_op = dict(zip(op_of_second, mapped.tolist(), strict=True))
            for position, device in zip(op_of_first, node_devices.tolist(), strict=True):
                assert device_of_op[image[position]] == device
    assert ties > 150, "most plans put alike nodes on different devices"


def test_equal_towers_are_no_ring() -> None:
    """Two towers, or one ring of the same ops: a plan of one is none of the other."""

    def build(crossed: bool) -> Any:
        ops = [Op(type="Placeholder"), Op(type="Placeholder")]
        ops += [Op(type=kind, inputs=(i,)) for kind in ("Tanh", "Exp") for i in range(2)]
        ops += [Op(type="AddV2", inputs=(2 + i, 4 + (i ^ crossed))) for i in range(2)]
        ops += [Op(type="NoOp", controls=frozenset(range(len(ops))))]
        return capture(ops, random.Random(int(crossed)))[0]

    towers, ring = build(False), build(True)
    plan = plan_of(towers, np.arange(9) % 2)
    assert towers.structure != ring.structure
    with pytest.raises(PlanError, match=r"are alike .* this graph joins them in another way"):
        map_nodes(plan, ring)
