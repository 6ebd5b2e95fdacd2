"""The plans that this process knows: read from stores or files, or made here, also without a disk.

A store may hang, as a network file system does: no second graph waits for one that does not answer,
and training goes on while a plan is written.
"""

from __future__ import annotations

from typing import Any

from hplacer_optimizer.errors import PlanError, StoreError
from hplacer_optimizer.log import LOGGER, warn_once
from hplacer_optimizer.plans.plan import Plan, load_plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.support.threads import start_or_run

_STORING_S = 1.0  # that training waits for a plan to be written


class KnownPlans:
    """Plans by where they are kept, and by the fingerprint of their graph."""

    def __init__(self) -> None:
        self._of_stores: dict[tuple[str, str], Plan] = {}
        self._of_files: dict[str, Plan] = {}
        self._reading: dict[Any, str] = {}  # requests that wait for the store of this directory

    def forget_readers(self) -> None:
        """In a forked child, which has none of the threads that read."""
        self._reading.clear()

    def pinned(self, path: str) -> Plan:
        """The plan of a file; raises PlanError or OSError where it cannot be read."""
        if path not in self._of_files:
            self._of_files[path] = load_plan(path)
        return self._of_files[path]

    def stored(self, request: Any, store: PlanStore, *, again: bool) -> Plan | None:
        """The plan of the request's graph; `again`: also if it is known, the store is read.

        Raises StoreError where the store did not answer an earlier request.
        """
        key = store.directory, request.fingerprint
        plan = self._of_stores.get(key)
        if plan is None or again:
            plan = self._read(request, store) or plan
        if plan is not None:
            self._of_stores[key] = plan
        return plan

    def know(self, store: PlanStore, plan: Plan) -> None:
        """Remembers a plan that the store has got from another process."""
        self._of_stores[store.directory, plan.fingerprint] = plan

    def keep(self, store: PlanStore, plan: Plan) -> None:
        """Remembers a plan that was made here, and writes it; waits a moment for that."""
        key = store.directory, plan.fingerprint
        fits = key not in self._of_stores  # else the stored one did not fit the graph
        self._of_stores[key] = plan
        if writer := start_or_run(_write, store, plan, fits, name="hplacer-store"):
            writer.join(_STORING_S)

    def of(self, fingerprint: str) -> tuple[Plan, str] | None:
        """The plan of a graph, and the path of its file."""
        for (directory, key), plan in list(self._of_stores.items()):
            if key == fingerprint:
                return plan, PlanStore(directory).path(fingerprint)
        for path, plan in list(self._of_files.items()):
            if plan.fingerprint == fingerprint:
                return plan, path
        return None

    def _read(self, request: Any, store: PlanStore) -> Plan | None:
        """What the store has, if it can be read."""
        for earlier, directory in list(self._reading.items()):
            if directory == store.directory and earlier.is_abandoned:
                raise StoreError(
                    f"{directory}: the plan store does not answer; choose another with option cache"
                )
        self._reading[request] = store.directory
        try:
            return store.get(request.fingerprint)
        except PlanError as error:
            warn_once(f"read {store.directory}", f"a stored plan cannot be used: {error}")
        except StoreError as error:
            _warn_of_store(store, error)
        finally:
            self._reading.pop(request, None)
        return None


def _write(store: PlanStore, plan: Plan, stored_fits: bool) -> None:
    try:
        if not store.put(plan, stored_fits=stored_fits) and not stored_fits:
            LOGGER.info("%s: the stored plan stays, only this process uses the new one", plan.label)
    except StoreError as error:
        _warn_of_store(store, error)


def _warn_of_store(store: PlanStore, error: StoreError) -> None:
    """Reading and writing fail for one reason: one warning for each store."""
    warn_once(f"store {store.directory}", f"plans are not kept for the next run: {error}")
