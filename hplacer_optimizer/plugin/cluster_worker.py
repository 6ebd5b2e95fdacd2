"""One worker of a local cluster: a TensorFlow server that ends with the process that started it.

    python -m hplacer_optimizer.plugin.cluster_worker TASK CORE,CORE,... HOST:PORT,HOST:PORT,...

Its standard input is a pipe from that process, and never written to: it closes when that process
ends, in whatever way. The optimizer is loaded, since the worker behind a session's target is the
one that places its graphs.
"""

from __future__ import annotations

import json
import os
import sys

from hplacer_optimizer.machines.host import worker_threads
from hplacer_optimizer.measuring.clusters.local_workers import JOB
from hplacer_optimizer.plugin import service
from hplacer_optimizer.plugin.disabling import is_disabled


def main(task: int, cores: list[int], addresses: list[str]) -> None:
    """Serves until standard input ends."""
    os.sched_setaffinity(0, cores)  # before TensorFlow counts them
    import tensorflow as tf

    os.environ["TF_CONFIG"] = json.dumps({"cluster": {JOB: addresses}})  # see cluster_hosts.py
    if not is_disabled():
        service.start()
    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=worker_threads(len(cores)),
        intra_op_parallelism_threads=1,
    )
    if config.inter_op_parallelism_threads > len(cores):  # idle ones would take them by spinning
        config.experimental.disable_thread_spinning = True
    server = tf.distribute.Server({JOB: addresses}, job_name=JOB, task_index=task, config=config)
    sys.stdin.buffer.read()
    del server
    os._exit(0)  # a server cannot be stopped otherwise


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(core) for core in sys.argv[2].split(",")], sys.argv[3].split(","))
