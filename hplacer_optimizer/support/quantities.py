"""Physical quantities as text: those of a machine description, with their ranges, and durations.

A quantity is always written with its unit, "12 GiB" or "4.29 TFLOP/s", so that no number can be
taken for another unit. Values are exact: bytes and nanoseconds are whole numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from hplacer_optimizer.errors import DocumentError

INT64_MAX = 2**63 - 1  # the largest number that the engine, and files, can have

_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d{1,6})?)s)?", re.ASCII)
_NUMBER = re.compile(r"(\d{1,25}(?:\.\d{1,25})?(?:e[+-]?\d{1,2})?) ?([A-Za-z/]{1,9})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """What is measured, in its base unit, and the range of sensible values."""

    name: str
    example: str
    units: dict[str, int]  # by name, how many base units one is; the preferred ones last
    lowest: int
    highest: int
    whole: bool  # only whole numbers of the base unit

    def parse(self, text: str, path: str) -> int | float:
        """The value in base units; raises DocumentError, which starts with `path`."""
        match = _NUMBER.fullmatch(text.strip())
        if match is None or match[2] not in self.units:
            raise DocumentError(
                f"{path}: {shorten(text)} is no {self.name}; write a number and a unit, such as "
                f"'{self.example}' (units: {', '.join(self.units)})"
            )
        exact = Fraction(match[1]) * self.units[match[2]]
        if not self.lowest <= exact <= self.highest:
            raise self._out_of_range(path)
        if not self.whole:
            return float(exact)
        if exact.denominator != 1:
            base = min(self.units, key=lambda unit: self.units[unit])
            raise DocumentError(f"{path}: {shorten(text)} is no whole number of {base}")
        return int(exact)

    def check(self, value: object, path: str) -> None:
        """Raises DocumentError if the value has the wrong type or is out of range."""
        types = (int,) if self.whole else (int, float)
        if not isinstance(value, types) or isinstance(value, bool):
            raise DocumentError(f"{path}: must be {'a whole' if self.whole else 'a'} number")
        if not self.lowest <= value <= self.highest:  # true of NaN, too
            raise self._out_of_range(path)

    def format(self, value: int | float) -> str:
        """The shortest exact text: `parse(format(value))` is the value."""
        exact = Decimal(repr(value))
        texts = [
            f"{(exact / size).normalize():f} {unit}"
            for unit, size in self.units.items()
            if size == 1 or (exact >= size and exact / size * size == exact)
        ]
        return min(reversed(texts), key=len)

    def _out_of_range(self, path: str) -> DocumentError:
        low, high = self.format(self.lowest), self.format(self.highest)
        return DocumentError(f"{path}: is outside {low} to {high}")


def parse_duration(text: str) -> float:
    """Seconds of a time that people wait, such as "90s", "10m" or "1h30m"; raises ValueError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not found[0]:
        raise ValueError(f"{text!r} is no duration; write 90s, 10m or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    total = 3600 * hours + 60 * minutes + seconds
    if not total > 0:
        raise ValueError(f"{text!r}: must be more than 0")
    return total


def shorten(text: str) -> str:
    """Text in quotes for an error message."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _decimal(unit: str, prefixes: str) -> dict[str, int]:
    prefixed = {f"{prefix}{unit}": 1000**power for power, prefix in enumerate(prefixes, start=1)}
    return {unit: 1} | prefixed


_BITS_PER_S = {"Mbit/s": 10**6 // 8, "Gbit/s": 10**9 // 8}
_BINARY = {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)}

SIZE = Dimension(
    name="size",
    example="12 GiB",
    units=_decimal("B", "kMGT") | _BINARY,
    lowest=0,
    highest=2**53,
    whole=True,
)
DURATION = Dimension(
    name="time",
    example="5 us",
    units={"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9},
    lowest=0,
    highest=10**12,
    whole=True,
)
BYTE_RATE = Dimension(
    name="bandwidth",
    example="12 GB/s",
    units=_BITS_PER_S | _decimal("B/s", "kMGT"),
    lowest=1,
    highest=10**18,
    whole=True,
)
FLOP_RATE = Dimension(
    name="FLOP rate",
    example="4.29 TFLOP/s",
    units=_decimal("FLOP/s", "kMGTPE"),
    lowest=1,
    highest=10**24,
    whole=False,
)
