"""Calls a function right after a module has been imported, without importing it.

    when_imported("tensorflow", callback)

    already imported:  callback(module) at once
    imported later:    the module runs to its end, then callback(module), then `import` returns

The finder leaves the search to those behind it and wraps `exec_module` of the loader that they
found, on that one instance, so that the module, its spec and its loader stay what they are.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

from hplacer_optimizer.log import warn_once

Callback = Callable[[ModuleType], None]


def when_imported(name: str, callback: Callback) -> None:
    """Runs the callback once `name` has been imported; what it raises then is only a warning.

    Where the module is there already, errors pass to the caller. A second registration for the
    same name replaces the first.
    """
    module = sys.modules.get(name)
    if module is not None:
        callback(module)
        return
    _FINDER.callbacks[name] = callback
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


class _Finder:
    """A meta path finder that finds nothing by itself."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callback] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.callbacks:
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        for finder in behind:
            find = getattr(finder, "find_spec", None)  # Python 3.11 still allows old finders
            spec: importlib.machinery.ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                self._watch(name, spec)
                return spec
        return None

    def _watch(self, name: str, spec: importlib.machinery.ModuleSpec) -> None:
        execute = getattr(spec.loader, "exec_module", None)
        if execute is None:  # a namespace package, or a loader of the old protocol
            return

        def execute_then_call(module: ModuleType) -> None:
            execute(module)
            callback = self.callbacks.pop(name, None)
            if callback is None:
                return
            try:
                callback(module)
            except Exception as error:  # never break somebody else's import
                warn_once(f"import {name}", f"not switched on for {name}: {error}")

        spec.loader.exec_module = execute_then_call  # type: ignore[union-attr,method-assign]


_FINDER = _Finder()
