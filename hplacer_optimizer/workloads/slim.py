"""tf-slim, made importable: version 1.1.0 asks for layers that tf_keras has moved."""

from __future__ import annotations

import importlib
import sys
from typing import Any


def import_slim(network: str) -> tuple[Any, Any]:
    """The package tf_slim and its module tf_slim.nets.NETWORK."""
    import tf_keras.src.legacy_tf_layers as layers

    sys.modules.setdefault("tf_keras.legacy_tf_layers", layers)
    return importlib.import_module("tf_slim"), importlib.import_module(f"tf_slim.nets.{network}")


def image_batch(batch_size: int, pixels: int, classes: int, seed: int) -> tuple[Any, Any]:
    """Noise: float32[batch_size, pixels, pixels, 3] and labels int64[batch_size]."""
    import numpy as np

    random = np.random.default_rng(seed)
    images = random.standard_normal((batch_size, pixels, pixels, 3), np.float32)
    return images, random.integers(0, classes, batch_size)
