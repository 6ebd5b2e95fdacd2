"""The plan store: directories with one self-describing file per fingerprint.

docs/how-to/plan-store.md says what holds for it.

plan_store.py   PlanStore: one layer or several, such as a local one in front of a shared one
layer.py        one directory of plans: compare and keep the best, limit the size
"""

from __future__ import annotations

from hplacer_optimizer.plans.store.layer import MAX_BYTES, StoreEntry
from hplacer_optimizer.plans.store.plan_store import PlanStore

__all__ = ["MAX_BYTES", "PlanStore", "StoreEntry"]
