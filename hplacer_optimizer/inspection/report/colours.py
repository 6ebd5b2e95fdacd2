"""Which colour of `page.css` a device has, in every chart of the page."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["device_colours"]

_HUES = 8


def device_colours(names: Sequence[str]) -> list[str]:
    """A custom property of the style sheet for each device, such as "--c0".

    Accelerators take the hues. CPUs are grey beside them, and take hues where there are only CPUs.
    """
    is_grey = ["CPU" in name.upper() for name in names]
    if all(is_grey):
        is_grey = [False] * len(names)
    hues = iter(range(len(names)))
    return ["--cpu" if grey else f"--c{next(hues) % _HUES}" for grey in is_grey]
