"""What a stored plan costs at start-up, against what TensorFlow itself needs to place the graph.

    python benchmarks/hit_overhead.py [--nodes 50000] [--repeats 3] [--json]

The graph is an unrolled LSTM with Adam in a TF1 session over two logical CPU devices. Measured is
the first run of a constant, for which TensorFlow extends the session with the whole graph and
places it; the training step itself never runs. Every measurement is a process of its own:

    without    the optimizer's entry is not in the config
    disabled   it is asked for, under HPLACER_DISABLE=1
    hit        the plan is in the store, and takes effect (min_gain=-1)
    kept       it is in the store, and the guard keeps TensorFlow's placement

Goals: the time inside the pass on a hit, over the time of the first run without: below 5%. A graph
that is kept costs no more than one that is hit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MODES = ("without", "disabled", "hit", "kept")
OUTCOMES = {"miss": "planned", "hit": "loaded", "kept": "kept"}
GOAL = 0.05
TRAIN_OP, TRIVIAL = "train_op", "trivial"
_LAYERS, _WIDTH, _BATCH = 4, 8, 4
_PARTS = ("pass_s", "fingerprint_s", "lookup_s", "rewrite_s")


def main(argv: Sequence[str] | None = None) -> int:
    """Builds the graph, measures every mode, prints medians. Exit code 1: the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=50_000, help="at least; default: 50000")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    parser.add_argument("--child", nargs=3, metavar=("STEP", "GRAPH", "CACHE"), help="internal")
    options = parser.parse_args(argv)
    if options.child:
        step, graph, cache = options.child
        report = build(graph, options.nodes) if step == "build" else measure(step, graph, cache)
        print("\n" + json.dumps(report))
        return 0
    with tempfile.TemporaryDirectory(prefix="hplacer-benchmark-") as directory:
        result = run_all(Path(directory), options.nodes, options.repeats)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print_result(result)
    return 0 if result["ratio"] < GOAL else 1


def run_all(directory: Path, nodes: int, repeats: int) -> dict[str, Any]:
    """One build, one planning run, then the modes in turn."""
    arguments = (str(directory / "graph.pb"), str(directory / "plans"))
    note(f"building a graph of at least {nodes} nodes")
    built = child("build", *arguments, nodes=nodes)
    note("planning it")
    planned = child("miss", *arguments)
    check("miss", planned)
    reports: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    for repeat in range(1, repeats + 1):
        for mode in MODES:
            note(f"measuring {mode}, {repeat} of {repeats}")
            reports[mode].append(child(mode, *arguments))
            check(mode, reports[mode][-1])
    first_run_s = {mode: median(reports[mode], "first_run_s") for mode in MODES}
    parts = {part: median(reports["hit"], part) for part in _PARTS}
    return {
        "nodes": built["nodes"],
        "repeats": repeats,
        "planning_s": planned["planning_s"],
        "first_run_s": first_run_s,
        "hit": parts,
        "kept": {part: median(reports["kept"], part) for part in _PARTS},
        "ratio": parts["pass_s"] / first_run_s["without"],
        "disabled_ratio": first_run_s["disabled"] / first_run_s["without"] - 1,
        "goal": GOAL,
    }


def check(mode: str, report: dict[str, Any]) -> None:
    """Ends the benchmark if something else would be measured."""
    expected = OUTCOMES.get(mode)
    if expected is not None and report["outcome"] != expected:
        raise SystemExit(f"{mode}: the graph was {report['outcome']}: {report['reason']}")


def child(step: str, graph: str, cache: str, *, nodes: int = 0) -> dict[str, Any]:
    """Runs one step in a process of its own; its last line of output is the report."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HPLACER_")}
    switch = {"HPLACER_DISABLE": "1"} if step == "disabled" else {"HPLACER_LOG": "warning"}
    command = [sys.executable, __file__, "--nodes", str(nodes), "--child", step, graph, cache]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "2", **switch},
    )
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


# ---- in the child ----


def build(path: str, nodes: int) -> dict[str, Any]:
    """Writes the GraphDef of an LSTM with Adam, unrolled until it has this many nodes."""
    import tensorflow as tf

    v1 = tf.compat.v1
    nodes_per_step = (count_nodes(unrolled(v1, 6)) - count_nodes(unrolled(v1, 2))) / 4
    graph = unrolled(v1, int(nodes / nodes_per_step) + 1)
    Path(path).write_bytes(graph.as_graph_def().SerializeToString())
    return {"nodes": count_nodes(graph)}


def count_nodes(graph: Any) -> int:
    return len(graph.get_operations())


def unrolled(v1: Any, length: int) -> Any:
    """A training graph over a sequence of this length."""
    graph = v1.Graph()
    with graph.as_default():
        v1.enable_resource_variables()
        v1.constant(0.0, name=TRIVIAL)
        columns = 4 * _WIDTH
        kernels = [v1.get_variable(f"w{n}", (2 * _WIDTH, columns)) for n in range(_LAYERS)]
        biases = [v1.get_variable(f"b{n}", (columns,)) for n in range(_LAYERS)]
        outputs = [v1.zeros((_BATCH, _WIDTH))] * _LAYERS
        cells = [v1.zeros((_BATCH, _WIDTH))] * _LAYERS
        inputs = v1.placeholder(v1.float32, (_BATCH, length, _WIDTH))
        losses = []
        for signal in v1.unstack(inputs, axis=1):
            for layer in range(_LAYERS):
                gates = v1.concat([signal, outputs[layer]], 1) @ kernels[layer] + biases[layer]
                update, forget, keep, show = v1.split(gates, 4, axis=1)
                new = v1.sigmoid(update) * v1.tanh(keep)
                cells[layer] = v1.sigmoid(forget) * cells[layer] + new
                signal = outputs[layer] = v1.sigmoid(show) * v1.tanh(cells[layer])
            losses.append(v1.reduce_mean(signal**2))
        v1.train.AdamOptimizer().minimize(v1.add_n(losses), name=TRAIN_OP)
    return graph


def measure(mode: str, path: str, cache: str) -> dict[str, Any]:
    """The first run of a constant in a session that holds the graph."""
    import tensorflow as tf

    v1 = tf.compat.v1
    definition = v1.GraphDef.FromString(Path(path).read_bytes())
    config = v1.ConfigProto(device_count={"CPU": 2})
    if mode != "without":
        from hplacer_optimizer import session_config

        # Two devices that share cores: no plan is faster, so the guard would keep every one.
        gain = None if mode == "kept" else -1
        config = session_config(
            config, cache=cache, targets=[TRAIN_OP], timeout_s=300.0, min_gain=gain
        )
    with tf.Graph().as_default() as graph:
        v1.import_graph_def(definition, name="")
        with v1.Session(graph=graph, config=config) as session:
            start_s = time.perf_counter()
            session.run(f"{TRIVIAL}:0")
            first_run_s = time.perf_counter() - start_s
    return {"first_run_s": first_run_s, **optimizer_report(mode)}


def optimizer_report(mode: str) -> dict[str, Any]:
    if mode not in OUTCOMES:
        return {}
    from hplacer_optimizer.plugin import service as plugin

    (entry,) = plugin.history()
    return vars(entry)


# ---- printing ----


def median(reports: Sequence[dict[str, Any]], key: str) -> float:
    return statistics.median(report[key] for report in reports)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def print_result(result: dict[str, Any]) -> None:
    print(f"{result['nodes']} nodes, medians of {result['repeats']} processes")
    for mode, seconds in result["first_run_s"].items():
        print(f"first run, {mode + ':':10} {seconds * 1e3:8.1f} ms")
    for mode in ("hit", "kept"):
        for part, seconds in result[mode].items():
            print(f"{mode + ', ' + part[:-2] + ':':18} {seconds * 1e3:11.1f} ms")
    print(f"the pass on a hit: {result['ratio']:.2%} of TensorFlow's own time (goal: < {GOAL:.0%})")
    print(f"disabled: {result['disabled_ratio']:+.2%}")
    print(f"for comparison, planning took {result['planning_s']:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
