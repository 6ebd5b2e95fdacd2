"""`hplacer cache`: looks after the stored plans."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

from hplacer_optimizer.cli.arguments import (
    FAILED,
    OK,
    PLAN_HELP,
    add_command,
    add_json,
    add_store_options,
    open_store,
)
from hplacer_optimizer.cli.plan_texts import measured, speedup
from hplacer_optimizer.cli.printing import print_json, step_time
from hplacer_optimizer.cli.show import plan_document
from hplacer_optimizer.cli.terminal_tables import (
    fits,
    print_line,
    print_table,
    without_empty_columns,
)
from hplacer_optimizer.errors import DocumentError, HPlacerError, StoreError
from hplacer_optimizer.plans.directories.paths import read_file
from hplacer_optimizer.plans.store import MAX_BYTES, PlanStore, StoreEntry
from hplacer_optimizer.support.formats import format_age
from hplacer_optimizer.support.quantities import SIZE

_DAY_S = 86_400.0
_SHORT_DIGITS = 8
_SPARE = ("ops", "devices", "gap", "planner", "created")


def add_commands(commands: Any) -> None:
    """Adds the commands of this module to the parser."""
    text = "list, check, copy and remove stored plans"
    cache = commands.add_parser("cache", help=text, epilog="example: hplacer cache list")
    actions = cache.add_subparsers(metavar="ACTION", required=True)

    def add(name: str, run: Any, text: str, example: str) -> argparse.ArgumentParser:
        return add_command(actions, name, run, text, f"hplacer cache {example}")

    listing = add("list", _list, "list the stored plans", "list --cache gs://team/plans")
    path = add("path", _path, "print where the plans are", "path")
    text = "read all of every stored plan; exit code 1 if one is damaged"
    verify = add("verify", _verify, text, "verify --json")
    remove = add("remove", _remove, "remove stored plans", "remove 3f9c2b1a")
    text = "delete the verdict of a plan, so that a retired one can be used again"
    restore = add("restore", _restore, text, "restore 3f9c2b1a")
    for action in (remove, restore):
        action.add_argument("fingerprints", nargs="+", metavar="PLAN", help=PLAN_HELP)
    text = "remove the least recently used plans, until a limit holds"
    prune = add("prune", _prune, text, "prune --max-size '200 MB' --unused-for 90")
    prune.add_argument(
        "--max-size",
        type=_size,
        metavar="SIZE",
        help=f"largest size of all plans in a directory (default, without other options: "
        f"{SIZE.format(MAX_BYTES)}, the limit that writers keep)",
    )
    prune.add_argument(
        "--unused-for", type=_days, metavar="DAYS", help="remove plans unused for this many days"
    )
    prune.add_argument("--damaged", action="store_true", help="remove files that hold no plan")
    prune.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    text = "copy plans to another directory or address, if they are better than those there"
    export = add("export", _export, text, "export gs://team/plans 3f9c2b1a")
    export.add_argument("target", metavar="TO", help="a directory or an address")
    text = "copy plans from a file, a directory or an address, if they are better"
    imported = add("import", _import, text, "import colleague.hplan")
    imported.add_argument("source", metavar="FROM", help="a plan file, a directory or an address")
    for action in (export, imported):
        action.add_argument(
            "fingerprints", nargs="*", metavar="PLAN", help=f"only these: {PLAN_HELP}"
        )
    for action in (listing, path, verify, remove, restore, prune, export, imported):
        add_store_options(action)
        add_json(action)


def _size(text: str) -> int:
    try:
        return int(SIZE.parse(text, "size"))
    except DocumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _days(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (days := float(text)) < math.inf:
            return days
    raise argparse.ArgumentTypeError(f"must be a number of days, not {text!r}")


def _list(options: argparse.Namespace) -> int:
    store = open_store(options)
    if options.json:
        print_json([_entry_document(entry) for entry in store.entries()])
        return OK
    entries = [*store.entries()]
    plans = [entry for entry in entries if entry.plan]
    errors = [entry.error for entry in entries if not entry.plan]
    if not entries:
        print(f"no plans in {store.directory}")
    with_directory = len(store.layers) > 1
    columns, rows = _table(plans, with_directory, short=False)
    if not fits(columns, rows):
        columns, rows = _table(plans, with_directory, short=True)
    print_table(columns, rows, spare=_SPARE)
    for error in errors:
        print_line(f"unreadable: {error}")
    return OK


def _table(
    entries: Sequence[StoreEntry], with_directory: bool, *, short: bool
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows = [_row(entry, short) for entry in entries]
    if not rows:
        return (), ()
    columns = [name for name in rows[0] if with_directory or name != "directory"]
    return without_empty_columns(columns, [[row[name] for name in columns] for row in rows])


def _row(entry: StoreEntry, short: bool) -> dict[str, str]:
    plan = entry.plan
    assert plan is not None
    return {
        "plan": plan.fingerprint[:_SHORT_DIGITS] if short else plan.fingerprint,
        "label": plan.label,
        "planner": plan.planner,
        "step": step_time(plan.step_ns, plan.feasible),
        "times as fast": speedup(plan),
        "measured": measured(plan, short=short),
        "gap": "" if plan.gap is None else f"{plan.gap:.1%}",
        "ops": str(plan.num_ops),
        "devices": str(len(plan.device_names)),
        "created": format_age(plan.created, time.time()),
        "directory": entry.path.rpartition("/")[0],
    }


def _entry_document(entry: StoreEntry) -> dict[str, Any]:
    return {
        "fingerprint": entry.fingerprint,
        "path": entry.path,
        "error": entry.error,
        "plan": plan_document(entry.plan) if entry.plan else None,
    }


def _path(options: argparse.Namespace) -> int:
    store = open_store(options)
    if options.json:
        layers = [layer.address for layer in store.layers]
        print_json({"directory": store.directory, "layers": layers})
    else:
        print(store.directory)
    return OK


def _verify(options: argparse.Namespace) -> int:
    store, checked, damaged = open_store(options), 0, []
    for entry in store.entries(verify=True):
        checked += 1
        if entry.error:
            damaged.append({"path": entry.path, "error": entry.error})
            if not options.json:
                print(f"failed  {entry.error}")
    if options.json:
        print_json({"directory": store.directory, "checked": checked, "damaged": damaged})
    else:
        print(f"{checked} plans in {store.directory}, {len(damaged)} damaged")
    return FAILED if damaged else OK


def _remove(options: argparse.Namespace) -> int:
    store = open_store(options)
    chosen = [store.resolve(prefix) for prefix in options.fingerprints]  # all, or none is removed
    removed = [path for fingerprint in dict.fromkeys(chosen) for path in store.remove(fingerprint)]
    return _tell_removed(removed, "removed", options)


def _restore(options: argparse.Namespace) -> int:
    store = open_store(options)
    chosen = [store.resolve(prefix) for prefix in options.fingerprints]
    changed = [path for fingerprint in dict.fromkeys(chosen) for path in store.restore(fingerprint)]
    if options.json:
        print_json({"restored": changed})
    else:
        for path in changed:
            print(f"restored {path}: its verdict is deleted")
    return OK


def _prune(options: argparse.Namespace) -> int:
    max_bytes = options.max_size
    if max_bytes is None and options.unused_for is None and not options.damaged:
        max_bytes = MAX_BYTES
    removed = open_store(options).prune(
        max_bytes=max_bytes,
        unused_s=None if options.unused_for is None else options.unused_for * _DAY_S,
        damaged=options.damaged,
        dry_run=options.dry_run,
    )
    return _tell_removed(removed, "would remove" if options.dry_run else "removed", options)


def _tell_removed(paths: list[str], what: str, options: argparse.Namespace) -> int:
    if options.json:
        print_json({"removed": paths})
        return OK
    for path in paths:
        print(f"{what} {path}")
    if not paths:
        print("nothing to remove")
    return OK


def _export(options: argparse.Namespace) -> int:
    target = PlanStore(options.target, trust_shared=options.trust_shared, max_bytes=None)
    return _copy(_stored(open_store(options), options.fingerprints), target, options)


def _import(options: argparse.Namespace) -> int:
    source, target = options.source, open_store(options)
    if os.path.isfile(source) or source.endswith(".hplan"):
        if options.fingerprints:
            raise StoreError(f"{source}: is one plan file, so there is no fingerprint to choose")
        return _copy(iter([(source, read_file(source))]), target, options)
    if "://" not in source and not os.path.isdir(source):
        raise StoreError(f"{source}: there is no such file or directory")
    opened = PlanStore(source, trust_shared=options.trust_shared)
    return _copy(_stored(opened, options.fingerprints), target, options)


def _stored(store: PlanStore, prefixes: list[str]) -> Iterator[tuple[str, bytes | HPlacerError]]:
    """Path and content of the chosen plans, or why one cannot be read."""
    chosen = [store.resolve(prefix) for prefix in prefixes] if prefixes else store.fingerprints()
    for fingerprint in dict.fromkeys(chosen):
        try:
            data = store.read(fingerprint)
        except StoreError as error:
            yield store.path(fingerprint), error
            continue
        if data is not None:  # else it was removed meanwhile
            yield store.path(fingerprint), data


def _copy(
    plans: Iterator[tuple[str, bytes | HPlacerError]],
    target: PlanStore,
    options: argparse.Namespace,
) -> int:
    """Copies files as they are, each checked first; exit code 1 if one could not be read."""
    copied: list[str] = []
    kept: list[str] = []
    errors: list[str] = []
    for path, content in plans:
        try:
            if isinstance(content, HPlacerError):
                raise content
            plan, written = target.add(content, path)
        except HPlacerError as failure:
            errors.append(str(failure))
        else:
            (copied if written else kept).append(target.path(plan.fingerprint))
    if options.json:
        print_json({"copied": copied, "kept": kept, "errors": errors})
    else:
        for path in copied:
            print(f"copied {path}")
        for error in errors:
            print(f"failed {error}")
        summary = f"{len(copied)} plans copied to {target.directory}"
        print(f"{summary}, {len(kept)} as good there already, {len(errors)} failed")
    return FAILED if errors else OK
