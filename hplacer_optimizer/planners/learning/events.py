"""Training in TensorBoard: scalars of each step, and the histogram of its draws.

`tf.summary.scalar` and `histogram` need the package tensorboard where they are called; written as
below, TensorBoard shows the same.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from tensorflow.core.framework import summary_pb2

from hplacer_optimizer.planners.budget import Progress

_BUCKETS = 30


class EventLog:
    """Event files in a directory."""

    def __init__(self, directory: str) -> None:
        self._writer = tf.summary.create_file_writer(directory)

    def write(
        self, progress: Progress, drawn_seconds: NDArray[np.float64], facts: dict[str, float]
    ) -> None:
        """What a step did: times in seconds, and what else a policy tells."""
        scalars = {"placements": float(progress.placements), "infeasible": progress.infeasible}
        if progress.best_ns is not None:
            scalars["step_time/best"] = progress.best_ns / 1e9
        if progress.mean_ns is not None:
            scalars["step_time/mean"] = progress.mean_ns / 1e9
        scalars |= {f"policy/{name}": value for name, value in facts.items()}
        with self._writer.as_default(step=progress.steps):
            for name, value in scalars.items():
                _write_scalar(name, value)
            _write_histogram("step_time/batch", drawn_seconds)
        self._writer.flush()


def _write_scalar(name: str, value: float) -> None:
    tf.summary.write(name, tf.constant(value, tf.float32), metadata=_metadata("scalars", "SCALAR"))


def _write_histogram(name: str, values: ArrayLike) -> None:
    values = np.ravel(values)
    try:
        counts, edges = np.histogram(values, _BUCKETS)
    except ValueError:  # they are closer together than floats
        counts, edges = np.histogram(values, 1, (values.min() - 0.5, values.max() + 0.5))
    table = np.stack([edges[:-1], edges[1:], counts], axis=1)
    metadata = _metadata("histograms", "TENSOR")
    tf.summary.write(name, tf.constant(table, tf.float64), metadata=metadata)


def _metadata(plugin: str, data_class: str) -> summary_pb2.SummaryMetadata:
    return summary_pb2.SummaryMetadata(
        plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name=plugin),
        data_class=getattr(summary_pb2, f"DATA_CLASS_{data_class}"),
    )
