"""Virtual time: steps that were worked out by hand, to the nanosecond; and what stops the clock."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests import processes
from tests.emulation import micro_graphs

RUNS = 5


def test_steps_take_what_was_worked_out_by_hand(tmp_path: Path) -> None:
    code = f"""
from hplacer_optimizer import emulation
from hplacer_optimizer.machines import machine_from_yaml
from tests.emulation import micro_graphs as micro
emulation.enable(machine_from_yaml(micro.MACHINE))
import json
print("REPORT " + json.dumps({{name: micro.steps_ns(graph, {RUNS})
                               for name, graph in micro.GRAPHS.items()}}))
"""
    report = processes.run(code, tmp_path, prelude="").report
    for name, micro in micro_graphs.GRAPHS.items():
        assert report[name] == [micro.expected_ns] * RUNS, (name, micro.because)
