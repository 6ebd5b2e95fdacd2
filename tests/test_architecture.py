"""Which package may know which; docs/explanation/architecture.md shows it."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import architecture
import hplacer_optimizer as hp
from hplacer_optimizer import cli
from tests.processes import ROOT

Modules = dict[str, architecture.Module]
WITHOUT_TENSORFLOW = ("problem", "machines", "costs", "planners", "options", "inspection", "plans")
UPPER = {"plugin", "cli", "bench", "run"}
# Only the process that learns imports these.
HAS_TENSORFLOW = tuple(f"planners.learning.{name}" for name in ("events", "networks"))

# A lookup imports the first, and needs nothing of the second.
LATE = {("plans.plan", "inspection.report")}


@pytest.fixture(scope="module")
def modules() -> Modules:
    """Of the package, by name."""
    return architecture.read_package()


def test_every_room_has_its_place_in_the_order(modules: Modules) -> None:
    assert {module.room for module in modules.values()} == set(architecture.ORDER)
    for room in architecture.ORDER:
        path = architecture.PACKAGE / room
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), room


def test_no_module_hides_a_public_name(modules: Modules) -> None:
    """`hp.plan` would be a module once `hplacer_optimizer.plan` was imported."""
    assert not modules.keys() & set(hp.__all__)


def test_imports_point_downwards_wherever_they_stand(modules: Modules) -> None:
    level = {name: i for i, name in enumerate(architecture.ORDER)}
    upwards = [
        f"{name} imports {imported}"
        for name, module in modules.items()
        for imported in module.imports
        if level[modules[imported].room] > level[module.room]
    ]
    assert upwards == []


def test_no_files_import_each_other_in_a_ring(modules: Modules) -> None:
    assert architecture.cycle(modules) == []


def test_only_what_loads_an_optional_library_is_imported_late(modules: Modules) -> None:
    late = [
        f"{name} imports {imported} inside of a function"
        for name, module in modules.items()
        for imported in module.late
        if not architecture.loads_heavy(modules, imported) and (name, imported) not in LATE
    ]
    assert late == []


def test_rings_and_heavy_imports_are_found() -> None:
    def module(*imports: str, heavy: bool = False) -> architecture.Module:
        return architecture.Module(ROOT, imports=set(imports), heavy=heavy)

    ring = {"a": module("b"), "b": module("c"), "c": module("a"), "d": module("a")}
    assert set(architecture.cycle(ring)) == {"a", "b", "c"}
    line = {"a": module("b"), "b": module("c"), "c": module(heavy=True), "d": module()}
    assert architecture.cycle(line) == []
    assert architecture.loads_heavy(line, "a")
    assert not architecture.loads_heavy(line, "d")


@pytest.mark.parametrize("room", WITHOUT_TENSORFLOW)
def test_planning_knows_neither_tensorflow_nor_the_pass(room: str, modules: Modules) -> None:
    for name, module in modules.items():
        if module.room == room:
            assert not {modules[imported].room for imported in module.imports} & UPPER, name
            if not name.startswith(HAS_TENSORFLOW):
                assert not architecture.loads_heavy(modules, name), name


# ---- one word, one thing ----


def repeated(places: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Of pairs of a name and its place the names that have several, with these."""
    found: dict[str, list[str]] = {}
    for name, place in places:
        found.setdefault(name, []).append(place)
    return {name: several for name, several in found.items() if len(several) > 1}


def command_modules() -> set[str]:
    """Modules of cli/ that hold the command of their name: `cli.bench` has `hplacer bench`."""
    modules = set()
    for module in cli._COMMANDS:
        commands = argparse.ArgumentParser().add_subparsers()
        module.add_commands(commands)
        own = module.__name__.partition(".")[2]
        if own.rpartition(".")[2] in commands.choices:
            modules.add(own)
    return modules


def test_a_module_or_package_has_a_name_of_its_own(modules: Modules) -> None:
    """But a module of cli/ that holds the command `hplacer X` may be X, too."""
    allowed = command_modules()
    assert (
        repeated(
            (name.rpartition(".")[2], name)
            for name, module in modules.items()
            if name not in allowed and module.path.stem != "__main__"
        )
        == {}
    )


def class_names(source: str) -> list[str]:
    """Of the top level; without the underscores in front."""
    return [
        node.name.lstrip("_") for node in ast.parse(source).body if isinstance(node, ast.ClassDef)
    ]


def test_a_class_has_a_name_of_its_own(modules: Modules) -> None:
    """Stubs of native modules are left out: some of their classes have a twin in Python."""
    assert (
        repeated(
            (name, module)
            for module, found in modules.items()
            for name in class_names(found.path.read_text())
        )
        == {}
    )


def test_a_name_that_is_there_twice_is_found() -> None:
    assert repeated([("a", "x.a"), ("b", "x.b"), ("a", "y.a")]) == {"a": ["x.a", "y.a"]}
    source = "class A: ...\nclass _B:\n    class C: ...\ndef f():\n    class D: ..."
    assert class_names(source) == ["A", "B"]
    assert {"cli.bench", "cli.report"} <= command_modules()
    assert "cli.arguments" not in command_modules()  # holds no command
    assert "cli.steps" not in command_modules()  # holds commands of other names


# ---- what is not installed ----

# What a directory beside the package must not know of the others. Tests hold tools to their word.
UNKNOWN = {
    "hplacer_optimizer": {"benchmarks", "examples", "testbed", "tests", "tools"},
    "testbed": {"benchmarks", "tests", "tools"},
    "benchmarks": {"tests", "tools"},
    "tests": {"benchmarks"},
    "tools": {"benchmarks", "testbed", "tests"},
}


def named_modules(source: str) -> set[str]:
    """The directories whose modules a source imports, also in the code that its strings hold."""
    tree = ast.parse(source)
    strings = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    imports = re.compile(r"^\s*(?:from|import) +(\w+)", re.MULTILINE)
    return {name for text in (source, *strings) for name in imports.findall(text)}


@pytest.mark.parametrize("room", UNKNOWN)
def test_a_directory_does_not_import_the_insides_of_another(room: str) -> None:
    for path in sorted((ROOT / room).rglob("*.py")):
        names = named_modules(path.read_text()) & UNKNOWN[room]
        assert not names, f"{path.relative_to(ROOT)} imports of {names}: testbed/ is for both"


def test_an_import_is_found_wherever_it_stands() -> None:
    source = 'def f():\n    from a.b import c\nCODE = "import d\\nfrom e import f"'
    assert named_modules(source) == {"a", "d", "e"}


# ---- the native parts ----

# A file of the engine includes only folders that stand in a line above its own, or its own.
ENGINE_LAYERS = (
    {"problem"},
    {"simulator"},
    {"bounds", "schedulers"},
    {"search"},
    {"learning", "rollout"},
)


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


def test_a_file_of_the_engine_knows_only_lower_folders_and_its_own() -> None:
    levels = {folder: i for i, layer in enumerate(ENGINE_LAYERS) for folder in layer}
    for file, included in includes("cc/engine").items():
        own = Path(file).parts[2]
        assert own in levels, f"{file}: its folder has no place in ENGINE_LAYERS"
        for header in included:
            assert not header.startswith("."), f"{file}: includes start at cc/"
            if header.startswith("engine/"):
                folder = Path(header).parts[1]
                assert folder == own or levels[folder] < levels[own], f"{file} includes {header}"


def test_the_pass_does_not_know_python() -> None:
    for file, included in includes("cc/tf").items():
        for header in included:
            assert not header.startswith("pybind11/"), file
            assert header != "Python.h", file


def test_the_bridge_knows_neither_tensorflow_nor_python() -> None:
    for name in ("bridge.h", "bridge.cc", "captured_step.h", "hash.h"):
        for header in includes("cc/tf")[f"cc/tf/{name}"]:
            assert "/" not in header or header.startswith("tf/"), f"{name} includes {header}"
