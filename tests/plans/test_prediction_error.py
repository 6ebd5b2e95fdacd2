"""The guard's default is what the committed comparison of predicted and measured steps shows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hplacer_optimizer.problem.prediction_error import ERROR_OF_LAUNCHES, prediction_error

RESULTS = Path(__file__).parents[2] / "docs/results"


@pytest.mark.parametrize(
    ("costs", "source"),
    [("measured", "measured"), ("estimated", "analytic"), ("estimated", "measured and analytic")],
)
def test_it_is_the_95th_percentile_of_the_committed_plans(costs: str, source: str) -> None:
    found = json.loads((RESULTS / "guard/guard.json").read_text())["rows"]
    rows = [row for row in found if row["costs"] == costs]
    optimism = [row["predicted_speedup"] / row["speedup"] - 1 for row in rows]
    assert len(rows) >= 20
    assert round(float(np.percentile(optimism, 95)), 2) == prediction_error(source)


def test_launches_are_as_wrong_as_on_emulated_gpus() -> None:
    optimism = []
    files = [RESULTS / "emulation/agreement.json", RESULTS / "emulation/drawn.json"]
    for rows in (rows for file in files for rows in json.loads(file.read_text()).values()):
        ran = {row["placement"]: row for row in rows if "step_ns" in row}
        default = ran.pop("TensorFlow's", None)
        for row in ran.values() if default else ():
            predicted = default["simulated_ns"] / row["simulated_ns"]
            executed = default["step_ns"] / row["step_ns"]
            optimism.append(predicted / executed - 1)
    assert len(optimism) >= 20
    assert round(float(np.percentile(optimism, 95)), 2) == ERROR_OF_LAUNCHES
