"""The guard's default is what the committed comparison of predicted and measured steps shows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from hplacer_optimizer.plans import baseline

RESULTS = Path(__file__).parents[2] / "docs/results/prediction/prediction.json"


def test_it_is_the_95th_percentile_of_the_committed_predictions() -> None:
    rows = json.loads(RESULTS.read_text())["predictions"]
    default = {row["task"]: row for row in rows if row["placement"] == "worker 0"}
    optimism = [
        (default[row["task"]]["predicted_s"] / row["predicted_s"])
        / (default[row["task"]]["measured_s"] / row["measured_s"])
        - 1
        for row in rows
    ]
    assert round(float(np.percentile(optimism, 95)), 2) == baseline.ERROR_OF_MEASURED_COSTS
    assert baseline.prediction_error("measured") == baseline.ERROR_OF_MEASURED_COSTS
    assert baseline.prediction_error("measured and analytic") == baseline.ERROR_OF_ESTIMATED_COSTS
