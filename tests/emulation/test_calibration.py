"""`hplacer calibrate` on emulated devices finds the numbers that they were given."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from hplacer_optimizer import emulation
from hplacer_optimizer.machines import load_machine, machine_from_yaml
from tests.processes import clean_environment, run_script

# What is timed is flops and bytes together: a product of matrices has 43 flops a byte, a negation
# one for 8 bytes. Rates between them are found with an error of 6% each.
MACHINE = """
format: hplacer-machine/1
name: given
kinds:
  host: {type: CPU, flops: {float32: 20 GFLOP/s}, memory: 8 GiB, memory_bandwidth: 8 GB/s,
         launch_overhead: 3 us, executor_overhead: 1 us, slots: 2}
  gpu: {type: GPU, flops: {float32: 500 GFLOP/s}, memory: 512 MiB, memory_bandwidth: 200 GB/s,
        launch_overhead: 7 us, executor_overhead: 1 us, launches_ahead: true}
devices:
  - {name: /device:CPU:0, kind: host}
  - {name: /device:GPU:0, kind: gpu}
  - {name: /device:GPU:1, kind: gpu}
links:
  - pcie: {latency: 12 us, bandwidth: 6 GB/s, host: [/device:CPU:0],
           children: [/device:GPU:0, /device:GPU:1]}
"""
TOLERANCE = 0.1


@pytest.mark.slow
def test_calibration_finds_what_the_machine_was_given(tmp_path: Path) -> None:
    given = machine_from_yaml(MACHINE)
    with emulation.environment(given) as variables:
        done = subprocess.run(
            [sys.executable, "-m", "hplacer_optimizer", "calibrate", "-o", "found.yaml"],
            cwd=tmp_path,
            env=clean_environment(tmp_path) | variables,
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stderr
    found = load_machine(tmp_path / "found.yaml")
    assert found.device_names == given.device_names
    for of_given, of_found in zip(given.kinds, found.kinds, strict=True):
        assert of_found.slots == of_given.slots, of_given.name
        for name, figure in (
            ("memory_bytes_per_s", of_given.memory_bytes_per_s),
            ("launch_overhead_ns", of_given.launch_overhead_ns),
        ):
            expected = pytest.approx(figure, rel=TOLERANCE)
            assert getattr(of_found, name) == expected, (of_given.name, name)
        rate = pytest.approx(of_given.flops_per_s["float32"], rel=TOLERANCE)
        assert of_found.flops_per_s["float32"] == rate, of_given.name
    assert len(found.links) == len(given.links)
    rates = {(link.src, link.dst): link for link in found.links}
    for link in given.links:
        of_found = rates[link.src, link.dst]
        assert of_found.latency_ns == pytest.approx(link.latency_ns, rel=TOLERANCE), link
        assert of_found.bytes_per_s == pytest.approx(link.bytes_per_s, rel=TOLERANCE), link


GRAPH = """
import json, sys
import numpy as np
import hplacer_optimizer as hp
from hplacer_optimizer import emulation
from hplacer_optimizer.machines import machine_from_yaml
from hplacer_optimizer.measuring.calibration.calibrate import calibrate_graph

emulation.enable(machine_from_yaml(open("machine.yaml").read()))
described = machine_from_yaml(open("described.yaml").read())
found = calibrate_graph("graph.meta", described, steps=2)
problem = hp.load_problem("graph.meta", machine=found.machine, cost_table=found.costs)
on_gpu = np.array(problem.default_device)
print(json.dumps({
    "notes": found.notes,
    "costs": len(found.costs),
    "launch_ns": {kind.name: kind.launch_overhead_ns for kind in found.machine.kinds},
    "simulated_ms": hp.simulate(problem, on_gpu).makespan_ns / 1e6,
}))
"""


@pytest.mark.parametrize(
    ("launch_us", "width"), [pytest.param(1, 256, marks=pytest.mark.slow), (40, 32)]
)
def test_a_step_on_a_gpu_takes_what_its_measured_ops_say(
    tmp_path: Path, launch_us: int, width: int
) -> None:
    """Whether kernels take the time or launches, for which the description has another figure."""
    from hplacer_optimizer.workloads.graphs import write_graph

    write_graph("rnnlm", str(tmp_path / "graph.meta"), steps=3, batch_size=width, hidden=width)
    for name, launch in (("machine.yaml", launch_us), ("described.yaml", 1)):
        text = MACHINE.replace("launch_overhead: 7 us", f"launch_overhead: {launch} us")
        (tmp_path / name).write_text(text)
    done = run_script(["-c", GRAPH], cwd=tmp_path, environment=clean_environment(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    (note,) = [note for note in found["notes"] if "GPU:0" in note]
    measured_ms = float(note.partition("in a step of ")[2].split()[0])
    assert found["simulated_ms"] == pytest.approx(measured_ms, rel=0.07)
    assert found["costs"] > 50
    assert found["launch_ns"]["gpu"] == pytest.approx(1000 * launch_us, rel=0.1, abs=100)
