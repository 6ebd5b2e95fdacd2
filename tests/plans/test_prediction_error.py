"""The guard's default is what the committed comparison of predicted and measured steps shows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hplacer_optimizer.problem.prediction_error import prediction_error

RESULTS = Path(__file__).parents[2] / "docs/results/guard"


@pytest.mark.parametrize(
    ("costs", "source"),
    [("measured", "measured"), ("estimated", "analytic"), ("estimated", "measured and analytic")],
)
def test_it_is_the_95th_percentile_of_the_committed_plans(costs: str, source: str) -> None:
    files = [RESULTS / "guard.json", RESULTS / "earlier.json"]
    found = [row for file in files for row in json.loads(file.read_text())["rows"]]
    rows = [row for row in found if row["costs"] == costs]
    optimism = [row["predicted_speedup"] / row["speedup"] - 1 for row in rows]
    assert len(rows) >= 20
    assert round(float(np.percentile(optimism, 95)), 2) == prediction_error(source)
