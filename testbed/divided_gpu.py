"""Runs a script whose first GPU is two, each with a part of its memory.

python testbed/divided_gpu.py script.py ARGS
"""

from __future__ import annotations

import sys

PARTS, PART_MIB = 2, 3072


def main() -> None:
    """Divides it before the script's first op; without a GPU the script runs as ever."""
    import tensorflow as tf

    from hplacer_optimizer.support.script import run_script

    if gpus := tf.config.list_physical_devices("GPU"):
        part = tf.config.LogicalDeviceConfiguration(memory_limit=PART_MIB)
        tf.config.set_logical_device_configuration(gpus[0], [part] * PARTS)
    run_script(sys.argv[1:])


if __name__ == "__main__":
    main()
