"""Where steps are measured: this machine, or a TensorFlow cluster whose servers run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hplacer_optimizer import emulation
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.machines import host

LOCAL = ""

Devices: TypeAlias = "str | Sequence[str] | Mapping[str, Sequence[str]] | None"
"""None: this machine. Else a cluster: the address of a server, HOST:PORT, or of all, or by job."""

_ADDRESS = re.compile(r"(?:grpc://)?([^\s/,]+:\d{1,5})")
_CPU = re.compile(r"/device:CPU:(\d+)$")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A session's target and its devices, in the order of a problem's."""

    session: str
    """LOCAL, or "grpc://HOST:PORT"."""
    device_names: Sequence[str]
    """In full."""

    def config(self) -> Any:
        """The ConfigProto of a session. On this machine GPUs are divided as in this process."""
        import tensorflow as tf
        from tensorflow.python.eager.context import context

        config = tf.compat.v1.ConfigProto(allow_soft_placement=False)
        if self.session == LOCAL:
            config.gpu_options.CopyFrom(context().config.gpu_options)
            numbers = [int(found[1]) for found in map(_CPU.search, self.device_names) if found]
            config.device_count["CPU"] = max(numbers, default=0) + 1
            if not emulation.is_on():  # which sets the threads that it needs
                config.inter_op_parallelism_threads = host.worker_threads(host.whole_cores())
        else:
            config.isolate_session_state = True  # variables end with their session
        config.gpu_options.allow_growth = True  # beside the process that trains, or plans
        return config


def session_target(devices: Devices) -> str:
    """The target of sessions on these devices: of a cluster its first address.

    Raises OptionError for what is no address.
    """
    if devices is None:
        return LOCAL
    if isinstance(devices, str):
        addresses = [devices]
    elif isinstance(devices, Mapping):
        addresses = [address for tasks in devices.values() for address in tasks]
    else:
        addresses = list(devices)
    if not addresses:
        raise OptionError("devices: the cluster has no address")
    for address in addresses:
        if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
            raise OptionError(f"devices: {address!r} is no address of a server; write HOST:PORT")
    found = _ADDRESS.fullmatch(addresses[0])
    assert found is not None
    return f"grpc://{found[1]}"
