"""Sizes in bytes for people."""

from __future__ import annotations


def format_bytes(size_bytes: int) -> str:
    """`1.5 GiB`, four significant digits."""
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}"
