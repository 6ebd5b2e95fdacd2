"""The plan store: one layer or several, such as a local directory in front of a shared one.

    get   first layer that has the plan, copied into the layers in front of it
    put   from the last layer to the first, so that none keeps a worse plan than the one behind it

A layer that fails is warned of once and left out, as long as another one serves.
"""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Callable, Iterator, Sequence

from hplacer_optimizer.errors import HPlacerError, PlanError, StoreError
from hplacer_optimizer.log import warn_once
from hplacer_optimizer.options import Options
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.plan_format import FINGERPRINT_HEX_DIGITS
from hplacer_optimizer.plans.store.layer import MAX_BYTES, Layer, StoreEntry
from hplacer_optimizer.plans.training_starts import Start
from hplacer_optimizer.plans.unfinished_trial import UnfinishedTrial
from hplacer_optimizer.support.notebook import Described
from hplacer_optimizer.support.own_directory import default_directory

LATEST = "latest"
SEPARATOR = ";"  # neither `:` nor `,`, which addresses and lists of options need


class PlanStore(Described):
    """Plans by fingerprint, in local directories or at TensorFlow filesystem addresses.

    Opening a store does not touch it.

    Args:
        directory: one of them, or several with `;` between them, the nearest first; None:
            `$XDG_CACHE_HOME/hplacer`, else `~/.cache/hplacer`; without a home `hplacer-UID` in the
            directory of temporary files.
        trust_shared: allows a local directory that other users can write: whoever can write there
            decides where your ops run, so the default is to refuse it. New files then get the read
            and write permissions of the directory, so that the whole team can use them.
        max_bytes: limits each local directory; None: no limit.

    Raises:
        StoreError: an address is empty.

    Example, after that of `plan_model`:
        >>> store = hp.PlanStore("plans")
        >>> store.put(plan.step)
        True
        >>> store.get(plan.step.fingerprint).planner
        'etf'
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        trust_shared: bool = False,
        max_bytes: int | None = MAX_BYTES,
    ) -> None:
        text = os.fspath(default_directory() if directory is None else directory)
        addresses = text.split(SEPARATOR)
        if not all(addresses):
            raise StoreError(f"the plan store {text!r} has an empty directory: name one")
        self._layers = [
            Layer(address, trust_shared=trust_shared, max_bytes=max_bytes) for address in addresses
        ]

    @classmethod
    def from_options(cls, options: Options) -> PlanStore:
        """The one that a training script with these options uses."""
        return cls(
            options.cache, trust_shared=options.trust_shared, max_bytes=options.cache_max_bytes
        )

    @property
    def directory(self) -> str:
        """What this store was opened with, `~` expanded."""
        return SEPARATOR.join(layer.address for layer in self._layers)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The directories, nearest first."""
        return tuple(self._layers)

    def path(self, fingerprint: str) -> str:
        """Where the plan of this fingerprint is, or would be, in the first layer."""
        return self._layers[0].path(fingerprint)

    def check_usable(self) -> None:
        """For those who search for long before `put`: StoreError if that would fail now.

        Creates the directories, and writes and removes a file in them.
        """
        failures = []
        for layer in reversed(self._layers):
            try:
                layer.check_writable()
                layer.check_trust()
            except HPlacerError as error:
                failures.append(error)
        if len(failures) == len(self._layers):
            raise failures[-1]

    def get(self, fingerprint: str) -> Plan | None:
        """The stored plan, None if there is none.

        Raises PlanError or StoreError if no layer could be read.
        """
        plan, failures = None, []
        for index, layer in enumerate(self._layers):
            try:
                plan = layer.get(fingerprint, mark_used=True)
            except HPlacerError as error:
                failures.append((layer, error))
            if plan is not None:
                self._bring_nearer(fingerprint, index)
                break
        if len(failures) == len(self._layers):
            raise failures[0][1]
        _warn_of(failures)
        return plan

    def put(self, plan: Plan, *, stored_fits: bool = True) -> bool:
        """Stores the plan unless one as good is there already; True if it was written.

        Without `stored_fits`, the stored plan does not fit the graph of this one, although they
        share a fingerprint. Then it also stays if more placements were scored for it. A plan as
        good takes its place only where that has no ranks, so that it fits no renamed graph.

        An existing file that holds no valid plan is replaced. Raises PlanError if the plan has no
        fingerprint, StoreError if nothing can be written (no space, no permission, another writer
        holds the lock for ten seconds).
        """
        plan.check_fingerprint()
        return self._put(plan, plan.to_bytes(), stored_fits=stored_fits)

    def add(self, data: bytes, source: object) -> tuple[Plan, bool]:
        """Stores the content of a plan file as it is, unless one as good is there.

        Returns its plan, and whether it was written. Raises PlanError that starts with `source` if
        anything in it is wrong, or if it has no fingerprint.
        """
        plan = Plan.from_bytes(data, source)
        plan.verify()
        try:
            plan.check_fingerprint()
        except PlanError as error:
            raise PlanError(f"{source}: {error}") from None
        return plan, self._put(plan, data)

    def read(self, fingerprint: str) -> bytes | None:
        """The content of the nearest plan file, unchecked; None if there is none."""
        found = (layer.read(fingerprint) for layer in self._layers)
        return next((data for data in found if data is not None), None)

    def remove(self, fingerprint: str) -> builtins.list[str]:
        """Removes the plan of a fingerprint or a unique prefix of one from every layer.

        Returns the removed paths. Raises StoreError if there are none.
        """
        resolved = self.resolve(fingerprint)
        removed = [layer.path(resolved) for layer in self._layers if layer.remove(resolved)]
        if not removed:
            raise StoreError(f"{self.directory}: the plan {resolved} has just been removed")
        return removed

    def restore(self, fingerprint: str) -> builtins.list[str]:
        """Takes back the verdict on a plan, by its fingerprint or a unique prefix, in every layer.

        Returns the changed paths. Raises StoreError if the plan is not there or has no verdict.
        """
        resolved = self.resolve(fingerprint)
        paths = [layer.path(resolved) for layer in self._layers if layer.forget_verdict(resolved)]
        if not paths:
            raise StoreError(f"{self.directory}: nobody has measured the plan {resolved}")
        return paths

    def starts(self, fingerprint: str) -> builtins.list[Start]:
        """What option verify knows of a graph, oldest first; in the first layer alone."""
        return self._layers[0].starts(fingerprint)

    def change_starts(
        self,
        fingerprint: str,
        change: Callable[[builtins.list[Start]], builtins.list[Start]],
    ) -> builtins.list[Start]:
        """Replaces these starts by what `change` makes of them, which it returns."""
        return self._layers[0].change_starts(fingerprint, change)

    def started(self) -> builtins.list[str]:
        """The fingerprints of graphs with starts, sorted."""
        return self._layers[0].started()

    def unfinished_trial(self, fingerprint: str) -> UnfinishedTrial | None:
        """What a trial measured that did not come to its end; in the first layer alone."""
        return self._layers[0].unfinished_trial(fingerprint)

    def keep_unfinished_trial(self, fingerprint: str, trial: UnfinishedTrial | None) -> None:
        """Replaces it; None: there is none any more."""
        self._layers[0].keep_unfinished_trial(fingerprint, trial)

    def prune(
        self,
        *,
        max_bytes: int | None = None,
        unused_s: float | None = None,
        damaged: bool = False,
        dry_run: bool = False,
    ) -> builtins.list[str]:
        """Removes plans of every layer until the limits hold; returns the paths.

        Args:
            max_bytes: of each layer's plan files; the least recently used ones go first.
            unused_s: seconds for which a plan may remain unused.
            damaged: remove the files that hold no valid plan.
            dry_run: remove nothing, only tell.
        """
        return [
            layer.path(fingerprint)
            for layer in self._layers
            for fingerprint in layer.prune(
                max_bytes=max_bytes, unused_s=unused_s, damaged=damaged, dry_run=dry_run
            )
        ]

    def fingerprints(self) -> builtins.list[str]:
        """The fingerprints that have a file in any layer, sorted."""
        return sorted({name for layer in self._layers for name in layer.fingerprints()})

    def entries(self, *, verify: bool = False) -> Iterator[StoreEntry]:
        """Every plan file, layer by layer, in the order of fingerprints.

        Each is read and checked; with `verify`, the problem in it, too.
        """
        for layer in self._layers:
            yield from layer.entries(verify=verify)

    def list(self) -> builtins.list[StoreEntry]:
        """All of `entries()`."""
        return [*self.entries()]

    def resolve(self, prefix: str) -> str:
        """The one stored fingerprint that starts with `prefix`, or that of the plan made last.

        The plan made last is called "latest". Raises StoreError for none or several.
        """
        if prefix == LATEST:
            return self._latest()
        if not re.fullmatch(rf"[0-9a-f]{{1,{FINGERPRINT_HEX_DIGITS}}}", prefix):
            raise StoreError(
                f"{prefix!r} is not the start of a fingerprint: "
                f"1 to {FINGERPRINT_HEX_DIGITS} lower-case hex digits, or {LATEST!r}"
            )
        matches = [name for name in self.fingerprints() if name.startswith(prefix)]
        if len(matches) != 1:
            found = f"{len(matches)} plans whose fingerprint starts" if matches else "no plan"
            remedy = "give more digits" if matches else "`hplacer cache list` shows what is there"
            raise StoreError(f"{self.directory}: {found} with {prefix!r}; {remedy}")
        return matches[0]

    def _latest(self) -> str:
        made = {(e.plan.created, e.plan.fingerprint) for e in self.entries() if e.plan}
        if not made:
            raise StoreError(f"{self.directory}: there is no plan, so none is the latest")
        return max(made)[1]

    def _describe(self) -> tuple[str, dict[str, str]]:
        return "PlanStore", {"directory": self.directory}

    def _put(self, plan: Plan, data: bytes, *, stored_fits: bool = True) -> bool:
        written, best, content = False, plan, data
        failures: list[tuple[Layer, HPlacerError]] = []
        for layer in reversed(self._layers):
            try:
                if layer.put(best, content, stored_fits=stored_fits):
                    written = written or best is plan
                elif layer is not self._layers[0]:
                    best, content = _kept(layer, plan.fingerprint) or (best, content)
            except HPlacerError as error:
                failures.append((layer, error))
        if len(failures) == len(self._layers):
            raise failures[-1][1]
        _warn_of(failures)
        return written

    def _bring_nearer(self, fingerprint: str, index: int) -> None:
        """Copies a plan into the layers in front of the one that has it, as far as possible."""
        for layer in reversed(self._layers[:index]):
            try:
                kept = _kept(self._layers[index], fingerprint)
                if kept is not None:
                    layer.put(*kept)
            except HPlacerError as error:
                _warn_of([(layer, error)])


def _kept(layer: Layer, fingerprint: str) -> tuple[Plan, bytes] | None:
    """What a layer has, with the content of its file; PlanError if that is damaged."""
    data = layer.read(fingerprint)
    return None if data is None else (Plan.from_bytes(data, layer.path(fingerprint)), data)


def _warn_of(failures: Sequence[tuple[Layer, HPlacerError]]) -> None:
    for layer, failure in failures:
        # A directory fails for one reason, whatever is asked of it; a plan for its own.
        key = str(failure) if isinstance(failure, PlanError) else f"layer {layer.address}"
        warn_once(key, f"one layer of the plan store is left out: {failure}")
