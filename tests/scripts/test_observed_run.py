"""What a user's script does to the working directory when it is captured or advised about."""

from __future__ import annotations

from pathlib import Path

import pytest

from hplacer_optimizer.cli import main
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.scripts import working_copy

WRITES = """
import os, sys
assert open("log.txt").read() == "kept", "it is not the file of the working directory"
open("log.txt", "w").write(sys.argv[-1])
open("new.txt", "w").close()
os.makedirs("checkpoints/1")
assert os.environ["PWD"] == os.getcwd()
"""
# Two stores in the working directory, one as an absolute path.
TRAINS = """
import tensorflow as tf
options = {"cache": f"{os.path.abspath('near')};far", "min_ops": 5}
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
tf.config.optimizer.set_experimental_options({"hierarchical_placer": options})
weight = tf.Variable(tf.ones([8, 8]))

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.tanh(tf.tanh(x @ weight) @ weight))
    weight.assign_sub(tape.gradient(loss, weight))

step(tf.ones([4, 8]))
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file that the scripts overwrite."""
    here = tmp_path / "work"
    here.mkdir()
    (here / "log.txt").write_text("kept")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PWD", str(here))
    return here


def contents(directory: Path) -> dict[str, str | None]:
    """Text of the files by path; None: a directory. Without plan stores."""
    return {
        path: None if Path(directory, path).is_dir() else Path(directory, path).read_text()
        for path in (str(found.relative_to(directory)) for found in directory.rglob("*"))
        if not path.startswith(("near", "far"))
    }


@pytest.mark.parametrize(
    "command", [["advise"], ["pretrain", "--capture"]], ids=lambda words: words[0]
)
def test_a_script_writes_only_in_place(
    work: Path,
    command: list[str],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (work / "train.py").write_text(f"{WRITES}\nraise SystemExit(3)")
    before = contents(work)
    assert main([*command, "train.py"]) == 1
    assert "train.py: failed with exit code 3" in capfd.readouterr().err
    assert contents(work) == before

    monkeypatch.setattr(working_copy, "MAX_COPY_BYTES", 1)
    assert main([*command, "train.py"]) == 1
    assert "too much for a copy for each run: --in-place runs" in capfd.readouterr().err

    assert main([command[0], "--in-place", *command[1:], "train.py"]) == 1
    assert "train.py: failed with exit code 3" in capfd.readouterr().err
    written: dict[str, str | None] = {
        "log.txt": "train.py",
        "new.txt": "",
        "checkpoints": None,
        "checkpoints/1": None,
    }
    assert contents(work) == before | written


def test_a_plan_goes_where_the_script_would_look_for_it(work: Path) -> None:
    pytest.importorskip("tensorflow")
    (work / "train.py").write_text(WRITES + TRAINS)
    before = contents(work)
    search = ["--planner", "etf", "--steps", "1", "--capture-timeout", "1m"]
    assert main(["pretrain", *search, "--capture", "train.py"]) == 0
    for store in ("near", "far"):
        assert len(PlanStore(work / store).fingerprints()) == 1
    assert contents(work) == before
