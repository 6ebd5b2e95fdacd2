"""The workloads' training graphs: they train, have the published sizes, and can be exported."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.workloads import graphs
from tests.processes import PRELUDE, ROOT, run

BUILD = """
from hplacer_optimizer.workloads.graphs import build_graph, write_graph

def weights(built):
    "The number of trainable values."
    trained = built.graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES)
    return sum(variable.shape.num_elements() for variable in trained)

def train(built, steps):
    "The losses, and how many of the trained variables changed."
    trained = built.graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES)
    with v1.Session(graph=built.graph) as session:
        session.run(built.init)
        before = session.run(trained)
        losses = [float(session.run([built.loss, built.train_op])[0]) for _ in range(steps)]
        after = session.run(trained)
    changed = sum(not np.array_equal(a, b) for a, b in zip(before, after))
    return {"losses": losses, "changed": changed, "trained": len(trained)}
"""

_RECURRENT = {"batch_size": 4, "hidden": 16, "steps": 4, "vocabulary": 50}
_TRANSFORMER = {
    "layers": 1,
    "batch_size": 4,
    "length": 16,
    "width": 16,
    "heads": 2,
    "units": 32,
    "vocabulary": 40,
}
_IMAGES = {"batch_size": 4, "pixels": 64, "classes": 10}
_SMALL_IMAGES = {**_IMAGES, "pixels": 32}
SMALL: dict[str, dict[str, Any]] = {
    "bert_base": _TRANSFORMER,
    "efficientnet_b0": _SMALL_IMAGES,
    "inception_v3": {"batch_size": 2, "pixels": 107, "classes": 10, "batch_norm_epsilon": 1.0},
    "mobilenet_v2": _SMALL_IMAGES,
    "nmt": {"layers": 2, **_RECURRENT},
    "resnet": {"depth": 50, **_IMAGES},
    "rnnlm": _RECURRENT,
    "transformer": _TRANSFORMER,
    "two_tower": {"batch_size": 8, "features": 2, "rows": 100, "width": 4, "hidden": 16},
}


def run_graph(code: str, directory: Path, timeout_s: float = 280.0) -> dict[str, Any]:
    """What the code reports, run where TensorFlow and BUILD are at hand."""
    return run(
        code, directory, prelude=PRELUDE + BUILD, timeout_s=timeout_s, HPLACER_DISABLE="1"
    ).report


# Their small versions have thousands of ops as well.
LARGE = {"efficientnet_b0", "inception_v3", "mobilenet_v2", "resnet"}


def with_large_ones_slow(names: Iterable[str]) -> list[Any]:
    marks = {name: [pytest.mark.slow] if name in LARGE else [] for name in names}
    return [pytest.param(name, marks=marks[name]) for name in sorted(marks)]


@pytest.mark.parametrize("name", with_large_ones_slow(graphs.GRAPHS))
def test_a_small_version_learns_and_updates_every_weight(name: str, tmp_path: Path) -> None:
    code = f"report(**train(build_graph({name!r}, **{SMALL[name]!r}), 30))"
    result = run_graph(code, tmp_path)
    losses = result["losses"]
    assert len(losses) == 30
    assert sum(losses[-5:]) < 0.99 * sum(losses[:5])  # dropout makes single ones noisy
    assert result["changed"] == result["trained"] > 0


def test_the_same_seed_gives_the_same_graph_and_losses(tmp_path: Path) -> None:
    code = f"""
first, second = (build_graph("nmt", **{SMALL["nmt"]!r}) for _ in range(2))
other = build_graph("nmt", seed=1, **{SMALL["nmt"]!r})
data = [g.graph.as_graph_def().SerializeToString(deterministic=True) for g in (first, second)]
report(equal=data[0] == data[1], losses=[train(g, 3)["losses"] for g in (first, second, other)])
"""
    result = run_graph(code, tmp_path)
    assert result["equal"]
    assert result["losses"][0] == result["losses"][1] != result["losses"][2]


@pytest.mark.slow
def test_a_written_graph_trains_where_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rnnlm.meta"
    assignments = [f"{key}={value}" for key, value in SMALL["rnnlm"].items()]
    command = [sys.executable, "-m", graphs.__name__, "rnnlm", *assignments, "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    code = f"""
with tf.Graph().as_default() as graph, v1.Session() as session:
    v1.train.import_meta_graph({str(path)!r})
    init, loss, train_op = (graph.get_collection(key)[0] for key in ("init_op", "loss", "train_op"))
    session.run(init)
    report(name=train_op.name, losses=[session.run([loss, train_op])[0] for _ in range(2)],
           built=train(build_graph("rnnlm", **{SMALL["rnnlm"]!r}), 2)["losses"])
"""
    result = run_graph(code, tmp_path)
    assert result["name"] == "train_op"
    assert result["losses"] == result["built"]


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("ntm", {}, "workload: unknown name 'ntm'; valid are bert_base, "),
        ("nmt", {"depth": 2}, "nmt: unknown parameter 'depth'; valid are layers, batch_size, "),
        ("nmt", {"layers": 0}, "nmt: layers: must be at least 1, got 0"),
        ("nmt", {"layers": True}, "nmt: layers: expected int, got True"),
        ("nmt", {"seed": -1}, "nmt: seed: must be at least 0, got -1"),
        ("resnet", {"depth": 151}, "depth: must be one of 50, 101, 152, 200, got 151"),
    ],
)
def test_wrong_parameters_are_named(name: str, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        graphs.build_graph(name, **overrides)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nmt", "layers"], "nmt: expected PARAMETER=VALUE, got 'layers'"),
        (["nmt", "layers=two"], "nmt: layers: expected int, got 'two'"),
        (["nmt", "deep=2"], "nmt: unknown parameter 'deep'"),
    ],
)
def test_the_command_reports_wrong_parameters(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert graphs.main([*arguments, "-o", str(tmp_path / "x.meta")]) == 1
    assert capsys.readouterr().err.startswith(f"hplacer: error: {message}")
    assert not (tmp_path / "x.meta").exists()


# ---- full size ----


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "weights"),
    [
        # 23.8 million (Keras's count without the auxiliary classifier) and 3.3 of the classifier.
        ("inception_v3", 27_145_970),
        # torchvision's resnet152 has as many.
        ("resnet", 60_192_808),
        # Keras's counts: "5.3M" and "3.5M" in its table of applications, without moving averages.
        ("efficientnet_b0", 5_288_548),
        ("mobilenet_v2", 3_504_872),
    ],
)
def test_the_networks_have_the_published_size(name: str, weights: int, tmp_path: Path) -> None:
    report = run_graph(f"report(weights=weights(build_graph({name!r})))", tmp_path)
    assert report["weights"] == weights


# ---- docs/reference/workloads.md ----

DOCUMENT = (ROOT / "docs" / "reference" / "workloads.md").read_text()


def test_the_document_has_a_row_for_every_graph() -> None:
    assert set(re.findall(r"^\| `(\w+)`: ", DOCUMENT, re.MULTILINE)) == set(graphs.GRAPHS)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["two_tower"], marks=pytest.mark.slow),
        pytest.param(["nmt", "rnnlm", "bert_base", "mobilenet_v2"], marks=pytest.mark.slow),
    ],
)
def test_the_document_states_the_sizes_of_the_graphs(names: list[str]) -> None:
    if f"TensorFlow {tensorflow_version()}:" not in DOCUMENT:
        pytest.skip("the document is of another TensorFlow")
    code = "import sys, workloads_table; print(*workloads_table.rows(*sys.argv[1:]), sep='')"
    command = [sys.executable, "-c", code, *names]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tools'}",
        "HPLACER_DISABLE": "1",
    }
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment, timeout=280
    )
    rows = [line for line in done.stdout.splitlines() if line.startswith("| `")]
    assert {re.findall(r"`(\w+)`", row)[0] for row in rows} == set(names)
    assert [row for row in rows if row not in DOCUMENT.splitlines()] == []


def tensorflow_version() -> str:
    for package in ("tensorflow", "tensorflow-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(package)
    return ""
