"""A native module of another TensorFlow, or none at all; and which layer may know which."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, run

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
    outcome = run(
        imports + SWITCH_ON_FAILS, foreign / "work", prelude=ONLY_THE_COPY, package=foreign
    )
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
    outcome = run(code, foreign / "work", prelude=ONLY_THE_COPY, package=foreign)
    assert outcome.report["type"] == "NativeBuildError"
    check_message(outcome.report["message"])


def test_a_missing_build(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    package = copied(tmp_path)
    imports = IMPORTS.format(first="tensorflow", second="hplacer_optimizer")
    outcome = run(
        imports + SWITCH_ON_FAILS, package / "work", prelude=ONLY_THE_COPY, package=package
    )
    assert "hplacer_optimizer._tf is missing" in outcome.report["message"]
    assert "make build" in outcome.report["message"]
    (line,) = outcome.log
    assert "_tf is missing, graphs are not planned" in line


# ---- imports point downwards ----

# A module imports only modules of its own package that stand in a line above it, or in its own. A
# package stands for those of its modules that have no line.
LAYERS = (
    {"errors", "log", "new_file", "sizes", "fingerprint", "child_process", "_engine", "_tf"},
    {"arrivals", "tracks", "loads", "tf_process", "clusters"},
    {"_import_hook", "costs", "problem", "simulator", "plan_file"},
    {"plan_fields", "plan_problem"},
    {"plan_v1"},
    {"plan"},
    {"chrome_trace", "critical_path"},
    {"machines.quantities"},
    {"machines.document", "machines.machine"},
    {"machines.topology"},
    {"machines.file", "machines.host", "machines.nvidia"},
    {"machines", "machines.detect", "machines.describe", "machines.list_devices"},
    {"captured", "validation"},
    {"runnable_step"},
    {"planners"},
    {"measuring"},
    {"learning"},
    {"measured_planning"},
    {"planning"},
    {"options", "store", "native"},
    {"loaders.sources", "loaders.gpu_kernels"},
    {"loaders.capturing", "loaders.graph_files"},
    {"loaders", "loaders.child"},
    {"measuring.graphs"},
    {"inspection"},
    {"comparison", "explanation", "exports", "report", "what_if"},
    {"script_capture.child"},
    {"script_capture", "progress"},
    {"pretraining.jobs", "pretraining.background"},
    {"pretraining.job_list", "pretraining.on_ray", "pretraining.__main__"},
    {"pretraining"},
    {"switch", "plugin"},
    {"calibration.fitting", "calibration.traces"},
    {"calibration.probes", "calibration.op_costs"},
    {"calibration"},
    {"variables.names", "variables.model_plan"},
    {"variables.symbolic", "variables.slots"},
    {"variables.tracing", "variables.scope"},
    {"variables"},
    {"workloads"},
    {"bench.calibration"},
    {"bench.tasks"},
    {"bench.experiment"},
    {"bench.tables"},
    {"bench.cluster_tasks"},
    {"bench.measured"},
    {"bench.charts", "bench.prediction", "bench.cluster", "bench"},
    {"cli", "run", "demo", "__main__", "script_capture.__main__"},
)
WITHOUT_TENSORFLOW = (
    "costs",
    "problem",
    "machines",
    "simulator",
    "planners",
    "plan",
    "store",
    "options",
)
INIT = PACKAGE / "__init__.py"  # which names everything, on demand
UPPER = {"plugin", "switch", "cli", "demo", "run"}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, *, everywhere: bool) -> set[str]:
    """Dotted names that a file imports; `everywhere`: also inside functions and type checks."""
    tree = ast.parse(path.read_text())
    found = set()
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports of this package are absolute"
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def own_imports(path: Path, *, everywhere: bool) -> set[str]:
    names = {module_name(file) for file in PACKAGE.rglob("*.py*") if file.suffix != ".so"}
    prefix = "hplacer_optimizer."
    found = {
        name.removeprefix(prefix)
        for name in imports_of(path, everywhere=everywhere)
        if name.startswith(prefix)
    }
    return found & names


def level(name: str) -> int:
    """The line of a module, or of the package that it is in."""
    while name:
        for i, layer in enumerate(LAYERS):
            if name in layer:
                return i
        name = name.rpartition(".")[0]
    raise AssertionError("a module of this package has no place in LAYERS")


@pytest.mark.parametrize("path", sorted(set(PACKAGE.rglob("*.py")) - {INIT}), ids=module_name)
def test_a_module_knows_only_lower_layers_and_its_own(path: Path) -> None:
    own = level(module_name(path))
    higher = {name for name in own_imports(path, everywhere=False) if level(name) > own}
    assert not higher


@pytest.mark.parametrize("name", WITHOUT_TENSORFLOW)
def test_planning_knows_neither_tensorflow_nor_the_pass(name: str) -> None:
    path = PACKAGE / name
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    for file in files:
        assert not own_imports(file, everywhere=True) & UPPER, file
        roots = {found.split(".")[0] for found in imports_of(file, everywhere=False)}
        assert not roots & {"tensorflow", "keras", "tf_keras"}, file


def includes(directory: str) -> dict[str, list[str]]:
    files = sorted((ROOT / directory).rglob("*.h")) + sorted((ROOT / directory).rglob("*.cc"))
    assert files
    pattern = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
    return {str(file.relative_to(ROOT)): pattern.findall(file.read_text()) for file in files}


def test_the_engine_knows_neither_tensorflow_nor_python() -> None:
    for file, included in includes("cc/engine").items():
        for header in included:
            assert not header.startswith(("tensorflow/", "tsl/", "absl/", "pybind11/", "tf/")), file
            assert header != "Python.h", file


def test_the_pass_does_not_know_python() -> None:
    for file, included in includes("cc/tf").items():
        for header in included:
            assert not header.startswith("pybind11/"), file
            assert header != "Python.h", file


def test_the_bridge_knows_neither_tensorflow_nor_python() -> None:
    for name in ("bridge.h", "bridge.cc", "captured_step.h", "hash.h"):
        for header in includes("cc/tf")[f"cc/tf/{name}"]:
            assert "/" not in header or header.startswith("tf/"), f"{name} includes {header}"


def test_the_stubs_name_what_the_native_modules_hold() -> None:
    pytest.importorskip("tensorflow")
    sys.path.insert(0, str(ROOT))
    try:
        from hplacer_optimizer import native
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
