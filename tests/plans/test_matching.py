"""How the nodes of a plan are found again in a graph."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.plans.matching import map_nodes
from tests.plans.test_plan import make_plan


def nodes(
    names: Sequence[str], hashes: list[int], *, ranks: Sequence[int] = (), structure: int = 0
) -> SimpleNamespace:
    """What `map_nodes` needs to know of a graph."""
    return SimpleNamespace(
        node_names=list(names),
        node_hashes=np.array(hashes, np.uint64),
        node_ranks=np.array(ranks, np.uint32),
        structure=structure,
    )


@settings(max_examples=100)
@given(st.data())
def test_nodes_are_found_again_whatever_their_order_and_names(data: st.DataObject) -> None:
    """Alike are nodes of one hash; a renamed graph keeps hashes, and maybe some of the names."""
    hashes = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=12))
    devices = [value % 3 for value in hashes]  # alike, hence on the same device
    names = [f"n{i}" for i in range(len(hashes))]
    plan = make_plan(
        node_names=names,
        node_hashes=np.array(hashes, np.uint64),
        node_devices=np.array(devices, np.int32) % 2,
    )
    order = data.draw(st.permutations(range(len(hashes))))
    renamed = data.draw(st.lists(st.booleans(), min_size=len(hashes), max_size=len(hashes)))
    others = data.draw(st.integers(0, 3))  # nodes that the plan does not tell of
    new_names = [f"m{i}" if renamed[i] else names[i] for i in order]
    new_names += [f"other{i}" for i in range(others)]
    new_hashes = [hashes[i] for i in order] + [100 + i for i in range(others)]
    found = map_nodes(plan, nodes(new_names, new_hashes))
    assert found.tolist() == [devices[i] % 2 for i in order] + [-1] * others


def test_ties_and_strangers_are_errors() -> None:
    twins = make_plan(
        node_names=["a", "b"], node_hashes=np.array([7, 7]), node_devices=np.array([0, 1])
    )
    assert map_nodes(twins, nodes("ba", [7, 7])).tolist() == [1, 0]
    with pytest.raises(PlanError, match=r"are alike .*, and nothing tells them apart"):
        map_nodes(twins, nodes("xy", [7, 7]))
    single = make_plan(node_names=["a"], node_hashes=np.array([7]), node_devices=np.array([0]))
    with pytest.raises(PlanError, match=r"1 of its 1 nodes are not in this graph, such as 'a'"):
        map_nodes(single, nodes("a", [8]))
    with pytest.raises(PlanError, match=r"are alike"):  # which of the two?
        map_nodes(single, nodes("xy", [7, 7]))


def test_ranks_tell_alike_nodes_apart() -> None:
    plan = make_plan(
        node_names=["a", "b", "c"],
        node_hashes=np.array([7, 7, 8]),
        node_ranks=np.array([1, 0, 0]),
        structure=5,
        node_devices=np.array([0, 1, 0]),
    )
    for names, devices in {
        "xyc": [1, 0, 0],
        "xyz": [1, 0, 0],
        "abz": [0, 1, 0],  # names count where they suffice
        "ayz": [0, 1, 0],
        "ybz": [0, 1, 0],
        "baz": [1, 0, 0],
    }.items():
        graph = nodes(names, [7, 7, 8], ranks=[0, 1, 0], structure=5)
        assert map_nodes(plan, graph).tolist() == devices, names
    with pytest.raises(PlanError, match=r"this graph joins them in another way"):
        map_nodes(plan, nodes("xyc", [7, 7, 8], ranks=[0, 1, 0], structure=6))
    with pytest.raises(PlanError, match=r"nothing tells them apart"):
        map_nodes(plan, nodes("xyc", [7, 7, 8]))
    one_unplanned = nodes("xycd", [7, 7, 8, 7], ranks=[0, 2, 0, 1], structure=5)
    assert map_nodes(plan, one_unplanned).tolist() == [1, -1, 0, 0]
