"""The environment of processes that tests and benchmarks start: this package, and no options."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def clean_environment(directory: Path, package: Path = ROOT) -> dict[str, str]:
    """Without options of the optimizer, with modules in `directory`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HPLACER_")}
    return kept | {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_USE_LEGACY_KERAS": "0",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": f"{package}{os.pathsep}{directory}",
        "TEST_CACHE": str(directory / "cache"),
    }


def two_cpus() -> None:
    """Gives this process two CPU devices, which share its cores; before TensorFlow uses one."""
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
