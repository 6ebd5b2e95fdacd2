"""What tells graphs apart that are nearly the same, over graphs captured in this process."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from tests import fingerprint_collisions
from tests.fingerprint_collisions import base_graph, compare, fingerprint, hash_mutants

v1 = tf.compat.v1


def train_towers(*layers: int) -> str:
    """The fingerprint of a training step of towers that share all but their number of layers."""
    with tf.Graph().as_default() as graph:
        x = tf.ones([4, 8])
        updates = []
        for number in layers:
            w = v1.get_variable(f"w{len(updates)}", [8, 8], initializer=v1.zeros_initializer())
            y = x
            for _ in range(number):
                y = tf.tanh(tf.matmul(y, w))
            optimizer = v1.train.GradientDescentOptimizer(0.1)
            updates.append(optimizer.minimize(tf.reduce_sum(y), var_list=[w]))
        tf.group(*updates, name="step")
    return fingerprint(graph.as_graph_def(), ["step"])


def test_layers_moved_from_one_tower_to_the_other() -> None:
    """As many ops of each kind, and all of them equal: only their joints differ."""
    keys = {first: train_towers(first, 20 - first) for first in range(1, 20)}
    assert keys[9] != keys[10]
    assert len(set(keys.values())) == 10
    assert all(keys[first] == keys[20 - first] for first in keys), "towers have no order"


def test_shared_and_repeated_ops_differ() -> None:
    """The same formula, computed once or twice."""

    def key(repeated: bool) -> str:
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [8, 8])
            a = tf.tanh(x)
            tf.add(a, tf.tanh(x) if repeated else a, name="sum")
        return fingerprint(graph.as_graph_def(), ["sum"])

    assert key(True) != key(False)


@pytest.mark.xfail(strict=True, reason="a node is known by its ancestors and consumers alone")
def test_equal_towers_joined_without_order() -> None:
    """Two towers, or one ring of the same ops: no op and no order of inputs tells them apart."""

    def key(crossed: bool) -> str:
        with tf.Graph().as_default() as graph:
            sources = [v1.placeholder(tf.float32, [8, 8]) for _ in range(2)]
            left, right = map(tf.tanh, sources), [tf.exp(x) for x in sources]
            ends = [a + b for a, b in zip(left, reversed(right) if crossed else right, strict=True)]
            tf.group(*ends, name="step")
        return fingerprint(graph.as_graph_def(), ["step"])

    assert key(True) != key(False)


def test_mutants_collide_only_with_themselves() -> None:
    """A small version of `python -m tests.fingerprint_collisions`."""
    outcome = compare(hash_mutants(seed=2, begin=0, end=2000))
    assert outcome.collisions == outcome.splits == []
    assert 1500 < outcome.distinct < outcome.mutants, "no mutant met another with its form"


CHANGED_PARTS = {
    fingerprint_collisions.change_targets: {"targets"},
    fingerprint_collisions.change_devices: {"machine"},
    fingerprint_collisions.change_soft_placement: {"constraints"},
}


@pytest.mark.parametrize("change", fingerprint_collisions.CHANGES)
def test_every_kind_of_mutation_counts(change: fingerprint_collisions.Change) -> None:
    """One change of the form is one of the fingerprint, in the part that tells of it."""

    def parts(mutant: fingerprint_collisions.Mutant) -> dict[str, str]:
        graph = fingerprint_collisions.graph_def(mutant, random.Random(0))
        found = fingerprint_collisions.captured(*graph, mutant.num_devices, mutant.soft_placement)
        return dict(found.fingerprint_parts)

    base = base_graph()
    usual = parts(base)
    assert list(usual) == ["graph", "targets", "machine", "constraints", "format"]
    found = {base.form(): usual}
    for seed in range(20):
        mutant = base_graph()
        change(mutant, random.Random(seed))
        found[mutant.form()] = parts(mutant)
    assert len({*map(str, found.values())}) == len(found) > 1
    changed = {part for other in found.values() for part in usual if other[part] != usual[part]}
    # Targets are told apart by what they compute.
    assert changed == CHANGED_PARTS.get(change, {"graph", "targets"})


def test_a_collision_is_seen() -> None:
    rows = hash_mutants(seed=2, begin=0, end=50)
    first, second = 4, 8
    assert (rows[first, :2] != rows[second, :2]).any()
    rows[first, 2:4] = rows[second, 2:4]
    assert set(map(frozenset, compare(rows).collisions)) == {frozenset({first, second})}
    rows = hash_mutants(seed=2, begin=0, end=50)
    rows[first, :2] = rows[second, :2]
    assert set(map(frozenset, compare(rows).splits)) == {frozenset({first, second})}
