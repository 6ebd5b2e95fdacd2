"""The `heft` planner: heterogeneous earliest finish time list scheduling, in one native call.

Topcuoglu et al., "Performance-Effective and Low-Complexity Task Scheduling for Heterogeneous
Computing", IEEE TPDS 2002; `cc/engine/schedulers/heft.h` says where it departs from the paper.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.budget import Budget, ProgressCallback


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> NDArray[np.int32]:
    """Returns int32[n], a device index per op; see `Planner`.

    It neither searches nor draws: budget and seed change nothing and no progress is reported.
    """
    return _engine.place_heft(problem)
