"""A native module of another TensorFlow, or none at all; and its stubs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hplacer_optimizer.capture import native
from tests.processes import ROOT, Outcome, run

PACKAGE = ROOT / "hplacer_optimizer"

# ---- a native module that does not fit ----

OTHER = "2.99.0"
OPTIONS = '{"hierarchical_placer": True, "remapping": False}'
SWITCH_ON = f"""
for _ in range(2):
    tf.config.optimizer.set_experimental_options({OPTIONS})
assert tf.config.optimizer.get_experimental_options()["remapping"] is False
with tf.Graph().as_default():
    config = hp.session_config()
    assert not config.graph_options.rewrite_options.custom_optimizers
    with tf.compat.v1.Session(config=config) as session:
        assert session.run(tf.constant(2.0)) == 2.0
assert float(tf.function(lambda: tf.constant(1.0))()) == 1.0
"""
# An editable installation of this checkout would supply the module that the copy lacks.
ONLY_THE_COPY = """
import json, sys
sys.meta_path[:] = [
    finder for finder in sys.meta_path
    if not getattr(finder, "__module__", "").startswith("__editable__")
]
"""
IMPORTS = """
import {first}
import {second}
import hplacer_optimizer as hp
import tensorflow as tf
def report(**values):
    print("REPORT " + json.dumps(values))
"""


def copied(directory: Path) -> Path:
    """The package without modules for TensorFlow; returns its parent directory."""
    copy = directory / "hplacer_optimizer"
    copy.mkdir()
    for file in PACKAGE.iterdir():
        if not file.name.startswith(("_tf_", "__pycache__")):
            (copy / file.name).symlink_to(file)
    return directory


def run_copy(code: str, package: Path, first: str = "tensorflow") -> Outcome:
    """Runs the code with the copy; which of the two is imported `first`."""
    second = "tensorflow" if first == "hplacer_optimizer" else "hplacer_optimizer"
    return run(
        IMPORTS.format(first=first, second=second) + code,
        package / "work",
        prelude=ONLY_THE_COPY,
        package=package,
        fresh=first != "tensorflow",
    )


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A copy of the package whose one module says that it was built for TensorFlow 2.99.0."""
    tf_version = pytest.importorskip("tensorflow").__version__
    if tf_version not in native.built_for():
        pytest.skip("the native module is not built")
    if len(tf_version) != len(OTHER):
        pytest.skip(f"{OTHER} does not fit in the place of {tf_version}")
    release = "_".join(tf_version.split(".")[:2])
    (built,) = PACKAGE.glob(f"_tf_{release}.*.so")
    package = copied(tmp_path)
    data = built.read_bytes()
    assert tf_version.encode() in data
    patched = data.replace(tf_version.encode(), OTHER.encode())
    (package / "hplacer_optimizer" / built.name).write_bytes(patched)
    return package


def check_message(message: str) -> None:
    import tensorflow as tf

    assert f"built for TensorFlow {OTHER}" in message
    assert f"TensorFlow {tf.__version__}" in message
    assert "make build" in message
    assert "pip install --no-build-isolation --no-deps --force-reinstall --no-cache-dir" in message


@pytest.mark.parametrize("first", ["hplacer_optimizer", "tensorflow"])
def test_a_build_for_another_tensorflow_is_one_warning(foreign: Path, first: str) -> None:
    (line,) = run_copy(SWITCH_ON, foreign, first).log
    assert "the optimizer is off" in line
    check_message(line)


def test_asking_another_build_for_its_history_is_an_error(foreign: Path) -> None:
    code = """
try:
    hp.history()
except hp.NativeBuildError as error:
    report(message=str(error))
"""
    check_message(run_copy(code, foreign).report["message"])


@pytest.mark.slow
def test_with_the_environment_another_build_breaks_nothing(foreign: Path) -> None:
    code = (
        IMPORTS.format(first="hplacer_optimizer", second="tensorflow")
        + """
assert float(tf.function(lambda: tf.constant(1.0))()) == 1.0
"""
    )
    outcome = run(
        code,
        foreign / "on",
        prelude=ONLY_THE_COPY,
        package=foreign,
        fresh=True,
        HPLACER_OPTIONS="on",
    )
    check_message(outcome.log[0])
    outcome = run(
        code,
        foreign / "off",
        prelude=ONLY_THE_COPY,
        package=foreign,
        fresh=True,
        HPLACER_DISABLE="1",
    )
    assert outcome.log == []


def test_a_missing_build(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    package = copied(tmp_path)
    (line,) = run_copy(SWITCH_ON, package).log
    assert "the native TensorFlow module is missing" in line
    assert "make build" in line


# ---- stubs ----


def test_the_stubs_name_what_the_native_modules_hold() -> None:
    pytest.importorskip("tensorflow")
    if native.is_missing():
        pytest.skip("the native module is not built")
    module = native.load()
    tree = ast.parse((PACKAGE / "_tf.pyi").read_text())
    defined = {n.name: n for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    declared = {name: node for name, node in defined.items() if not name.startswith("_")}
    real = {name for name in vars(module) if not name.startswith("_")}
    assert set(declared) == real
    for name, node in declared.items():
        if isinstance(node, ast.ClassDef):
            bases = [defined[base.id] for base in node.bases if isinstance(base, ast.Name)]
            body = [item for held_by in (node, *bases) for item in held_by.body]
            members = {item.name for item in body if isinstance(item, ast.FunctionDef)}
            held = {member for member in vars(getattr(module, name)) if not member.startswith("_")}
            assert {member for member in members if not member.startswith("_")} == held, name
