"""Runs a script whose first GPU is two, each with a part of its memory.

python testbed/divided_gpu.py script.py ARGS
"""

from __future__ import annotations

import sys

PARTS, PART_MIB = 2, 3072


def divide_gpu() -> bool:
    """Divides it, before TensorFlow uses a device; false without a GPU."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        part = tf.config.LogicalDeviceConfiguration(memory_limit=PART_MIB)
        tf.config.set_logical_device_configuration(gpus[0], [part] * PARTS)
    return bool(gpus)


def main() -> None:
    """Without a GPU the script runs as ever."""
    from hplacer_optimizer.support.script import run_script

    divide_gpu()
    run_script(sys.argv[1:])


if __name__ == "__main__":
    main()
