"""What native code writes without Python's knowledge is seen, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.environment import clean_environment

pytest.importorskip("tensorflow")

# Each change is made in a fork with a process group of its own, which a guard that sees it ends.
SCRIPT = """
import os, signal, sys
from pathlib import Path

import h5py
import tensorflow as tf

from hplacer_optimizer.scripts import exchange
from hplacer_optimizer.scripts.file_guard import FileGuard

where, old = Path(sys.argv[1]), sys.argv[2]
new = old + "2"
gfile = tf.io.gfile

def save_numbered(step):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("v", initializer=1.0)
        counter = tf.constant(step)
        session.run(v1.global_variables_initializer())
        path = os.path.dirname(old) + "/numbered"
        v1.train.Saver().save(session, path, global_step=counter, write_state=False)

CHANGES = [
    lambda: gfile.GFile(old, "w").write("more"),
    lambda: gfile.GFile(old, mode="a").write("more"),
    lambda: gfile.remove(old),
    lambda: gfile.remove(path=old),
    lambda: gfile.rename(old, new),
    lambda: gfile.rename(new, dst=old, overwrite=True),
    lambda: gfile.copy(new, old, overwrite=True),
    lambda: tf.compat.v1.gfile.Remove(old),
    lambda: gfile.rmtree(os.path.dirname(old)),
    lambda: tf.io.write_file(tf.constant(old), "more"),
    lambda: tf.io.TFRecordWriter(path=old),
    lambda: h5py.File(old, "w"),
    lambda: tf.train.Checkpoint(v=tf.Variable(1.0)).write(os.path.dirname(old) + "/checkpoint"),
    lambda: save_numbered(7),
]

def ends(change):
    child = os.fork()
    if not child:
        os.setpgrp()
        guard = FileGuard(where, free=[])
        guard.install()
        guard.on_tensorflow(tf)
        guard.on_h5py(h5py)
        with gfile.GFile(new, "w") as file:
            file.write("mine")
        h5py.File(new + ".h5", "w").close()
        h5py.File(new + ".h5").close()
        gfile.GFile(old).read()
        change()
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

for change in CHANGES:
    assert ends(change) == -signal.SIGKILL, change.__code__.co_firstlineno
    said = (where / exchange.FAILURE).read_text()
    assert said.startswith(f"would overwrite {os.path.dirname(old)}"), said
"""


def test_what_tensorflow_and_h5py_change_elsewhere_is_seen(tmp_path: Path) -> None:
    old = tmp_path / "results" / "old"
    where = tmp_path / "exchange"
    for directory in (old.parent, where):
        directory.mkdir()
    before = [old, *map(old.with_name, ("checkpoint.index", "numbered-7.index"))]
    for path in before:
        path.write_text("a year of training")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(where), str(old)],
        env=clean_environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert {path.read_text() for path in before} == {"a year of training"}
