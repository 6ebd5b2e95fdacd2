"""Lists TensorFlow's devices; run as a process of its own, which then has TensorFlow and its GPUs.

    python -m hplacer_optimizer.machines.list_devices TIMEOUT_S [HOST:PORT ...]

Without addresses the devices of this process, else those of the TensorFlow servers there, each of
which has TIMEOUT_S seconds to answer. Prints one line of JSON after MARK for each: address ("" for
this process), and devices (name, type, description, memory_bytes) or error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from hplacer_optimizer.support import tf_process

MARK = "hplacer-devices "


def list_own(session_config: Any = None) -> list[dict[str, Any]]:
    """The devices of this process, as a session with this configuration has them."""
    from tensorflow.python.client import device_lib

    # Named as in a session: "/job:localhost/replica:0/task:0" is what both leave out.
    return [
        {
            "name": device.name,
            "type": device.device_type,
            "description": device.physical_device_desc,
            "memory_bytes": device.memory_limit,
        }
        for device in device_lib.list_local_devices(session_config)
    ]


def _list_server(address: str, timeout_s: float) -> list[dict[str, Any]]:
    """The server's own devices: a filter that fits no task keeps it from waiting for the others."""
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(
        device_filters=["/job:none_of_the_others"], operation_timeout_in_ms=int(timeout_s * 1e3)
    )
    with tf.compat.v1.Session(f"grpc://{address}", graph=tf.Graph(), config=config) as session:
        return [
            {
                "name": device.name,
                "type": device.device_type,
                "description": "",  # sessions do not tell it
                "memory_bytes": device.memory_limit_bytes,
            }
            for device in session.list_devices()
        ]


def main(timeout_s: float, addresses: Sequence[str]) -> None:
    tf_process.begin()
    for address in addresses or [""]:  # one by one: a session keeps the GIL while it waits
        answer: dict[str, Any] = {"address": address}
        try:
            answer["devices"] = _list_server(address, timeout_s) if address else list_own()
        except Exception as error:  # of TensorFlow, whatever it is: the parent says so
            answer["error"] = f"{type(error).__name__}: {error}"
        print(f"{MARK}{json.dumps(answer)}", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
