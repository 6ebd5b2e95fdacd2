"""A plan: where every node of one graph goes, and where that answer came from.

    Plan --to_bytes--> header line with a SHA-256 + zlib(canonical JSON) --from_bytes--> Plan

The file format is described in docs/plan-format.md. Everything that is read is checked: a damaged,
foreign or newer file is a `PlanError` that names the file, the reason and the remedy, never a wrong
placement. The per-node columns are packed, so that a plan of 50,000 nodes loads in about ten
milliseconds; node names are split only when somebody asks for them.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from hplacer_optimizer.errors import PlanError

FORMAT_NAME = "hplacer-plan"
FORMAT_VERSION = 1
FINGERPRINT_HEX_DIGITS = 32
MAX_BODY_BYTES = 1 << 30  # of the decompressed JSON; a plan of 50,000 nodes has about 4 MB
MAX_DEVICES = 1 << 16  # device indices are 16 bits wide in the file

# Level 1 decodes as fast as level 6 (hashes do not compress) and encodes more than twice as fast.
_ZLIB_LEVEL = 1
_HEADER = re.compile(rb"hplacer-plan/1 ([0-9a-f]{64}) (0|[1-9][0-9]{0,17})\n")
_CREATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", re.ASCII)
_REPLACE = "delete the file, the next run plans again"
_UPGRADE = "made by a newer version: upgrade hplacer-optimizer"


class NodeNames(Sequence[str]):
    """Node names kept as one string joined by newlines (`blob`) and split on first use."""

    def __init__(self, blob: str) -> None:
        self.blob = _text(blob)
        # A regular expression, because `in` is slow where the first character matches often.
        if blob.startswith("\n") or blob.endswith("\n") or re.search("\n\n", blob):
            raise ValueError("holds an empty node name")

    @classmethod
    def join(cls, names: Iterable[str]) -> NodeNames:
        """Packs names; raises ValueError for a name that is empty or contains a newline."""
        names = list(names)
        for name in names:
            if not isinstance(name, str) or not name or "\n" in name:
                raise ValueError(f"{name!r} is not a node name (a non-empty string of one line)")
        return cls("\n".join(names))

    @functools.cached_property
    def _names(self) -> list[str]:
        return self.blob.split("\n") if self.blob else []

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._names[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return self.blob.count("\n") + 1 if self.blob else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeNames) and self.blob == other.blob

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} node names>"


# One check per kind of field: takes what a caller or a file gave, returns the normal form, raises
# ValueError whose text continues "plan.<field> ...".


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"is not valid Unicode: {error.reason}") from None
    return value


def _matching(pattern: str | re.Pattern[str], what: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not re.fullmatch(pattern, _text(value)):
            raise ValueError(f"must be {what}, not {value!r}")
        return str(value)

    return check


def _int(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"must be an integer, not {type(value).__name__}")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("does not fit into 64 bits")
    return int(value)


def _count(value: Any) -> int:
    if _int(value) < 0:
        raise ValueError(f"must not be negative, got {value}")
    return int(value)


def _count_or_none(value: Any) -> int | None:
    return None if value is None else _count(value)


def _bool(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"must be true or false, not {type(value).__name__}")
    return bool(value)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ValueError(f"must be a number of seconds, not {type(value).__name__}")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"must be finite and not negative, got {seconds}")
    return seconds


def _list_of(check: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def check_list(value: Any) -> list[Any]:
        if isinstance(value, str) or not isinstance(value, (Sequence, np.ndarray)):
            raise ValueError(f"must be a list, not {type(value).__name__}")
        items = []
        for index, item in enumerate(value):
            try:
                items.append(check(item))
            except ValueError as error:
                raise ValueError(f"[{index}] {error}") from None
        return items

    return check_list


def _text_map(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be an object, not {type(value).__name__}")
    return {_text(key): _text(item) for key, item in value.items()}


def _json_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError("must be an object with string keys")
    try:
        copy: dict[str, Any] = json.loads(_dump(dict(value)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"holds something JSON cannot: {error}") from None
    return copy


def _node_names(value: Any) -> NodeNames:
    if isinstance(value, NodeNames):
        return value
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"must be a list of names, not {type(value).__name__}")
    return NodeNames.join(value)


def _column(dtype: npt.DTypeLike) -> Callable[[Any], npt.NDArray[Any]]:
    def check(value: Any) -> npt.NDArray[Any]:
        array = np.asarray(value)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError("must be a flat array of integers")
        if array.size:
            limits = np.iinfo(np.dtype(dtype))
            low, high = int(array.min()), int(array.max())
            if low < limits.min or high > limits.max:
                raise ValueError(f"holds {low if low < limits.min else high}, out of range")
        array = array.astype(dtype)  # a copy: nobody else can change a plan
        array.flags.writeable = False
        return array

    return check


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "fingerprint": _matching(
        rf"[0-9a-f]{{{FINGERPRINT_HEX_DIGITS}}}", f"{FINGERPRINT_HEX_DIGITS} lower-case hex digits"
    ),
    "fingerprint_parts": _text_map,
    "label": _text,
    "planner": _text,
    "planner_notes": _list_of(_text),
    "planner_options": _json_object,
    "seed": _int,
    "budget": _json_object,
    "step_time_ns": _count_or_none,
    "feasible": _bool,
    "peak_bytes": _list_of(_count),
    "device_names": _list_of(_text),
    "device_kinds": _list_of(_text),
    "num_ops": _count,
    "num_units": _count,
    "planning_s": _seconds,
    "cost_source": _text,
    "assumptions": _list_of(_text),
    "versions": _text_map,
    "created": _matching(_CREATED, "a UTC time such as 2024-05-01T12:00:00Z"),
    "host": _text,
    "node_names": _node_names,
    "node_hashes": _column(np.uint64),
    "node_devices": _column(np.int32),
}

# Fields that came after the format's first day, with what a file without them means.
_LATER_FIELDS: dict[str, Any] = {"planner_notes": []}


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """One placement with its provenance; D devices, N nodes. Raises PlanError for a bad value."""

    fingerprint: str  # 32 hex digits; the key of the plan store
    fingerprint_parts: dict[str, str]  # named parts in order: graph, targets, machine, ...
    label: str  # function or graph name, for people
    planner: str
    planner_notes: list[str]  # what the planner said of its answer, e.g. a limit that it hit
    planner_options: dict[str, Any]
    seed: int
    budget: dict[str, Any]
    step_time_ns: int | None  # simulated; None where nothing simulated it
    feasible: bool  # fits into every device's memory, as simulated
    peak_bytes: list[int]  # [D]
    device_names: list[str]  # [D] full TensorFlow names
    device_kinds: list[str]  # [D] e.g. CPU, GPU
    num_ops: int
    num_units: int
    planning_s: float
    cost_source: str  # e.g. "analytic"
    assumptions: list[str]
    versions: dict[str, str]  # hplacer, tensorflow, python
    created: str  # ISO 8601, UTC
    host: str
    node_names: Sequence[str]  # [N]; any iterable of names, kept as NodeNames
    node_hashes: npt.NDArray[np.uint64]  # [N]
    node_devices: npt.NDArray[np.int32]  # [N] indices into device_names

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            try:
                object.__setattr__(self, name, check(getattr(self, name)))
            except ValueError as error:
                raise PlanError(f"plan.{name} {error}") from None
        devices, nodes = len(self.device_names), len(self.node_names)
        if devices > MAX_DEVICES:
            raise PlanError(f"plan.device_names has {devices} entries, at most {MAX_DEVICES}")
        for name, length in (("device_kinds", devices), ("peak_bytes", devices)):
            if len(getattr(self, name)) != length:
                raise PlanError(f"plan.{name} must have one entry for each of {length} devices")
        for name in ("node_hashes", "node_devices"):
            if len(getattr(self, name)) != nodes:
                raise PlanError(f"plan.{name} must have one entry for each of {nodes} node names")
        outside = (self.node_devices < 0) | (self.node_devices >= devices)
        if outside.any():
            at = int(outside.argmax())
            raise PlanError(
                f"plan.node_devices puts node {self.node_names[at]!r} on device "
                f"{self.node_devices[at]}, there are {devices}"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._body() == other._body()

    __hash__ = None  # type: ignore[assignment]

    @property
    def node_names_blob(self) -> str:
        """All node names joined by newlines, in column order: what the native part consumes."""
        return _node_names(self.node_names).blob

    @property
    def short_fingerprint(self) -> str:
        """The first 8 hex digits of the fingerprint."""
        return self.fingerprint[:8]

    def summary_line(self) -> str:
        """One line for people, e.g. `3f9c2b1a (etf, predicted 41.2 ms/step)`."""
        if not self.feasible:
            outcome = "does not fit into memory"
        elif self.step_time_ns is None:
            outcome = "step time not simulated"
        else:
            outcome = f"predicted {format_ns(self.step_time_ns)}/step"
        return f"{self.short_fingerprint} ({self.planner}, {outcome})"

    def better_than(self, other: Plan) -> bool:
        """Feasible beats infeasible, then the smaller step time wins; a tie is not better."""

        def rank(plan: Plan) -> tuple[bool, float]:
            unknown = plan.step_time_ns is None
            return not plan.feasible, math.inf if unknown else float(plan.step_time_ns or 0)

        return rank(self) < rank(other)

    def to_bytes(self) -> bytes:
        """The content of a plan file; the same plan gives the same bytes (with the same zlib)."""
        body = zlib.compress(self._body(), _ZLIB_LEVEL)
        digest = hashlib.sha256(body).hexdigest()
        return f"{FORMAT_NAME}/{FORMAT_VERSION} {digest} {len(body)}\n".encode() + body

    @classmethod
    def from_bytes(cls, data: bytes, source: object = "plan") -> Plan:
        """Reads what `to_bytes` wrote; raises PlanError that starts with `source`, a path."""
        try:
            document = _LATER_FIELDS | _parse(_decompress(_checked_body(data)))
            for name in sorted(_CHECKS.keys() - document.keys()):
                raise PlanError(f"has no field {name!r}")
            for name in sorted(document.keys() - _CHECKS.keys()):
                raise PlanError(f"has the unknown field {name!r}")
            return cls(**{name: _unpack(name, value) for name, value in document.items()})
        except _NewerFormatError as error:
            raise PlanError(f"{source}: {error}; {_UPGRADE}") from None
        except PlanError as error:
            raise PlanError(f"{source}: {error}; {_REPLACE}") from None

    def _body(self) -> bytes:
        document = {name: getattr(self, name) for name in _CHECKS}
        document["fingerprint_parts"] = list(self.fingerprint_parts.items())
        document["node_names"] = self.node_names_blob
        document["node_hashes"] = _pack(self.node_hashes, "<u8")
        document["node_devices"] = _pack(self.node_devices, "<u2")
        for name, default in _LATER_FIELDS.items():
            if document[name] == default:
                del document[name]
        return _dump(document)


class _NewerFormatError(PlanError):
    """The header names a format version that this version does not know."""


def format_ns(duration_ns: int) -> str:
    """A duration for people: `41.2 ms`, three significant digits."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if duration_ns >= size:
            value = duration_ns / size
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
    return f"{duration_ns} ns"


def _dump(value: object) -> bytes:
    """Canonical JSON; raises ValueError for what JSON or UTF-8 cannot hold."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _pack(column: npt.NDArray[Any], dtype: str) -> str:
    return base64.b64encode(column.astype(dtype).tobytes()).decode("ascii")


def _unpack(name: str, value: Any) -> Any:
    """Undoes the packing of one field of the document; every other field passes unchanged."""
    try:
        if name == "node_names":
            return NodeNames(_text(value))
        if name == "node_hashes":
            return np.frombuffer(base64.b64decode(_text(value), validate=True), dtype="<u8")
        if name == "node_devices":
            return np.frombuffer(base64.b64decode(_text(value), validate=True), dtype="<u2")
        if name == "fingerprint_parts":
            return _unpack_parts(value)
    except (ValueError, binascii.Error) as error:
        raise PlanError(f"plan.{name} {error}") from None
    return value


def _unpack_parts(value: Any) -> dict[str, str]:
    """JSON objects have no order and parts do, so the file holds a list of [name, value] pairs."""
    pairs = _list_of(_list_of(_text))(value)
    if any(len(pair) != 2 for pair in pairs) or len({pair[0] for pair in pairs}) != len(pairs):
        raise ValueError("must be a list of [name, value] pairs with distinct names")
    return dict(pairs)


def _checked_body(data: bytes) -> memoryview:
    """The compressed body of a plan file, its header, length and checksum verified."""
    if not data:
        raise PlanError("is empty")
    magic = f"{FORMAT_NAME}/".encode()
    if not data.startswith(magic[: len(data)]):
        raise PlanError("is not a plan file")
    version = re.match(rb"([1-9][0-9]{0,8}) ", data[len(magic) :][:16])
    if version and int(version[1]) > FORMAT_VERSION:
        raise _NewerFormatError(f"has format {FORMAT_NAME}/{int(version[1])}")
    header = _HEADER.match(data[:128])
    if not header:
        raise PlanError("is truncated" if b"\n" not in data[:128] else "has a damaged header")
    body, length = memoryview(data)[header.end() :], int(header[2])
    if len(body) != length:
        raise PlanError(f"is damaged or truncated: {len(body)} bytes where {length} were written")
    if hashlib.sha256(body).hexdigest().encode() != header[1]:
        raise PlanError("is damaged: the checksum does not match")
    return body


def _decompress(body: memoryview) -> bytes:
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise PlanError(f"cannot be decompressed: {error}") from None
    if len(raw) > MAX_BODY_BYTES:
        raise PlanError(f"is larger than {MAX_BODY_BYTES} bytes when decompressed")
    if not stream.eof or stream.unused_data:
        raise PlanError("cannot be decompressed: it is not exactly one zlib stream")
    return raw


def _parse(raw: bytes) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        document = dict(pairs)
        if len(document) != len(pairs):
            raise ValueError("a key appears twice")
        return document

    try:
        document = json.loads(raw.decode(), parse_constant=refuse, object_pairs_hook=no_duplicates)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"does not hold JSON: {error}") from None
    if not isinstance(document, dict):
        raise PlanError("does not hold a JSON object")
    return document
