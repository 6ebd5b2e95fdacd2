"""The packages, their lines and arrows, as docs/explanation/architecture.md shows them.

An arrow is an import, wherever it stands: inside functions and type checks, too. ORDER says which
way arrows point; tests/test_architecture.py holds the package to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "hplacer_optimizer"

# Packages and files of the root, from the bottom to the top: each imports those before it.
ORDER = (
    "errors",
    "log",
    "support",
    "problem",
    "machines",
    "costs",
    "planners",
    "options",
    "workloads",
    "capture",
    "emulation",
    "run",
    "measuring",
    "scripts",
    "inspection",
    "plans",
    "pretraining",
    "plugin",
    "__init__",
    "bench",
    "cli",
    "__main__",
)
HEAVY = {
    *("keras", "matplotlib", "pymetis"),
    *("ray", "scipy", "tensorflow", "tf_keras"),
}
_NATIVE = {"_engine", "_tf"}  # below everything; `_engine` calls `errors` and its description


@dataclass
class Module:
    """A file of the package, named as in `import`: "" is the package itself."""

    path: Path
    imports: set[str] = field(default_factory=set)  # own modules, wherever the import stands
    late: set[str] = field(default_factory=set)  # of these, those inside functions
    heavy: bool = False  # imports an optional library as soon as it is imported itself

    @property
    def room(self) -> str:
        """What it stands for in ORDER."""
        parts = self.path.relative_to(PACKAGE).parts
        return parts[0] if len(parts) > 1 else self.path.stem


def read_package() -> dict[str, Module]:
    """All modules by name, with their imports."""
    modules = {_name(path): Module(path) for path in sorted(PACKAGE.rglob("*.py"))}
    for module in modules.values():
        tree = ast.parse(module.path.read_text())
        inside = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
        }
        for node in ast.walk(tree):
            for name in _imported(node, modules):
                module.imports.add(name)
                if id(node) in inside:
                    module.late.add(name)
        module.heavy = any(_libraries(node) & HEAVY for node in tree.body)
    return modules


def arrows(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Of each name of ORDER those that it imports."""
    found: dict[str, set[str]] = {}
    for module in modules.values():
        rooms = {modules[name].room for name in module.imports}
        found.setdefault(module.room, set()).update(rooms - {module.room})
    return found


def cycle(modules: dict[str, Module]) -> list[str]:
    """Modules that import each other in a ring, if there are any."""
    state: dict[str, bool] = {}  # False: on the way, True: done
    trail: list[str] = []

    def visit(name: str) -> list[str]:
        if name in state:
            return [] if state[name] else [*trail[trail.index(name) :], name]
        state[name] = False
        trail.append(name)
        for imported in sorted(modules[name].imports):
            if ring := visit(imported):
                return ring
        trail.pop()
        state[name] = True
        return []

    return next((ring for name in modules if (ring := visit(name))), [])


def loads_heavy(modules: dict[str, Module], name: str) -> bool:
    """Whether importing the module imports an optional library."""
    seen, todo = set(), [name]
    while todo:
        module = modules[(current := todo.pop())]
        if module.heavy:
            return True
        seen.add(current)
        todo += sorted(module.imports - module.late - seen)
    return False


def table(modules: dict[str, Module]) -> str:
    """The Markdown table: a row per package and file of the root, the top one first."""
    arrow = arrows(modules)
    rows = []
    for name in reversed(ORDER):
        members = [module for module in modules.values() if module.room == name]
        lines = sum(len(module.path.read_text().splitlines()) for module in members)
        is_package = (PACKAGE / name).is_dir()
        head = PACKAGE / name / "__init__.py" if is_package else PACKAGE / f"{name}.py"
        what = (ast.get_docstring(ast.parse(head.read_text())) or "").partition("\n\n")[0]
        imports = ", ".join(other for other in ORDER if other in arrow[name])
        rows.append(
            f"| `{name}{'/' if is_package else '.py'}` | {_first_sentence(what)} "
            f"| {max(1, round(lines / 100)) * 100} | {imports} |\n"
        )
    head_row = "| package or file | holds | lines, rounded | imports |\n|---|---|---|---|\n"
    return head_row + "".join(rows)


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(node: ast.AST, modules: dict[str, Module]) -> Iterator[str]:
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            raise SystemExit("imports of this package are absolute")
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            is_module = full.partition(".")[2] in modules.keys() | _NATIVE
            names.append(full if is_module else str(node.module))
    for name in names:
        root, _, own = name.partition(".")
        if root == PACKAGE.name and own not in _NATIVE:
            yield own


def _libraries(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return {(node.module or "").partition(".")[0]} if isinstance(node, ast.ImportFrom) else set()


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".:")
