"""What is installed of this package."""

from __future__ import annotations


def own_version() -> str:
    """Of this package; "0+unknown" where it runs without being installed."""
    from importlib import metadata  # slow to load

    try:
        return metadata.version("hplacer-optimizer")
    except metadata.PackageNotFoundError:
        return "0+unknown"
