"""Trains a recommender on two workers: `python -m hplacer_optimizer.bench.two_workers`.

What `hplacer demo` measures. The workers are processes on this machine, with cores of their own.
"""

from __future__ import annotations

from hplacer_optimizer.measuring.clusters import local_cluster
from hplacer_optimizer.plugin.switch import session_config
from hplacer_optimizer.workloads.graphs import build_graph

_STEPS = 40
_SIZES = {"batch_size": 256, "features": 1, "rows": 2_000, "width": 64, "hidden": 1024, "layers": 4}


def main() -> None:
    """As a user's own script would."""
    import tensorflow as tf

    model = build_graph("two_tower", pin_tables=False, **_SIZES)
    config = session_config(targets=[model.train_op.name], devices=["/job:worker"])
    with (
        local_cluster(workers=2) as cluster,
        tf.compat.v1.Session(cluster.target, graph=model.graph, config=config) as session,
    ):
        session.run(model.init)
        for _ in range(_STEPS):
            session.run(model.train_op)


if __name__ == "__main__":
    main()
