"""The `topo` planner: topological order, one device filled after the other, in one native call.

m-TOPO of Jeon et al., "Baechi: Fast Device Placement of Machine Learning Graphs", SoCC 2020;
`cc/engine/schedulers/topo.h` says where it departs from the paper.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.budget import Budget, ProgressCallback
from hplacer_optimizer.planners.devices import accelerators


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
    return _engine.place_topo(problem, accelerators(problem))
