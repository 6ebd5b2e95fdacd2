"""Times, sizes and types for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone


def format_bytes(size_bytes: int) -> str:
    """`1.5 GiB`, four significant digits."""
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}"


def format_ns(duration_ns: int) -> str:
    """A duration for people: `41.2 ms`, three significant digits."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if duration_ns >= size:
            value = duration_ns / size
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
    return f"{duration_ns} ns"


def format_ratio(ratio: float) -> str:
    """`2.0`, with two decimals where one would hide the difference: below a head of a table."""
    return f"{ratio:.2f}" if ratio < 1.5 else f"{ratio:.1f}"


def times_as_fast(ratio: float) -> str:
    """`2.0 times as fast`, in sentences; `0.90 times as fast` is slower."""
    return f"{format_ratio(ratio)} times as fast"


def format_age(created: str, now_s: float) -> str:
    """When something was made, `3 h ago`; from a month on the day, `2024-05-01`.

    Args:
        created: in UTC, as `2024-05-01T12:00:00Z`; what is no time is returned up to its `T`.
        now_s: seconds since the epoch.
    """
    day = created.partition("T")[0]
    try:
        made = datetime.strptime(created[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:
        return day
    age_s = now_s - made.timestamp()
    if age_s < 60:
        return "just now"
    for unit, size_s, limit in (("min", 60, 60), ("h", 3600, 48), ("days", 86_400, 31)):
        if age_s < limit * size_s:
            return f"{int(age_s // size_s)} {unit} ago"
    return day


def format_devices(kinds: Sequence[str], memory_bytes: Sequence[int]) -> str:
    """Devices by kind and memory: `1 haswell of 64 GiB, 2 k40 of 12 GiB`."""
    counts = Counter(zip(kinds, memory_bytes, strict=True))
    alike = (f"{count} {kind} of {format_bytes(size)}" for (kind, size), count in counts.items())
    return ", ".join(alike) or "none"


def json_type(value: object) -> str:
    """The type of a value as an error message names it; that of None is JSON's `null`."""
    return "null" if value is None else type(value).__name__
