"""What TensorFlow executes in a process: the nodes of every function and session, with devices.

    environment(directory)          for the process: functions write their graphs there
    record_sessions(directory)      in the process, before the first session: so do these
    save(directory, partitions)     or the process does it, as to one graph
    read(directory)                 those that differ, each {name of a node: its devices}
    check(problem, graphs, least)   its ops are where its default placement has them

Partitions are read after TensorFlow's placer and its graph optimizers, as the last step before they
run. The optimizers remove, rename and add nodes: only names on both sides can be compared. A node
that several were merged into has the name of one and the device of another, so it is left out.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.machines import full_device_name

Graph = dict[str, set[str]]
_END = ".after_partition_passes.pb"
_LEFT_OUT = re.compile("_(Host)?(Send|Recv)|_(Mkl|MklNative)?Fused.*")  # types of nodes
_DO_NOT_COMPUTE = {"Const", "Identity", "NoOp"}


def environment(directory: Path) -> dict[str, str]:
    """Variables for TensorFlow, and for tests/script_launcher.py as to sessions."""
    directory.mkdir(parents=True, exist_ok=True)
    return {
        "TEST_EXECUTED": str(directory),
        "TF_DUMP_GRAPH_PREFIX": str(directory),
        "TF_DUMP_GRAPH_NAME_FILTER": "*",
        "TF_DUMP_GRAPH_FMT": "BIN",
    }


def record_sessions(directory: Path) -> None:
    """From now on, for every `run` of a session in this process."""
    import tensorflow as tf
    from tensorflow.python.client import session

    v1 = tf.compat.v1
    original = session.BaseSession.run

    def run(
        self: Any,
        fetches: Any,
        feed_dict: Any = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        asked = v1.RunOptions(output_partition_graphs=True)
        if options is not None:
            asked.MergeFrom(options)
        told = v1.RunMetadata() if run_metadata is None else run_metadata
        result = original(self, fetches, feed_dict, asked, told)
        save(directory, told.partition_graphs)
        return result

    session.BaseSession.run = run


def save(directory: Path, partitions: Iterable[Any]) -> None:
    """The partitions of one graph, for `read`; the same ones again change nothing."""
    import tensorflow as tf

    nodes = (node for partition in partitions for node in partition.node)
    data = tf.compat.v1.GraphDef(node=nodes).SerializeToString(deterministic=True)
    directory.mkdir(exist_ok=True)
    (directory / f"session_{hashlib.sha256(data).hexdigest()}{_END}").write_bytes(data)


def read(directory: Path) -> list[Graph]:
    """The distinct graphs of the process, which has ended; removes its files, which are large."""
    from tensorflow.core.framework import graph_pb2

    nodes: dict[str, list[Any]] = defaultdict(list)
    for path in directory.glob(f"*{_END}"):
        function = path.name.partition("_partition_")[0]
        nodes[function] += graph_pb2.GraphDef.FromString(path.read_bytes()).node
    shutil.rmtree(directory)
    graphs = sorted(map(graph_of, nodes.values()), key=_order)
    # A session partitions one graph at times in another order of its nodes.
    return [graph for i, graph in enumerate(graphs) if i == 0 or graph != graphs[i - 1]]


def graph_of(nodes: Iterable[Any]) -> Graph:
    """The devices by name; of nodes with the fields `name`, `op` and `device`."""
    graph: Graph = {}
    for node in nodes:
        if not _LEFT_OUT.fullmatch(node.op):
            graph.setdefault(node.name, set()).add(node.device)
    return graph


def _order(graph: Graph) -> list[tuple[str, list[str]]]:
    return sorted((name, sorted(devices)) for name, devices in graph.items())


def default_devices(problem: Problem) -> dict[str, str]:
    """Where TensorFlow's own placer would put each op, as the problem knows it.

    Leaves out while loops, each of which is one op of the problem and many of the executed graph.
    """
    assert problem.default_device is not None
    names = [full_device_name(name) for name in problem.device_names]
    return {
        name: names[device]
        for name, kind, device in zip(
            problem.op_names, problem.op_types, problem.default_device.tolist(), strict=True
        )
        if kind != "WhileLoop"
    }


def closest(known: Mapping[str, str], graphs: Iterable[Graph]) -> Graph:
    """The graph of these ops: most of the names of the two are on both sides.

    Of several such graphs, as of a function that was traced twice, the one that agrees the most.
    """

    def rank(graph: Graph) -> tuple[float, int]:
        common = known.keys() & graph.keys()
        agreeing = sum(graph[name] == {known[name]} for name in common)
        return len(common) / len(known.keys() | graph.keys()), agreeing

    return max(graphs, key=rank)


def check(problem: Problem, graphs: Collection[Graph], least: float) -> None:
    """Fails if an op of the problem runs elsewhere, or if too few can be compared.

    `least` is the share of those that compute: of the others, most are removed before a step runs.
    """
    known = default_devices(problem)
    graph = closest(known, graphs)
    common = sorted(known.keys() & graph.keys())
    elsewhere = [
        (name, known[name], graph[name]) for name in common if graph[name] != {known[name]}
    ]
    assert not elsewhere, f"TensorFlow runs {elsewhere}"
    types = dict(zip(problem.op_names, problem.op_types, strict=True))
    computing = {name for name in known if types[name] not in _DO_NOT_COMPUTE}
    compared = computing.intersection(common)
    assert len(compared) >= least * len(computing), f"{len(compared)} of {len(computing)} ops run"
