"""How the nodes of a plan are found again in a graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.plans.matching import map_nodes
from tests.plans.test_plan import make_plan


@settings(max_examples=200)
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
    found = map_nodes(plan, new_names, np.array(new_hashes, np.uint64))
    assert found.tolist() == [devices[i] % 2 for i in order] + [-1] * others


def test_ties_and_strangers_are_errors() -> None:
    twins = make_plan(
        node_names=["a", "b"], node_hashes=np.array([7, 7]), node_devices=np.array([0, 1])
    )
    assert map_nodes(twins, ["b", "a"], np.array([7, 7], np.uint64)).tolist() == [1, 0]
    with pytest.raises(PlanError, match=r"like 'b' are alike but have different devices"):
        map_nodes(twins, ["x", "y"], np.array([7, 7], np.uint64))
    single = make_plan(node_names=["a"], node_hashes=np.array([7]), node_devices=np.array([0]))
    with pytest.raises(PlanError, match=r"1 of its 1 nodes are not in this graph, such as 'a'"):
        map_nodes(single, ["a"], np.array([8], np.uint64))
    with pytest.raises(PlanError, match="not in this graph"):  # which of the two?
        map_nodes(single, ["x", "y"], np.array([7, 7], np.uint64))
