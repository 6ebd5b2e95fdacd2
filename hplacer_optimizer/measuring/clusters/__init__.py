"""TensorFlow clusters on this machine: workers as processes of their own, on cores of their own.

local.py   starts, watches and stops them
worker.py  what each of them runs
"""

from __future__ import annotations

from hplacer_optimizer.measuring.clusters.local import LocalCluster, local_cluster

__all__ = ["LocalCluster", "local_cluster"]
