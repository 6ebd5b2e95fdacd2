"""A native module of another TensorFlow, or none at all; and its stubs."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, Outcome, run

PACKAGE = ROOT / "hplacer_optimizer"

# ---- a native module that does not fit ----

OTHER = "2.99.0"
OPTIONS = '{"hierarchical_placer": True, "remapping": False}'
SWITCH_ON_FAILS = f"""
for _ in range(2):
    try:
        tf.config.optimizer.set_experimental_options({OPTIONS})
    except ImportError as error:
        assert isinstance(error, hp.NativeBuildError), repr(error)
        message = str(error)
    else:
        raise AssertionError("no error")
shown = tf.config.optimizer.get_experimental_options()
assert not {{"hierarchical_placer", "remapping"}} & set(shown)
assert float(tf.function(lambda: tf.constant(1.0))()) == 1.0
report(message=message)
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
    """The package with everything but `_tf`; returns its parent directory."""
    copy = directory / "hplacer_optimizer"
    copy.mkdir()
    for file in PACKAGE.iterdir():
        if not file.name.startswith(("_tf.", "__pycache__")):
            (copy / file.name).symlink_to(file)
    return directory


def run_copy(code: str, package: Path) -> Outcome:
    """Runs the code, which does its own imports, with the copy."""
    return run(code, package / "work", prelude=ONLY_THE_COPY, package=package, fresh=True)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A copy of the package whose `_tf` says that it was built for TensorFlow 2.99.0."""
    tf_version = pytest.importorskip("tensorflow").__version__
    native = next(PACKAGE.glob("_tf.*.so"), None)
    if native is None:
        pytest.skip("the native module is not built")
    package = copied(tmp_path)
    data = native.read_bytes()
    if len(tf_version) != len(OTHER):
        pytest.skip(f"{OTHER} does not fit in the place of {tf_version}")
    assert tf_version.encode() in data
    patched = data.replace(tf_version.encode(), OTHER.encode())
    (package / "hplacer_optimizer" / native.name).write_bytes(patched)
    return package


def check_message(message: str) -> None:
    import tensorflow as tf

    assert f"built for TensorFlow {OTHER}" in message
    assert f"TensorFlow {tf.__version__}" in message
    assert "make build" in message
    assert "pip install --no-build-isolation --no-deps --force-reinstall --no-cache-dir" in message


def test_a_build_for_another_tensorflow_is_refused_at_switching_on(foreign: Path) -> None:
    imports = IMPORTS.format(first="hplacer_optimizer", second="tensorflow")
    outcome = run_copy(imports + SWITCH_ON_FAILS, foreign)
    check_message(outcome.report["message"])
    assert len(outcome.log) == 1
    check_message(outcome.log[0])


def test_a_build_for_another_tensorflow_is_refused_at_the_import(foreign: Path) -> None:
    code = """
import tensorflow
try:
    import hplacer_optimizer
except ImportError as error:
    print("REPORT " + json.dumps({"message": str(error), "type": type(error).__name__}))
"""
    outcome = run_copy(code, foreign)
    assert outcome.report["type"] == "NativeBuildError"
    check_message(outcome.report["message"])


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
    imports = IMPORTS.format(first="tensorflow", second="hplacer_optimizer")
    outcome = run_copy(imports + SWITCH_ON_FAILS, package)
    assert "hplacer_optimizer._tf is missing" in outcome.report["message"]
    assert "make build" in outcome.report["message"]
    (line,) = outcome.log
    assert "_tf is missing, graphs are not planned" in line


# ---- stubs ----


def test_the_stubs_name_what_the_native_modules_hold() -> None:
    pytest.importorskip("tensorflow")
    sys.path.insert(0, str(ROOT))
    try:
        from hplacer_optimizer.capture import native
    finally:
        sys.path.remove(str(ROOT))
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
