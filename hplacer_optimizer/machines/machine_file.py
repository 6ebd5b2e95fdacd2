"""Machine files: YAML, format `hplacer-machine/1` (docs/reference/machines.md), read strictly.

Kinds that a file does not define come from the catalogue that is shipped with the machines.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from hplacer_optimizer.errors import DocumentError, MachineError
from hplacer_optimizer.machines.family import family_document, family_names, family_rule
from hplacer_optimizer.machines.machine import (
    INTER_OP_THREADS,
    MAX_SLOTS,
    MAX_THREADS,
    Device,
    DeviceKind,
    Link,
    Machine,
    check_dtypes,
)
from hplacer_optimizer.machines.topology import WORK, read_links
from hplacer_optimizer.support.document import MAX_BYTES, Field, parse_yaml
from hplacer_optimizer.support.keywords import close_name
from hplacer_optimizer.support.new_file import new_file
from hplacer_optimizer.support.quantities import BYTE_RATE, DURATION, FLOP_RATE, SIZE, shorten

FORMAT = "hplacer-machine/1"

_DATA = Path(__file__).with_name("data")
_CATALOGUE = _DATA / "kinds.yaml"
_NO_MACHINES = ("kinds", "families")
_EXECUTOR_OVERHEAD_NS = 1_000  # TensorFlow's executor takes about as long for each op
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def shipped_machines() -> tuple[str, ...]:
    """Names of the machine files that come with this package, sorted."""
    return tuple(
        sorted(stem for path in _DATA.glob("*.yaml") if (stem := path.stem) not in _NO_MACHINES)
    )


def machine_names() -> tuple[str, ...]:
    """Every name that `load_machine` knows: of shipped files, then the other NxKIND."""
    return tuple(dict.fromkeys((*shipped_machines(), *family_names())))


@functools.cache
def shipped_kinds() -> Mapping[str, DeviceKind]:
    """The catalogue of device kinds, by name."""
    with _reading(_CATALOGUE):
        return _read_kinds(_read(_CATALOGUE).record(("kinds",))["kinds"])


def load_machine(name_or_path: str | os.PathLike[str]) -> Machine:
    """Reads a shipped machine by its name, makes one named NxKIND, or reads a machine file.

    Args:
        name_or_path: as `hplacer machine list` has them; N GPUs of a kind, as "4xa100"; or a YAML
            file. Write "./NAME" for a file that is named like a machine.

    Raises:
        MachineError: the description is malformed; names the field and the file.
        OSError: the file cannot be opened.

    Example:
        >>> import hplacer_optimizer as hp
        >>> machine = hp.load_machine("1cpu-2xk40")
        >>> machine.device_names
        ('/device:CPU:0', '/device:GPU:0', '/device:GPU:1')
        >>> len(hp.load_machine("4xa100").devices)
        5
    """
    text, path = os.fspath(name_or_path), Path(name_or_path)
    check_machine_name(text)
    if text in shipped_machines():
        path = _DATA / f"{text}.yaml"
    elif text in family_names():
        return _read_machine(Field({"format": FORMAT, **family_document(text)}, ""))
    with _reading(path):
        return _read_machine(_read(path))


def check_machine_name(text: str) -> None:
    """Raises MachineError for what is neither a machine's name nor looks like a file."""
    path, known = Path(text), machine_names()
    if text in known or len(path.parts) > 1 or path.suffix or path.exists():
        return
    close = close_name(text.lower(), known)
    hint = f"did you mean {close!r}? " if close else ""
    raise MachineError(
        f"no machine {shorten(text)}; {hint}give a YAML file or one of "
        f"{', '.join(shipped_machines())}, or {family_rule()}"
    )


def machine_from_yaml(text: str) -> Machine:
    """The machine in the text of a machine file; MachineError names the field that is wrong."""
    with _reading():
        return _read_machine(parse_yaml(text.encode()))


def save_machine(machine: Machine, path: str | os.PathLike[str]) -> None:
    """Writes a machine file; `load_machine` of it returns an equal machine.

    The bytes depend on the machine only. A reader sees the old file or the new one, never a part.

    Args:
        machine: to be written, with its own kinds and every link by itself.
        path: of the YAML file.

    Raises:
        OSError: the file cannot be written.

    Example:
        >>> import hplacer_optimizer as hp
        >>> machine = hp.load_machine("1cpu-2xk40")
        >>> hp.save_machine(machine, "mine.yaml")
        >>> hp.load_machine("mine.yaml") == machine
        True
    """
    with new_file(path) as file:
        file.write(machine_to_yaml(machine).encode())


# ---- reading ----


@contextmanager
def _reading(path: Path | None = None) -> Iterator[None]:
    """Whatever is wrong is a MachineError, with the name of the file."""
    try:
        yield
    except (DocumentError, MachineError) as error:
        raise MachineError(f"{error} (in file '{path}')" if path else str(error)) from None


def _read(path: Path) -> Field:
    with open(path, "rb") as stream:
        return parse_yaml(stream.read(MAX_BYTES + 1))


def _read_machine(document: Field) -> Machine:
    found = document.mapping().get("format")
    if found is None or found.value != FORMAT:
        raise MachineError(f"format: must be {FORMAT!r}, the format that this version reads")
    fields = document.record(
        ("format", "name", "devices", "links"),
        optional=("kinds", "assumptions", "inter_op_threads"),
    )
    own = _read_kinds(fields["kinds"]) if "kinds" in fields else {}
    devices = tuple(_read_device(field, own) for field in fields["devices"].sequence())
    borrowed = {device.kind for device in devices} - own.keys()
    catalogue = [kind for name, kind in shipped_kinds().items() if name in borrowed]
    assumptions = fields["assumptions"].sequence() if "assumptions" in fields else []
    threads = INTER_OP_THREADS
    if "inter_op_threads" in fields:
        threads = fields["inter_op_threads"].whole_number(1, MAX_THREADS)
    unlinked = Machine(
        name=fields["name"].text(),
        kinds=(*catalogue, *own.values()),
        devices=devices,
        links=(),
        assumptions=tuple(assumption.text() for assumption in assumptions),
        inter_op_threads=threads,
    )
    return replace(unlinked, links=read_links(fields["links"], unlinked.device_names))


def _read_kinds(field: Field) -> dict[str, DeviceKind]:
    return {name: _read_kind(name, kind) for name, kind in field.mapping().items()}


def _read_kind(name: str, field: Field) -> DeviceKind:
    fields = field.record(
        ("type", "flops", "memory", "memory_bandwidth", "launch_overhead"),
        optional=("executor_overhead", "slots", "turn", "cold", "launches_ahead"),
    )
    launch_ns = fields["launch_overhead"].quantity(DURATION)
    executor_ns = min(launch_ns, _EXECUTOR_OVERHEAD_NS)
    if "executor_overhead" in fields:
        executor_ns = fields["executor_overhead"].quantity(DURATION)
    flops = fields["flops"].mapping()
    check_dtypes(flops, fields["flops"].path)
    return field.build(
        DeviceKind,
        name=name,
        type=fields["type"].text(),
        flops_per_s={dtype: rate.quantity(FLOP_RATE) for dtype, rate in flops.items()},
        memory_bytes_per_s=fields["memory_bandwidth"].quantity(BYTE_RATE),
        memory_bytes=fields["memory"].quantity(SIZE),
        launch_overhead_ns=launch_ns,
        executor_overhead_ns=executor_ns,
        slots=fields["slots"].whole_number(1, MAX_SLOTS) if "slots" in fields else 1,
        turn_ns=fields["turn"].quantity(DURATION) if "turn" in fields else 0,
        cold_ns=fields["cold"].quantity(DURATION) if "cold" in fields else 0,
        launches_ahead="launches_ahead" in fields and fields["launches_ahead"].boolean(),
    )


def _read_device(field: Field, own: Mapping[str, DeviceKind]) -> Device:
    fields = field.record(("name", "kind"), optional=("memory", "cores", "start"))
    kind = fields["kind"].text()
    if kind not in own and kind not in shipped_kinds():
        raise fields["kind"].error(
            f"unknown kind {shorten(kind)}; kinds here: "
            f"{', '.join(own) or 'none'}; shipped kinds: {', '.join(shipped_kinds())}"
        )
    memory = fields["memory"].quantity(SIZE) if "memory" in fields else None
    cores = fields["cores"].text() if "cores" in fields else None
    return field.build(
        Device,
        name=fields["name"].text(),
        kind=kind,
        memory_bytes=memory,
        cores=cores,
        start_ns=fields["start"].quantity(DURATION) if "start" in fields else 0,
    )


# ---- writing ----


def machine_to_yaml(machine: Machine) -> str:
    """The canonical text of a machine: its own kinds, and every link by itself."""
    document = {
        "format": FORMAT,
        "name": machine.name,
        "assumptions": list(machine.assumptions),
        "inter_op_threads": machine.inter_op_threads,
        "kinds": {kind.name: _kind_document(kind) for kind in machine.kinds},
        "devices": [_device_document(device) for device in machine.devices],
        "links": [
            {"link": _link_document(list(links))}
            for _, links in groupby(machine.links, key=lambda link: {**vars(link), "dst": None})
        ],
    }
    if not machine.assumptions:
        del document["assumptions"]
    if machine.inter_op_threads == INTER_OP_THREADS:
        del document["inter_op_threads"]
    text: str = yaml.dump(
        document,
        Dumper=_DUMPER,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=200,
    )
    return text


def _kind_document(kind: DeviceKind) -> dict[str, Any]:
    document = {
        "type": kind.type,
        "flops": {dtype: FLOP_RATE.format(rate) for dtype, rate in kind.flops_per_s.items()},
        "memory": SIZE.format(kind.memory_bytes),
        "memory_bandwidth": BYTE_RATE.format(kind.memory_bytes_per_s),
        "launch_overhead": DURATION.format(kind.launch_overhead_ns),
        "executor_overhead": DURATION.format(kind.executor_overhead_ns),
        "slots": kind.slots,
    }
    if kind.turn_ns:
        document["turn"] = DURATION.format(kind.turn_ns)
    if kind.cold_ns:
        document["cold"] = DURATION.format(kind.cold_ns)
    if kind.launches_ahead:
        document["launches_ahead"] = True
    return document


def _device_document(device: Device) -> dict[str, str]:
    document = {"name": device.name, "kind": device.kind}
    if device.memory_bytes is not None:
        document["memory"] = SIZE.format(device.memory_bytes)
    if device.cores is not None:
        document["cores"] = device.cores
    if device.start_ns:
        document["start"] = DURATION.format(device.start_ns)
    return document


def _link_document(links: Sequence[Link]) -> dict[str, Any]:
    """Of links that differ in their destination only."""
    first = links[0]
    document = {
        "src": first.src,
        "dst": [link.dst for link in links] if len(links) > 1 else first.dst,
        "channel": first.channel,
        "latency": DURATION.format(first.latency_ns),
        "bandwidth": BYTE_RATE.format(first.bytes_per_s),
    }
    for key, (field, dimension) in WORK.items():
        if getattr(first, field):
            document[key] = dimension.format(getattr(first, field))
    return document
