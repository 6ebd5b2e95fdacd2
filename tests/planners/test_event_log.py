"""What TensorBoard is told of a step of training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import run

pytest.importorskip("tensorflow")

WRITE_AND_READ = """
from pathlib import Path
from hplacer_optimizer.planners import Progress
from hplacer_optimizer.planners.learning.events import EventLog

log = EventLog("log")
fits_none = Progress(steps=3, best_ns=None, placements=8, infeasible=1.0)
log.write(fits_none, np.array([0.5, 0.5]), {})
fits = Progress(steps=4, best_ns=2_000_000_000, placements=16, mean_ns=3e9, infeasible=0.25)
log.write(fits, np.array([2.0, 2.0, 3.0, 5.0]), {"entropy": 0.75})

found = {}
for file in Path("log").iterdir():
    for record in tf.data.TFRecordDataset(str(file)):
        event = v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            kind = value.metadata.plugin_data.plugin_name
            shown = tf.make_ndarray(value.tensor).tolist()
            found.setdefault(event.step, {})[value.tag] = [kind, shown]
report(found=found)
"""


def test_a_step_is_scalars_and_a_histogram_of_its_draws(tmp_path: Path) -> None:
    found = run(WRITE_AND_READ, tmp_path).report["found"]
    _, first = found["3"].pop("step_time/batch")
    assert found["3"] == {"placements": ["scalars", 8], "infeasible": ["scalars", 1]}
    assert sum(count for _, _, count in first) == 2

    kind, buckets = found["4"].pop("step_time/batch")
    assert found["4"] == {
        "placements": ["scalars", 16],
        "infeasible": ["scalars", 0.25],
        "step_time/best": ["scalars", 2],
        "step_time/mean": ["scalars", 3],
        "policy/entropy": ["scalars", 0.75],
    }
    assert kind == "histograms"
    assert (buckets[0][0], buckets[0][2]) == (2, 2)  # from 2 s: two draws
    assert (buckets[-1][1], buckets[-1][2]) == (5, 1)
    assert sum(count for _, _, count in buckets) == 4
