"""Lists TensorFlow's devices; run as a process of its own, which then has TensorFlow and its GPUs.

    python -m hplacer_optimizer.machines.list_devices [HOST:PORT ...]

Without arguments the devices of this process, else those of the TensorFlow servers at these
addresses. Prints one line of JSON after MARK for each: address ("" for this process), and devices
(name, type, description, memory_bytes) or error.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MARK = "hplacer-devices "


def _list_own() -> list[dict[str, Any]]:
    from tensorflow.python.client import device_lib

    # Named as in a session: "/job:localhost/replica:0/task:0" is what both leave out.
    return [
        {
            "name": device.name,
            "type": device.device_type,
            "description": device.physical_device_desc,
            "memory_bytes": device.memory_limit,
        }
        for device in device_lib.list_local_devices()
    ]


def _list_server(address: str) -> list[dict[str, Any]]:
    """The server's own devices: a filter that fits no task keeps it from waiting for the others."""
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(device_filters=["/job:none_of_the_others"])
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


def _print_answer(address: str) -> None:
    answer: dict[str, Any] = {"address": address}
    try:
        answer["devices"] = _list_server(address) if address else _list_own()
    except Exception as error:  # of TensorFlow, whatever it is: the parent says so
        answer["error"] = f"{type(error).__name__}: {error}"
    sys.stdout.write(f"{MARK}{json.dumps(answer)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    addresses = sys.argv[1:] or [""]
    with ThreadPoolExecutor(len(addresses)) as pool:
        list(pool.map(_print_answer, addresses))
