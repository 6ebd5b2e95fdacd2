"""One directory of plans: `<fingerprint>.hplan` each, foreign files left alone.

    put: lock -> read existing plan -> better? -> temporary file, fsync -> rename -> fsync directory
    get: read -> Plan | None

A plan is one file, its time of last use included (the file's modification time), so there is
nothing that a crash could leave half done. What is removed to keep the limit are the plans that
were not used for longest, never the one that was just written, and only under the lock.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hplacer_optimizer.errors import HPlacerError, PlanError, StoreError
from hplacer_optimizer.log import LOGGER
from hplacer_optimizer.plans.directories.files import Files, FileStatus
from hplacer_optimizer.plans.directories.gfile import GfileFiles
from hplacer_optimizer.plans.directories.local_files import LocalFiles
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.plan_file import NewerFormatError
from hplacer_optimizer.plans.plan_format import FINGERPRINT_HEX_DIGITS
from hplacer_optimizer.plans.ranking import replaces
from hplacer_optimizer.plans.training_starts import Start
from hplacer_optimizer.plans.training_starts import from_bytes as starts_from_bytes
from hplacer_optimizer.plans.training_starts import to_bytes as starts_to_bytes
from hplacer_optimizer.plans.unfinished_trial import UnfinishedTrial
from hplacer_optimizer.plans.verdict import Hardware

SUFFIX = ".hplan"
_STARTS_SUFFIX = ".starts"  # what option verify knows of a graph
_TRIAL_SUFFIX = ".trial"  # what was measured in a trial that did not come to its end
MAX_BYTES = 1 << 30  # of a local directory
_SLACK = 16  # a writer tidies again after another sixteenth of the limit


@dataclass(frozen=True, kw_only=True)
class StoreEntry:
    """One file of the store: either its plan or the reason why it cannot be read."""

    fingerprint: str
    path: str
    plan: Plan | None
    error: str | None


class Layer:
    """Plans by fingerprint in one directory or at one address."""

    def __init__(self, address: str, *, trust_shared: bool, max_bytes: int | None) -> None:
        self._files: Files
        if "://" in address:
            self._files = GfileFiles(address)
        else:
            try:
                directory = Path(address).expanduser()
            except RuntimeError:
                raise StoreError(
                    f"the plan store {address!r}: there is no such home directory; name another"
                ) from None
            self._files = LocalFiles(directory, trust_shared)
        self._max_bytes = max_bytes if self._files.is_local else None
        self._untidied_bytes: int | None = None  # written since leftovers and sizes were looked at

    @property
    def address(self) -> str:
        return self._files.address

    @property
    def is_local(self) -> bool:
        return self._files.is_local

    def path(self, fingerprint: str) -> str:
        return self._files.path(file_name(fingerprint))

    def get(self, fingerprint: str, *, mark_used: bool = False) -> Plan | None:
        """The plan, its problem left in the file; PlanError or StoreError if unreadable."""
        name, path = file_name(fingerprint), self.path(fingerprint)
        with self._files.open(name) as file:
            if file is None:
                return None
            plan = Plan.from_file(file, path, lambda: self._files.open(name))
            _check_name(plan, fingerprint, path)
            if mark_used:
                self._files.mark_used(file)
        return plan

    def read(self, fingerprint: str) -> bytes | None:
        """The content of the file, unchecked."""
        with self._files.open(file_name(fingerprint)) as file:
            return None if file is None else bytes(file.read())

    def load(self, fingerprint: str) -> Plan | None:
        """The plan with every checksum verified, and its problem checked."""
        data, path = self.read(fingerprint), self.path(fingerprint)
        if data is None:
            return None
        plan = Plan.from_bytes(data, path)
        _check_name(plan, fingerprint, path)
        plan.verify()
        return plan

    def put(self, plan: Plan, data: bytes, *, stored_fits: bool = True) -> bool:
        """Stores a plan, whose file content is `data`; True if it was written.

        It stays out if the one that is there is to be kept (`PlanStore.put`), or is of a newer
        format, which cannot be compared. A file that holds no valid plan is replaced.
        """
        with self._files.writing():
            tidy = self._is_time_to_tidy()
            if tidy:
                self._files.remove_leftovers()
            try:
                existing = self.get(plan.fingerprint)
                if existing and not replaces(
                    plan, existing, Hardware.here(), stored_fits=stored_fits
                ):
                    return False
            except NewerFormatError:
                return False
            except PlanError:
                pass
            self._files.write(file_name(plan.fingerprint), data)
            self._untidied_bytes = (0 if tidy else self._untidied_bytes or 0) + len(data)
            if tidy:
                self._evict(file_name(plan.fingerprint), len(data))
        return True

    def forget_verdict(self, fingerprint: str) -> bool:
        """Takes back what was measured of a plan; False if nothing was, or there is none."""
        with self._files.writing():
            plan = self.load(fingerprint)
            if plan is None or plan.verdict is None:
                return False
            self._files.write(file_name(fingerprint), replace(plan, verdict=None).to_bytes())
            self._remove_measured(fingerprint)  # it would bring it back
        return True

    def remove(self, fingerprint: str) -> bool:
        """False if there was none."""
        with self._files.writing():
            return self._remove(fingerprint)

    def _remove(self, fingerprint: str) -> bool:
        """The plan, and what was measured of it; within `writing()`."""
        self._remove_measured(fingerprint)
        return self._files.remove(file_name(fingerprint))

    def _remove_measured(self, fingerprint: str) -> None:
        for suffix in (_STARTS_SUFFIX, _TRIAL_SUFFIX):
            self._files.remove(file_name(fingerprint, suffix))

    def unfinished_trial(self, fingerprint: str) -> UnfinishedTrial | None:
        """What a trial measured that did not come to its end."""
        with self._files.open(file_name(fingerprint, _TRIAL_SUFFIX)) as file:
            return None if file is None else UnfinishedTrial.from_bytes(file.read())

    def keep_unfinished_trial(self, fingerprint: str, trial: UnfinishedTrial | None) -> None:
        """Replaces it; None: there is none any more."""
        name = file_name(fingerprint, _TRIAL_SUFFIX)
        with self._files.writing():
            if trial is None:
                self._files.remove(name)
            else:
                self._files.write(name, trial.to_bytes())

    def starts(self, fingerprint: str) -> list[Start]:
        """What option verify knows of a graph, oldest first."""
        with self._files.open(file_name(fingerprint, _STARTS_SUFFIX)) as file:
            return [] if file is None else starts_from_bytes(file.read())

    def change_starts(
        self, fingerprint: str, change: Callable[[list[Start]], list[Start]]
    ) -> list[Start]:
        """Replaces them by what `change` makes of them, which it returns."""
        with self._files.writing():
            changed = change(self.starts(fingerprint))
            self._files.write(file_name(fingerprint, _STARTS_SUFFIX), starts_to_bytes(changed))
        return changed

    def started(self) -> list[str]:
        """The fingerprints of graphs with starts, sorted."""
        names = [name for name in self._files.names() if name.endswith(_STARTS_SUFFIX)]
        return sorted(filter(is_fingerprint, (n.removesuffix(_STARTS_SUFFIX) for n in names)))

    def fingerprints(self) -> list[str]:
        """Those that have a file, sorted; [] where the directory does not exist."""
        return sorted(filter(None, map(_fingerprint_of, self._files.names())))

    def entries(self, *, verify: bool) -> Iterator[StoreEntry]:
        """Every plan file in the order of fingerprints; `verify` reads and checks all of each."""
        for fingerprint in self.fingerprints():
            plan, error = None, None
            try:
                plan = self.load(fingerprint) if verify else self.get(fingerprint)
            except HPlacerError as failure:
                error = str(failure)
            if plan or error:  # neither: somebody removed the file meanwhile
                path = self.path(fingerprint)
                yield StoreEntry(fingerprint=fingerprint, path=path, plan=plan, error=error)

    def check_trust(self) -> None:
        """Raises StoreError if plans of this directory would be refused."""
        self._files.check_trust()

    def check_writable(self) -> None:
        """Writes a file and removes it; raises StoreError if that fails."""
        name = ".0.check.tmp"  # else it would be a plan; a leftover goes away as others do
        with self._files.writing():
            self._files.write(name, b"x" * 4096)
            self._files.remove(name)

    def total_bytes(self) -> int:
        """Of all plan files."""
        return sum(status.size_bytes for status in self._plans())

    def prune(
        self,
        *,
        max_bytes: int | None,
        unused_s: float | None,
        damaged: bool,
        dry_run: bool,
    ) -> list[str]:
        """Removes plans until every limit that is given holds; returns their fingerprints.

        The least recently used ones go first. `damaged` removes the files that hold no valid plan.
        `dry_run` neither removes nor writes anything.
        """
        if dry_run:
            return self._too_many(max_bytes, unused_s, damaged)
        with self._files.writing():
            self._files.remove_leftovers()
            chosen = self._too_many(max_bytes, unused_s, damaged)
            return [fingerprint for fingerprint in chosen if self._remove(fingerprint)]

    def _too_many(self, max_bytes: int | None, unused_s: float | None, damaged: bool) -> list[str]:
        chosen = [fingerprint for fingerprint in self.fingerprints() if damaged]
        chosen = [fingerprint for fingerprint in chosen if self._is_damaged(fingerprint)]
        plans = [plan for plan in self._plans() if _fingerprint_of(plan.name) not in chosen]
        return chosen + _least_used(plans, max_bytes=max_bytes, unused_s=unused_s)

    def _is_damaged(self, fingerprint: str) -> bool:
        try:
            self.load(fingerprint)
        except NewerFormatError:
            return False
        except PlanError:
            return True
        except StoreError:
            return False
        return False

    def _plans(self) -> Iterator[FileStatus]:
        return (status for status in self._files.statuses() if _fingerprint_of(status.name))

    def _is_time_to_tidy(self) -> bool:
        """At the first write, and after another part of the limit."""
        if self._untidied_bytes is None:
            return True
        return self._max_bytes is not None and self._untidied_bytes > self._max_bytes // _SLACK

    def _evict(self, written: str, written_bytes: int) -> None:
        """Removes the least recently used plans beyond the limit, never what was just written."""
        if self._max_bytes is None:
            return
        others = [plan for plan in self._plans() if plan.name != written]
        limit = max(self._max_bytes - written_bytes, 0)
        for fingerprint in _least_used(others, max_bytes=limit, unused_s=None):
            with contextlib.suppress(StoreError):  # somebody else's file
                self._remove(fingerprint)
                LOGGER.debug("evicted plan %s from %s", fingerprint, self.address)


def is_fingerprint(text: str) -> bool:
    return bool(re.fullmatch(rf"[0-9a-f]{{{FINGERPRINT_HEX_DIGITS}}}", text))


def file_name(fingerprint: str, suffix: str = SUFFIX) -> str:
    """Raises StoreError for what is no fingerprint."""
    if not is_fingerprint(fingerprint):
        raise StoreError(
            f"{fingerprint!r} is not a fingerprint: {FINGERPRINT_HEX_DIGITS} lower-case hex digits"
        )
    return fingerprint + suffix


def _fingerprint_of(name: str) -> str | None:
    stem = name.removesuffix(SUFFIX)
    return stem if stem != name and is_fingerprint(stem) else None


def _check_name(plan: Plan, fingerprint: str, path: str) -> None:
    if plan.fingerprint != fingerprint:
        raise PlanError(
            f"{path}: holds the plan of fingerprint {plan.fingerprint or '(none)'}; "
            "delete the file, or rename it after its fingerprint"
        )


def _least_used(
    plans: list[FileStatus], *, max_bytes: int | None, unused_s: float | None
) -> list[str]:
    """The fingerprints that have to go, least recently used first."""
    total, now = sum(plan.size_bytes for plan in plans), time.time()
    chosen = []
    for plan in sorted(plans, key=lambda plan: (plan.used_s, plan.name)):
        too_large = max_bytes is not None and total > max_bytes
        too_old = unused_s is not None and now - plan.used_s > unused_s
        if too_large or too_old:
            chosen.append(plan.name.removesuffix(SUFFIX))
            total -= plan.size_bytes
    return chosen
