"""tf.distribute on two emulated GPUs, with the optimizer and without it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from testbed.training_scripts import CASES, OPTIONS, SCRIPTS, results_of
from tests import processes
from tests.emulation import gpus

MIRRORED = """
def trained(devices, reduction=None):
    "Losses of a training with a replica on each of the devices, and products on each GPU."
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
    with strategy.scope():
        variables = [tf.Variable(value) for value in weights()]
    x = tf.constant(batch())

    @tf.function
    def step():
        def replica():
            with tf.GradientTape() as tape:
                loss = towers_loss(x, variables)
            gradients = tape.gradient(loss, variables)
            context = tf.distribute.get_replica_context()
            for variable, gradient in zip(variables, context.all_reduce("mean", gradients)):
                variable.assign_sub(0.1 * gradient)
            return loss
        return strategy.reduce("mean", strategy.run(replica), axis=None)

    return {"losses": losses(step), "products": products_of(step)}

BOTH = ["GPU:0", "GPU:1"]
reductions = {
    "by default": None,
    "to one": tf.distribute.ReductionToOneDevice(),
    "hierarchical": tf.distribute.HierarchicalCopyAllReduce(),
}
found = {"alone": {name: trained(BOTH, each) for name, each in reductions.items()}}
of_cpu = trained(["CPU:0"])
start = len(plugin.history())
on()
found["planned"] = {name: trained(BOTH, each) for name, each in reductions.items()}
report(**found, of_cpu=of_cpu, differences=differences(),
       history=[entry for entry in history_since(start) if "step" in entry["graph"]])
"""


def test_mirrored_replicas_keep_their_gpus_and_their_losses(tmp_path: Path) -> None:
    """Where replicas sum by a collective op, the graph is left alone.

    Else all that a replica does is pinned to its GPU; what is free is how their losses are joined.
    """
    outcome = gpus.run(MIRRORED, tmp_path)
    seen = outcome.report
    assert seen["of_cpu"]["products"] == [0, 0]
    for how in ("alone", "planned"):
        for name, run in seen[how].items():
            assert run["products"] == [10, 10], (how, name)
            assert run["losses"] == pytest.approx(seen["of_cpu"]["losses"], rel=1e-5, abs=0)
    assert len(seen["history"]) == 3
    for entry in seen["history"]:
        if entry["outcome"] == "skipped":
            assert "CollectiveReduceV2 is in it" in entry["reason"]
        else:
            assert entry["outcome"] == "planned"
            assert entry["placed"] < 5
    assert seen["history"][0]["outcome"] == "skipped"
    assert seen["differences"] == []
    assert outcome.log == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if "mirrored" in name])
def test_a_script_does_the_same_with_plans(name: str, tmp_path: Path) -> None:
    """Its replicas are on two GPUs here, on two CPUs in tests/test_scripts.py."""
    options = OPTIONS.format(cache=tmp_path / "plans")
    emulated = ["-m", "hplacer_optimizer.run", "--emulate", "2xa100", str(SCRIPTS / name)]
    results = []
    for variables in ({"HPLACER_DISABLE": "1"}, {"HPLACER_OPTIONS": options}):
        done = processes.run_script(
            emulated,
            cwd=tmp_path,
            environment=processes.clean_environment(tmp_path) | {"HPLACER_LOG": "info"} | variables,
            fresh=True,
        )
        assert done.returncode == 0, done.stderr
        results.append(results_of(done.stdout))
    assert results[0]
    assert results[0] == results[1]
    assert "its replicas have their devices already" in done.stderr
