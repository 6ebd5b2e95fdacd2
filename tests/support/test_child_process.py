"""Children: their environment, and their end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hplacer_optimizer.support.child_process import environment, planner_variables, without_gpus

LIBRARY = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
CHILD = """
import os, sys, time
from hplacer_optimizer.support.child_process import end_with_parent
while sys.argv[1] == "leave" and os.environ["HPLACER_PARENT"] == str(os.getppid()):
    time.sleep(0.01)
end_with_parent()
print("alive", flush=True)
"""
PARENT = f"""
import os, subprocess, sys
from hplacer_optimizer.support.child_process import environment
child = [sys.executable, "-c", {CHILD!r}, sys.argv[1]]
if sys.argv[1] == "leave":
    subprocess.Popen(child, env=environment())
else:
    subprocess.run(child, env=environment())
    print("child of", os.getpid(), flush=True)
"""
IN_A_CONTAINER = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]


def test_children_without_gpus_have_no_emulated_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIBRARY, "/of/somebody/else.so")
    assert without_gpus() == {"CUDA_VISIBLE_DEVICES": ""}
    monkeypatch.setenv("HPLACER_EMULATION", "/tmp/emulation")
    assert without_gpus() == {
        "CUDA_VISIBLE_DEVICES": "",
        LIBRARY: "",
        "HPLACER_EMULATION": "",
        "HPLACER_EMULATED_MACHINE": "",
    }
    assert without_gpus().items() <= planner_variables().items()


def _output(task: str, *prefix: str) -> str:
    command = [*prefix, sys.executable, "-c", PARENT, task]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=True
    ).stdout


def test_a_child_lives_as_long_as_its_parent() -> None:
    assert _output("wait").startswith("alive\nchild of ")
    assert _output("leave") == ""


def test_a_parent_with_process_number_1_is_alive() -> None:
    if subprocess.run([*IN_A_CONTAINER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no PID namespace can be made here")
    assert _output("wait", *IN_A_CONTAINER) == "alive\nchild of 1\n"
