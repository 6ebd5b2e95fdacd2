"""TensorFlow clusters on this machine: workers as processes of their own, on cores of their own.

local_workers.py starts, watches and stops them; each runs plugin/cluster_worker.py.
"""

from __future__ import annotations

from hplacer_optimizer.measuring.clusters.local_workers import LocalCluster, local_cluster

__all__ = ["LocalCluster", "local_cluster"]
