r"""The container of plan files: named sections, each compressed and checked by itself.

    hplacer-plan/1 <SHA-256 of the header> <its length>\n
    {"sections":[[name, length, SHA-256], ...]}          the header
    <section><section>...                                one zlib stream each

The first line covers the header and the header covers every section, so one checksum is over all,
and still a lookup reads and checks only the sections that it needs. Every failure is a `PlanError`
without the name of the file, which the caller knows.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hplacer_optimizer.errors import PlanError

FORMAT_NAME = "hplacer-plan"
FORMAT_VERSION = 1
MAX_SECTION_BYTES = 1 << 30  # decompressed; the node names of 50,000 nodes are about 2 MB
MAX_HEADER_BYTES = 1 << 16

_MAGIC = f"{FORMAT_NAME}/".encode()
_FIRST_READ_BYTES = 1 << 16  # a small plan needs no second read
_PIECE_BYTES = 1 << 24
_LINE = re.compile(rb"hplacer-plan/([1-9][0-9]*) ([0-9a-f]{64}) (0|[1-9][0-9]{0,17})\n")
_LINE_BYTES = 128
_SECTION_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class NewerFormatError(PlanError):
    """The file names a format version that this version does not know."""


class BinaryFile(Protocol):
    """What is needed of an opened file; TensorFlow's `GFile` has it, too."""

    def read(self, n: int = -1, /) -> bytes: ...
    def seek(self, offset: int, whence: int = 0, /) -> Any: ...
    def tell(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section as it stands in the file."""

    data: bytes  # one zlib stream
    digest: str  # SHA-256 of it, hexadecimal


def compress(raw: bytes, *, level: int = 1) -> Section:
    """Level 1 decodes as fast as level 6, encodes more than twice as fast; 0 is for hashes."""
    return seal(zlib.compress(raw, level))


def seal(data: bytes) -> Section:
    """A section of a finished zlib stream."""
    return Section(data=data, digest=hashlib.sha256(data).hexdigest())


def assemble(sections: Mapping[str, Section]) -> bytes:
    """The content of a plan file of these sections, in this order."""
    rows = [[name, len(section.data), section.digest] for name, section in sections.items()]
    header = canonical_json({"sections": rows})
    line = f"{FORMAT_NAME}/{FORMAT_VERSION} {hashlib.sha256(header).hexdigest()} {len(header)}\n"
    return b"".join([line.encode(), header, *(section.data for section in sections.values())])


def canonical_json(value: object) -> bytes:
    """Raises ValueError for what JSON or UTF-8 cannot hold."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def is_plan_file(content: bytes) -> bool:
    """Whether a file that begins so says that it is a plan, of whatever version."""
    return content.startswith(_MAGIC)


class PlanFile:
    """An opened plan file whose header is sound; sections are read and checked on demand."""

    def __init__(self, file: BinaryFile) -> None:
        self._file = file
        self._head = bytes(file.read(_FIRST_READ_BYTES))
        line = _first_line(self._head)
        self.version = int(line[1])
        self.digest = line[2].decode()  # covers the whole file
        self._rows: dict[str, tuple[int, int, str]] = {}  # offset, length, digest
        self._read_header(line.end(), int(line[3]))

    @property
    def names(self) -> tuple[str, ...]:
        """The sections, in the order of the file."""
        return tuple(self._rows)

    def digest_of(self, name: str) -> str:
        """The SHA-256 that the header has of a section."""
        return self._rows[name][2]

    def read(self, name: str) -> bytes:
        """The decompressed content of a section."""
        if name not in self._rows:
            raise PlanError(f"has no section {name!r}")
        return decompress(self.section(name).data, name)

    def section(self, name: str) -> Section:
        """A section as it is in the file, checked against its digest."""
        offset, length, digest = self._rows[name]
        data = self._bytes(offset, length)
        if hashlib.sha256(data).hexdigest() != digest:
            raise PlanError(f"is damaged: the checksum of the section {name!r} does not match")
        return Section(data=data, digest=digest)

    def check_length(self) -> None:
        """The file ends with its last section."""
        self._file.seek(0, 2)
        found, written = int(self._file.tell()), self._end
        if found != written:
            raise PlanError(f"is damaged or truncated: {found} bytes where {written} were written")

    @property
    def _end(self) -> int:
        offset, length, _ = list(self._rows.values())[-1]
        return offset + length

    def _bytes(self, offset: int, length: int) -> bytes:
        if offset + length <= len(self._head):
            return self._head[offset : offset + length]
        self._file.seek(offset)
        parts, missing = [], length
        while missing:  # piece by piece: a wrong length must not take that much memory
            part = bytes(self._file.read(min(missing, _PIECE_BYTES)))
            if not part:
                end = offset + length
                raise PlanError(f"is truncated: {end - missing} bytes of at least {end}")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _read_header(self, offset: int, length: int) -> None:
        if length > MAX_HEADER_BYTES:
            raise PlanError("has a damaged header")
        header = self._bytes(offset, length)
        if hashlib.sha256(header).hexdigest() != self.digest:
            raise PlanError("is damaged: the checksum of the header does not match")
        document = parse_object(header)
        rows = document.get("sections")
        if document.keys() != {"sections"} or not isinstance(rows, list) or not rows:
            raise PlanError("has a header without a list of sections")
        position = offset + length
        for row in rows:
            name, size, digest = _row(row)
            if name in self._rows:
                raise PlanError(f"has the section {name!r} twice")
            self._rows[name] = (position, size, digest)
            position += size


def decompress(data: bytes, name: str) -> bytes:
    """The content of one zlib stream, of bounded size."""
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(data, MAX_SECTION_BYTES + 1)
    except zlib.error as error:
        raise PlanError(f"the section {name!r} cannot be decompressed: {error}") from None
    if len(raw) > MAX_SECTION_BYTES:
        raise PlanError(
            f"the section {name!r} is larger than {MAX_SECTION_BYTES} bytes when decompressed"
        )
    if not stream.eof or stream.unused_data:
        raise PlanError(
            f"the section {name!r} cannot be decompressed: it is not exactly one zlib stream"
        )
    return raw


def parse_object(raw: bytes) -> dict[str, Any]:
    """A JSON object, read strictly: no key twice, no NaN, UTF-8."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    def no_duplicates(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        pairs = list(pairs)
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


def _first_line(head: bytes) -> re.Match[bytes]:
    if not head:
        raise PlanError("is empty")
    if not head.startswith(_MAGIC[: len(head)]):
        raise PlanError("is not a plan file")
    number = re.match(rb"([1-9][0-9]{0,8}) ", head[len(_MAGIC) :][:16])
    version = int(number[1]) if number else FORMAT_VERSION
    if version > FORMAT_VERSION:
        raise NewerFormatError(f"has format {FORMAT_NAME}/{version}")
    line = _LINE.match(head[:_LINE_BYTES])
    if not line:
        truncated = b"\n" not in head[:_LINE_BYTES]
        raise PlanError("is truncated" if truncated else "has a damaged header")
    return line


def _row(row: object) -> tuple[str, int, str]:
    if isinstance(row, list) and len(row) == 3:
        name, size, digest = row
        if (
            isinstance(name, str)
            and _SECTION_NAME.fullmatch(name)
            and type(size) is int
            and 0 <= size < 1 << 60
            and isinstance(digest, str)
            and _DIGEST.fullmatch(digest)
        ):
            return name, size, digest
    raise PlanError("has a header whose sections are not [name, length, SHA-256]")
