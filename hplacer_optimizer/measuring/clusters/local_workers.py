"""Starts TensorFlow servers on this machine, and stops them.

    with local_cluster(workers=2) as cluster:
        with tf.compat.v1.Session(cluster.target, graph=graph) as session: ...
        tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec(cluster.spec))

Worker k is `/job:worker/replica:0/task:k`, listens on the loopback address, and has cores of its
own as long as there are enough: what runs on one worker takes no time from another. An op runs on
one core (one intra-op thread), and at least four may run at once.

TensorFlow's servers run any graph for whoever can reach their port, which they open on all
addresses of the host: for a machine that strangers cannot reach.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hplacer_optimizer.errors import ClusterError
from hplacer_optimizer.support import child_process

JOB = "worker"

_HOST = "127.0.0.1"
_LOOK_EVERY_S = 0.05
_MODULE = "hplacer_optimizer.plugin.cluster_worker"
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "2"}


@dataclass(frozen=True, kw_only=True)
class LocalCluster:
    """N workers that run on this machine; the index of each sequence is the task.

    Attributes:
        addresses: of N workers, "HOST:PORT".
        cores: of N workers, on which each may run.
        processes: of N workers.
        pids: of N workers.
        device_names: of N CPU devices, one per worker.

    Example, after that of `local_cluster`:
        >>> cluster.device_names
        ('/job:worker/replica:0/task:0/device:CPU:0', '/job:worker/replica:0/task:1/device:CPU:0')
        >>> cluster.check()  # the block has ended, and with it the workers
        Traceback (most recent call last):
        hplacer_optimizer.errors.ClusterError: worker 0 ... ended with exit code -9; start ...
    """

    addresses: tuple[str, ...]
    cores: tuple[tuple[int, ...], ...]
    processes: tuple[subprocess.Popen[bytes], ...]

    @property
    def spec(self) -> dict[str, list[str]]:
        """For `tf.train.ClusterSpec`."""
        return {JOB: list(self.addresses)}

    @property
    def target(self) -> str:
        """For `tf.compat.v1.Session`; worker 0 places the session's graph."""
        return f"grpc://{self.addresses[0]}"

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self.processes)

    @property
    def device_names(self) -> tuple[str, ...]:
        return tuple(
            f"/job:{JOB}/replica:0/task:{task}/device:CPU:0" for task in range(len(self.addresses))
        )

    def check(self) -> None:
        """Raises ClusterError, which names the worker, if one has ended."""
        for task, process in enumerate(self.processes):
            if process.poll() is not None:
                raise ClusterError(
                    f"worker {task} (pid {process.pid}, {self.addresses[task]}) ended with exit "
                    f"code {process.returncode}; start the cluster again"
                )


@contextmanager
def local_cluster(*, workers: int = 2, timeout_s: float = 120.0) -> Iterator[LocalCluster]:
    """Starts so many workers, and stops them when the block ends or this process does.

    They write to this process's standard error.

    Args:
        workers: how many, at least 1.
        timeout_s: seconds that all of them may take to start.

    Yields:
        A LocalCluster.

    Raises:
        ClusterError: a worker does not start within the time limit.

    Example:
        >>> import hplacer_optimizer as hp
        >>> import tensorflow as tf
        >>> with tf.Graph().as_default(), hp.local_cluster(workers=2) as cluster:
        ...     with tf.device("/job:worker/task:1"):
        ...         total = tf.constant(1.0) + tf.constant(2.0)
        ...     with tf.compat.v1.Session(cluster.target) as session:
        ...         float(session.run(total))
        3.0
    """
    if workers < 1:
        raise ClusterError(f"workers: must be at least 1, got {workers}")
    with contextlib.ExitStack() as reserved, contextlib.ExitStack() as running:
        addresses = [_reserve(reserved) for _ in range(workers)]
        cores = _share(sorted(os.sched_getaffinity(0)), workers)
        processes = [
            running.enter_context(_worker(task, cores[task], addresses)) for task in range(workers)
        ]
        cluster = LocalCluster(addresses=tuple(addresses), cores=cores, processes=tuple(processes))
        _wait(cluster, timeout_s)
        reserved.close()
        yield cluster


def _reserve(held: contextlib.ExitStack) -> str:
    """The address of a free port, which nobody but a server with SO_REUSEADDR can bind meanwhile.

    TensorFlow's server has it, and has to be told its port before it starts: the others must know.
    """
    reserved = held.enter_context(socket.socket())
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((_HOST, 0))
    return f"{_HOST}:{reserved.getsockname()[1]}"


def _share(cores: Sequence[int], workers: int) -> tuple[tuple[int, ...], ...]:
    """Equal parts; workers take turns on a core where there are more of them than cores."""
    if workers > len(cores):
        return tuple((cores[task % len(cores)],) for task in range(workers))
    ends = [len(cores) * task // workers for task in range(workers + 1)]
    return tuple(tuple(cores[ends[task] : ends[task + 1]]) for task in range(workers))


@contextmanager
def _worker(
    task: int, cores: Sequence[int], addresses: Sequence[str]
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", _MODULE, str(task), ",".join(map(str, cores)), ",".join(addresses)],
        env=child_process.environment(**_ENVIRONMENT, **child_process.without_gpus()),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is this process's: workers end when it is done with them
    )
    with process:
        try:
            yield process
        finally:
            process.kill()  # without effect on a process that has ended


def _wait(cluster: LocalCluster, timeout_s: float) -> None:
    """Until every worker accepts connections."""
    deadline = time.monotonic() + timeout_s
    for task, address in enumerate(cluster.addresses):
        while not _accepts(address):
            cluster.check()
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"worker {task} does not answer at {address} within {timeout_s:g} s"
                )
            time.sleep(_LOOK_EVERY_S)


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except OSError:
        return False
