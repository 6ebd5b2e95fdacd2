"""Which tasks of a training's cluster run on one host.

TensorFlow's eager context knows the addresses of a cluster that functions run on. For sessions the
environment variable TF_CONFIG may tell them, as for `tf.distribute`.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from collections.abc import Iterator
from typing import Any

from hplacer_optimizer.plugin.disabling import eager_context

_HERE = "this host"
_CLIENT = "localhost"  # the job of a program that is no worker itself: it starts steps, no more


def hosts_of_tasks() -> dict[str, str]:
    """The host of each task ("/job:worker/replica:0/task:1"); {}: no addresses are known.

    A client is not among them: what it computes takes no cores from the workers on its host.
    """
    addresses = dict(_of_context()) or dict(_of_environment())
    return {
        f"/job:{job}/replica:0/task:{task}": host_of(address)
        for (job, task), address in addresses.items()
        if job != _CLIENT
    }


def host_of(address: str) -> str:
    """The host of "host:port". All names and addresses of this one that need no lookup are one."""
    name = address.rpartition("://")[2].rpartition(":")[0].strip("[]")
    if name in ("", "localhost", socket.gethostname()):
        return _HERE
    try:
        ip = ipaddress.ip_address(name)
    except ValueError:
        return name
    return _HERE if ip.is_loopback or ip.is_unspecified else name


def _of_context() -> Iterator[tuple[tuple[str, int], str]]:
    context = eager_context()
    server = getattr(context, "_server_def", None)
    server = server or getattr(context, "_collective_ops_server_def", None)
    for job in server.cluster.job if server else ():
        for task, address in job.tasks.items():
            yield (job.name, task), address


def _of_environment() -> Iterator[tuple[tuple[str, int], str]]:
    try:
        cluster: Any = json.loads(os.environ.get("TF_CONFIG", "{}"))["cluster"]
        for job, addresses in cluster.items():
            numbered = addresses if isinstance(addresses, dict) else dict(enumerate(addresses))
            for task, address in numbered.items():
                yield (str(job), int(task)), str(address)
    except (ValueError, TypeError, KeyError, AttributeError):
        return  # TensorFlow tells what is wrong with it, if it reads it
