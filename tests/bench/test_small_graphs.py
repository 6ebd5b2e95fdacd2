"""The small graphs of the benchmarks train all their variables, and cuts by hand cut them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hplacer_optimizer.bench.cluster_tasks import TASKS, ClusterTask
from hplacer_optimizer.bench.small_graphs import GRAPHS, write

OWN = [name for name, build in GRAPHS.items() if not isinstance(build, tuple)]  # no workloads


def nodes_of(path: Path) -> list[Any]:
    """The nodes of a MetaGraphDef file."""
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

    return list(MetaGraphDef.FromString(path.read_bytes()).graph_def.node)


@pytest.mark.parametrize("name", OWN)
def test_every_variable_of_a_graph_is_trained(name: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.meta"
    write(name, path)
    nodes = nodes_of(path)
    ops = Counter(node.op for node in nodes)
    variables = ops["VarHandleOp"] + ops["VariableV2"]
    assert variables > 0
    updates = ("ResourceApplyGradientDescent", "ApplyGradientDescent")
    of_rows = ("ResourceScatterAdd", "ResourceScatterSub", "ScatterSub")
    assert sum(ops[kind] for kind in (*updates, *of_rows)) == variables


@pytest.mark.parametrize(
    "task", [task for task in TASKS if task.by_hand], ids=lambda task: task.name
)
def test_every_part_of_a_cut_by_hand_is_in_its_graph(task: ClusterTask, tmp_path: Path) -> None:
    task.write(tmp_path / "graph.meta")
    names = [node.name for node in nodes_of(tmp_path / "graph.meta")]
    for rules in task.by_hand:
        assert {*rules.values()} == {0, 1}
        for expression in rules:
            for part in expression.split("|"):
                assert any(re.search(part, name) for name in names), part
