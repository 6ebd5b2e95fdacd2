"""Problem files: `*.hplacer.json` and `*.hplacer.json.gz`, format `hplacer-problem/1`.

A problem file lets a graph be planned, shared and studied without TensorFlow. Reading is strict:
an unknown key, a missing key, a wrong type or a value out of range is a ProblemError that starts
with the path of the faulty field (`ops[17].cost_ns: ...`) and names the file. What concerns single
fields is checked here, what relates them (edges, aliases, cycles, sums) in the native `Problem`.

Decisions where the format leaves room: null is allowed in `output_alias` only; a file that cannot
be opened raises OSError; `slots` and indices end at 2^31 - 1.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import secrets
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import ProblemError

__all__ = [
    "Problem",
    "check_placement",
    "load_problem_file",
    "problem_from_dict",
    "problem_to_dict",
    "save_problem",
]

FORMAT = "hplacer-problem/1"

_FORMAT_FAMILY = "hplacer-problem/"
_GZIP_MAGIC = b"\x1f\x8b"
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_NO_KERNEL = -1
_NO_ALIAS = -1
_PERSISTENT = -2
_NO_GROUP = -1


def load_problem_file(path: str | os.PathLike[str]) -> Problem:
    """Reads a problem file, gzip-compressed or not (told by its first bytes).

    Raises ProblemError, which names the field and the file, or OSError if it cannot be opened.
    """
    data = Path(path).read_bytes()
    try:
        return problem_from_dict(_parse_json(data))
    except ProblemError as error:
        raise ProblemError(f"{error} (in file '{os.fspath(path)}')") from None


def save_problem(problem: Problem, path: str | os.PathLike[str]) -> None:
    """Writes a problem file, gzip-compressed if the name ends with `.gz`.

    The bytes depend on the problem only. A reader sees the old file or the new one, never a part.
    """
    path = Path(path)
    text = json.dumps(problem_to_dict(problem), ensure_ascii=False, separators=(",", ":"))
    data = text.encode() + b"\n"
    if path.suffix == ".gz":
        buffer = io.BytesIO()
        # No name and no time in the header, hence the same bytes every time.
        with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as stream:
            stream.write(data)
        data = buffer.getvalue()
    _write_atomically(path, data)


def problem_from_dict(document: object) -> Problem:
    """Builds a Problem from a parsed problem file.

    Raises ProblemError with the path of the faulty field.
    """
    _check_format(document)
    fields = _Fields(
        document,
        "",
        required=("format", "name", "device_kinds", "devices", "links", "ops", "edges"),
        optional=("control_edges",),
    )
    kinds = _read_kinds(fields["device_kinds"])
    return Problem(
        name=_string(fields["name"], "name"),
        device_kinds=list(kinds),
        **_read_devices(fields["devices"], kinds),
        **_read_links(fields["links"]),
        **_read_ops(fields["ops"], kinds),
        edges=_read_rows(fields["edges"], "edges", 3),
        control_edges=_read_rows(fields.get("control_edges", []), "control_edges", 2),
    )


def problem_to_dict(problem: Problem) -> dict[str, Any]:
    """Returns the canonical document of a problem: defaults left out, edges sorted and distinct.

    `problem_from_dict` of the result is an equal problem, and its document is equal again.
    """
    document: dict[str, Any] = {
        "format": FORMAT,
        "name": problem.name,
        "device_kinds": problem.device_kinds,
        "devices": _device_documents(problem),
        "links": _link_documents(problem),
        "ops": _op_documents(problem),
        "edges": problem.edges.tolist(),
    }
    if len(problem.control_edges):
        document["control_edges"] = problem.control_edges.tolist()
    return document


def check_placement(
    problem: Problem, placement: Sequence[int] | NDArray[np.integer[Any]]
) -> NDArray[np.int32]:
    """Returns the placement as int32[n], one device index per op.

    Raises ProblemError for a wrong length, an index outside 0..m-1, or anything but integers.
    Constraints, kernels and memory are not looked at: that is the simulator's `feasible`.
    """
    if isinstance(placement, np.ndarray):
        if placement.dtype.kind not in "iu":
            _fail("placement", f"expected integers, got an array of {placement.dtype}")
        if placement.ndim != 1:
            _fail("placement", f"expected one dimension, got shape {placement.shape}")
    elif isinstance(placement, (str, bytes)) or not isinstance(placement, Sequence):
        _fail("placement", f"expected a list of device indices, got {_type_name(placement)}")
    else:
        for i, device in enumerate(placement):
            if isinstance(device, bool) or not isinstance(device, (int, np.integer)):
                _fail(f"placement[{i}]", f"expected an integer, got {_type_name(device)}")
    if len(placement) != problem.num_ops:
        _fail("placement", f"has {len(placement)} devices for {problem.num_ops} ops")
    devices = np.asarray(placement)
    outside = np.flatnonzero((devices < 0) | (devices >= problem.num_devices))
    if len(outside):
        _fail(
            f"placement[{outside[0]}]",
            f"device {devices[outside[0]]} is out of range, there are {problem.num_devices}",
        )
    return devices.astype(np.int32)


class _RepeatedKey(dict[str, Any]):
    """A JSON object that gives a key twice; refused where its path is known."""

    key: str


class _Fields(dict[str, Any]):
    """The fields of one JSON object, after a check of its keys."""

    def __init__(
        self, value: object, path: str, *, required: Sequence[str], optional: Sequence[str] = ()
    ) -> None:
        super().__init__(_object(value, path))
        prefix = f"{path}." if path else ""
        for key in self:
            if key not in required and key not in optional:
                allowed = ", ".join((*required, *optional))
                _fail(f"{prefix}{key}", f"unknown key; the keys here are {allowed}")
        for key in required:
            if key not in self:
                _fail(f"{prefix}{key}", "is missing")


def _fail(path: str, message: str) -> NoReturn:
    raise ProblemError(f"{path}: {message}" if path else message)


def _type_name(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _object(value: object, path: str) -> dict[str, Any]:
    if isinstance(value, _RepeatedKey):
        _fail(f"{path}.{value.key}" if path else value.key, "the key is given twice")
    if not isinstance(value, dict):
        _fail(path, f"expected an object, got {_type_name(value)}")
    for key in value:
        _string(key, path)
    return value


def _list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list):
        _fail(path, f"expected a list, got {_type_name(value)}")
    return value


def _string(value: object, path: str) -> str:
    if not isinstance(value, str):
        _fail(path, f"expected a string, got {_type_name(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        _fail(path, f"{value!a} is not valid Unicode")
    return value


def _integer(value: object, path: str, minimum: int = 0, maximum: int = _INT64_MAX) -> int:
    # Not isinstance: a bool is an int.
    if type(value) is not int:
        _fail(path, f"expected an integer, got {_type_name(value)}")
    if value < minimum:
        _fail(path, f"must be at least {minimum}, got {value}")
    if value > maximum:
        _fail(path, f"must be at most {maximum}, got a larger integer")
    return value


def _parse_json(data: bytes) -> object:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) == len(items):
            return result
        repeated = _RepeatedKey(result)
        keys = [key for key, _ in items]
        repeated.key = next(key for i, key in enumerate(keys) if key in keys[:i])
        return repeated

    def constant(name: str) -> NoReturn:
        raise ProblemError(f"not JSON: the number {name}")

    try:
        if data.startswith(_GZIP_MAGIC):
            data = gzip.decompress(data)
        return json.loads(data.decode(), object_pairs_hook=pairs, parse_constant=constant)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ProblemError(f"damaged gzip data: {error}") from None
    except RecursionError:
        raise ProblemError("not a problem: nested too deeply") from None
    except ValueError as error:
        if isinstance(error, ProblemError):
            raise
        raise ProblemError(f"not JSON: {error}") from None


def _check_format(document: object) -> None:
    document = _object(document, "")
    if "format" not in document:
        _fail("format", f"is missing; a problem file says '{FORMAT}' there")
    name = _string(document["format"], "format")
    if name == FORMAT:
        return
    if name.startswith(_FORMAT_FAMILY):
        _fail("format", f"'{name}' is not supported, this version reads '{FORMAT}'; upgrade it")
    _fail("format", f"'{name}' is not a problem file's format, expected '{FORMAT}'")


def _read_kinds(value: object) -> dict[str, int]:
    kinds: dict[str, int] = {}
    for i, item in enumerate(_list(value, "device_kinds")):
        kind = _string(item, f"device_kinds[{i}]")
        if kind in kinds:
            _fail(f"device_kinds[{i}]", f"the name '{kind}' is given twice")
        kinds[kind] = i
    return kinds


def _read_devices(value: object, kinds: dict[str, int]) -> dict[str, Any]:
    names, kind, memory, slots = [], [], [], []
    for i, item in enumerate(_list(value, "devices")):
        path = f"devices[{i}]"
        device = _Fields(item, path, required=("name", "kind", "memory_bytes"), optional=("slots",))
        names.append(_string(device["name"], f"{path}.name"))
        kind_name = _string(device["kind"], f"{path}.kind")
        if kind_name not in kinds:
            _fail(f"{path}.kind", f"unknown device kind '{kind_name}'")
        kind.append(kinds[kind_name])
        memory.append(_integer(device["memory_bytes"], f"{path}.memory_bytes"))
        slots.append(_integer(device.get("slots", 1), f"{path}.slots", 1, _INT32_MAX))
    return {
        "device_names": names,
        "device_kind": np.array(kind, np.int32),
        "device_memory_bytes": np.array(memory, np.int64),
        "device_slots": np.array(slots, np.int32),
    }


def _read_links(value: object) -> dict[str, Any]:
    src, dst, channel, latency, rate = [], [], [], [], []
    for i, item in enumerate(_list(value, "links")):
        path = f"links[{i}]"
        link = _Fields(item, path, required=("src", "dst", "channel", "latency_ns", "bytes_per_s"))
        src.append(_integer(link["src"], f"{path}.src", 0, _INT32_MAX))
        dst.append(_integer(link["dst"], f"{path}.dst", 0, _INT32_MAX))
        channel.append(_string(link["channel"], f"{path}.channel"))
        latency.append(_integer(link["latency_ns"], f"{path}.latency_ns"))
        rate.append(_integer(link["bytes_per_s"], f"{path}.bytes_per_s", 1))
    return {
        "link_src": np.array(src, np.int32),
        "link_dst": np.array(dst, np.int32),
        "link_channel": channel,
        "link_latency_ns": np.array(latency, np.int64),
        "link_bytes_per_s": np.array(rate, np.int64),
    }


_OP_REQUIRED = ("name", "type", "cost_ns")
_OP_OPTIONAL = (
    "output_bytes",
    "output_alias",
    "temp_bytes",
    "persistent_bytes",
    "allowed_devices",
    "colocation_group",
)


def _read_ops(value: object, kinds: dict[str, int]) -> dict[str, Any]:
    ops = _list(value, "ops")
    names, types, temp, persistent = [], [], [], []
    cost = np.full((len(ops), len(kinds)), _NO_KERNEL, np.int64)
    output_ptr, output_bytes = [0], list[int]()
    alias: list[tuple[int, int]] = []
    allowed_ptr, allowed = [0], list[int]()
    allowed_given = np.zeros(len(ops), np.bool_)
    groups: dict[str, int] = {}
    group = np.full(len(ops), _NO_GROUP, np.int32)
    for i, item in enumerate(ops):
        path = f"ops[{i}]"
        op = _Fields(item, path, required=_OP_REQUIRED, optional=_OP_OPTIONAL)
        names.append(_string(op["name"], f"{path}.name"))
        types.append(_string(op["type"], f"{path}.type"))
        for kind, cost_ns in _read_costs(op["cost_ns"], f"{path}.cost_ns", kinds):
            cost[i, kind] = cost_ns
        sizes = _read_integers(op.get("output_bytes", []), f"{path}.output_bytes")
        output_bytes += sizes
        output_ptr.append(len(output_bytes))
        alias += _read_aliases(op, f"{path}.output_alias", len(sizes))
        temp.append(_integer(op.get("temp_bytes", 0), f"{path}.temp_bytes"))
        persistent.append(_integer(op.get("persistent_bytes", 0), f"{path}.persistent_bytes"))
        allowed_given[i] = "allowed_devices" in op
        allowed += _read_integers(
            op.get("allowed_devices", []), f"{path}.allowed_devices", _INT32_MAX
        )
        allowed_ptr.append(len(allowed))
        if "colocation_group" in op:
            name = _string(op["colocation_group"], f"{path}.colocation_group")
            group[i] = groups.setdefault(name, len(groups))
    aliases = np.array(alias, np.int32).reshape(-1, 2)
    return {
        "op_names": names,
        "op_types": types,
        "cost_ns": cost,
        "output_ptr": np.array(output_ptr, np.int64),
        "output_bytes": np.array(output_bytes, np.int64),
        "output_alias_src": aliases[:, 0],
        "output_alias_output": aliases[:, 1],
        "temp_bytes": np.array(temp, np.int64),
        "persistent_bytes": np.array(persistent, np.int64),
        "allowed_ptr": np.array(allowed_ptr, np.int64),
        "allowed_device": np.array(allowed, np.int32),
        "allowed_given": allowed_given,
        "colocation_group": group,
        "colocation_group_names": list(groups),
    }


def _read_costs(value: object, path: str, kinds: dict[str, int]) -> list[tuple[int, int]]:
    costs = []
    for name, cost_ns in _object(value, path).items():
        if name not in kinds:
            _fail(path, f"unknown device kind '{name}'")
        costs.append((kinds[name], _integer(cost_ns, f"{path}.{name}")))
    return costs


def _read_integers(value: object, path: str, maximum: int = _INT64_MAX) -> list[int]:
    return [_integer(item, f"{path}[{k}]", 0, maximum) for k, item in enumerate(_list(value, path))]


def _read_aliases(op: _Fields, path: str, outputs: int) -> list[tuple[int, int]]:
    if "output_alias" not in op:
        return [(_NO_ALIAS, 0)] * outputs
    items = _list(op["output_alias"], path)
    if len(items) != outputs:
        _fail(path, f"has {len(items)} entries for {outputs} outputs")
    aliases = []
    for k, item in enumerate(items):
        if item is None:
            aliases.append((_NO_ALIAS, 0))
        elif item == "persistent":
            aliases.append((_PERSISTENT, 0))
        elif isinstance(item, list) and len(item) == 2:
            src, output = _read_integers(item, f"{path}[{k}]", _INT32_MAX)
            aliases.append((src, output))
        else:
            _fail(f"{path}[{k}]", 'expected null, [source op, output] or "persistent"')
    return aliases


def _read_rows(value: object, path: str, columns: int) -> NDArray[np.int32]:
    rows = []
    for i, item in enumerate(_list(value, path)):
        if len(_list(item, f"{path}[{i}]")) != columns:
            _fail(f"{path}[{i}]", f"expected {columns} integers, got {len(item)}")
        rows.append(_read_integers(item, f"{path}[{i}]", _INT32_MAX))
    return np.array(rows, np.int32).reshape(-1, columns)


def _device_documents(problem: Problem) -> list[dict[str, Any]]:
    kinds = problem.device_kinds
    columns = zip(
        problem.device_names,
        problem.device_kind.tolist(),
        problem.device_memory_bytes.tolist(),
        problem.device_slots.tolist(),
        strict=True,
    )
    return [
        {"name": name, "kind": kinds[kind], "memory_bytes": memory}
        | ({"slots": slots} if slots != 1 else {})
        for name, kind, memory, slots in columns
    ]


def _link_documents(problem: Problem) -> list[dict[str, Any]]:
    columns = zip(
        problem.link_src.tolist(),
        problem.link_dst.tolist(),
        problem.link_channel,
        problem.link_latency_ns.tolist(),
        problem.link_bytes_per_s.tolist(),
        strict=True,
    )
    keys = ("src", "dst", "channel", "latency_ns", "bytes_per_s")
    return [dict(zip(keys, link, strict=True)) for link in columns]


def _op_documents(problem: Problem) -> list[dict[str, Any]]:
    kinds, groups = problem.device_kinds, problem.colocation_group_names
    cost, temp = problem.cost_ns.tolist(), problem.temp_bytes.tolist()
    persistent, group = problem.persistent_bytes.tolist(), problem.colocation_group.tolist()
    output_ptr, output_bytes = problem.output_ptr.tolist(), problem.output_bytes.tolist()
    allowed_ptr, allowed = problem.allowed_ptr.tolist(), problem.allowed_device.tolist()
    allowed_given = problem.allowed_given.tolist()
    aliases = [
        None if src == _NO_ALIAS else "persistent" if src == _PERSISTENT else [src, output]
        for src, output in zip(
            problem.output_alias_src.tolist(), problem.output_alias_output.tolist(), strict=True
        )
    ]
    documents = []
    for i, (name, op_type) in enumerate(zip(problem.op_names, problem.op_types, strict=True)):
        costs = {k: c for k, c in zip(kinds, cost[i], strict=True) if c != _NO_KERNEL}
        op: dict[str, Any] = {"name": name, "type": op_type, "cost_ns": costs}
        outputs = slice(output_ptr[i], output_ptr[i + 1])
        if output_bytes[outputs]:
            op["output_bytes"] = output_bytes[outputs]
        if any(alias is not None for alias in aliases[outputs]):
            op["output_alias"] = aliases[outputs]
        if temp[i]:
            op["temp_bytes"] = temp[i]
        if persistent[i]:
            op["persistent_bytes"] = persistent[i]
        if allowed_given[i]:
            op["allowed_devices"] = allowed[allowed_ptr[i] : allowed_ptr[i + 1]]
        if group[i] != _NO_GROUP:
            op["colocation_group"] = groups[group[i]]
        documents.append(op)
    return documents


def _write_atomically(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
