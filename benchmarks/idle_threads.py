"""What do idle threads that spin take from a worker? Steps of training graphs, with and without.

Two pairs of workers with a core each: those of `hplacer cluster start`, and the same workers with
threads that spin, as TensorFlow's do by default. Each graph runs on one worker, and cut in the
middle by hand. The two pairs take turns, step by step.

    python -m benchmarks.idle_threads --output docs/results/idle-threads
    python -m benchmarks.idle_threads --graphs "dense blocks" --turns 10
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np

from hplacer_optimizer.bench.cluster_tasks import DEFAULT_TASKS, ClusterTask, cuts_by_hand
from hplacer_optimizer.bench.small_graphs import CHOSEN_LAST
from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.machines import full_device_name
from hplacer_optimizer.machines.describe import describe_cluster
from hplacer_optimizer.measuring.clusters import LocalCluster, local_cluster, local_workers
from hplacer_optimizer.measuring.step_runner import PlacedStep, StepRunner
from hplacer_optimizer.measuring.target import Target
from hplacer_optimizer.planners.devices import on_device
from hplacer_optimizer.plugin import cluster_worker
from testbed.told_rows import keep

_WARMUP = 5
_CUT = "by hand, cut at 50%"


def _measure(
    task: ClusterTask, clusters: dict[str, LocalCluster], turns: int
) -> dict[str, dict[str, list[float]]]:
    """Seconds of the steps, by placement and by pair of workers."""
    steps: dict[tuple[str, str], PlacedStep] = {}
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as running:
        path = Path(directory, f"{task.name}.meta")
        task.write(path)
        machine = describe_cluster(clusters["asleep"].addresses, timeout_s=60.0)
        names = [full_device_name(name) for name in machine.device_names]  # those of both pairs
        loaded = load_graph(path, machine=machine, keep_graph=True)
        assert loaded.step is not None
        cut = dict(cuts_by_hand(loaded.problem, task.by_hand))[_CUT]
        placements = {"one worker": on_device(loaded.problem, 0), "cut": cut}
        for threads, cluster in clusters.items():
            target = Target(session=cluster.target, device_names=names)
            for name, placement in placements.items():
                runner = StepRunner(loaded.step, target)
                steps[name, threads] = running.enter_context(runner.placed(placement))
        for step in steps.values():
            step.warm_up(_WARMUP)
        found: dict[str, dict[str, list[float]]] = {}
        for _ in range(turns):
            for (name, threads), step in steps.items():
                found.setdefault(name, {}).setdefault(threads, []).extend(step.time(1))
    return found


def _serve(task: str, cores: str, addresses: str) -> None:
    """A worker of a local cluster whose threads spin."""
    import tensorflow as tf

    start = tf.distribute.Server

    def spinning(*args: object, config: tf.compat.v1.ConfigProto, **options: object) -> object:
        config.experimental.disable_thread_spinning = False
        return start(*args, config=config, **options)

    with mock.patch.object(tf.distribute, "Server", spinning):
        cluster_worker.main(int(task), list(map(int, cores.split(","))), addresses.split(","))


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and writes the steps of each graph."""
    tasks = {task.title: task for task in DEFAULT_TASKS if task.title in CHOSEN_LAST}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", choices=tasks, default=[*tasks], metavar="GRAPH")
    parser.add_argument("--turns", type=int, default=40, help="of each graph, default: 40")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for idle_threads.json")
    options = parser.parse_args(argv)
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    with contextlib.ExitStack() as running:
        clusters = {"asleep": running.enter_context(local_cluster(workers=2))}
        with mock.patch.object(local_workers, "_MODULE", "benchmarks.idle_threads"):
            clusters["spinning"] = running.enter_context(local_cluster(workers=2))
        for graph in options.graphs:
            found[graph] = _measure(tasks[graph], clusters, options.turns)
            for name, steps in found[graph].items():
                longer = np.divide(steps["spinning"], steps["asleep"])
                low, middle, high = np.quantile(longer, (0.25, 0.5, 0.75))
                print(f"{graph}, {name}: {middle:.3f} ({low:.3f} to {high:.3f})", flush=True)
    keep(options.output and options.output / "idle_threads.json", found)
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1].isdecimal():  # a worker, as local_workers.py starts it
        _serve(*sys.argv[1:])
    sys.exit(main())
