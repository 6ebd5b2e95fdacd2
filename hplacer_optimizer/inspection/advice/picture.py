"""The ways of an advice as bars: samples per second, or steps where the batch is not known."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.inspection.advice.ways import Way

__all__ = ["draw"]

_INCHES, _PER_BAR = 9.0, 0.45


def draw(parts: Sequence[tuple[str, Sequence[Way]]], path: str | os.PathLike[str] | None) -> Any:
    """A matplotlib Figure, which is also written if there is a path (.svg, .png, .pdf).

    `parts` are titles and ways. Raises OptionError, which names the remedy, without matplotlib or
    for another kind of file.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise OptionError(
            "a picture needs matplotlib: pip install 'hplacer-optimizer[bench]'"
        ) from None
    bars = sum(len(ways) for _, ways in parts)
    figure = Figure(figsize=(_INCHES, len(parts) + _PER_BAR * bars), layout="constrained")
    heights = [len(ways) + 1 for _, ways in parts]
    all_axes = figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, ways) in zip(all_axes, parts, strict=True):
        _bars(axes, title, ways)
    if path is not None:
        try:
            figure.savefig(os.fspath(path), dpi=150)
        except ValueError as error:
            raise OptionError(f"{os.fspath(path)}: write .svg, .png or .pdf ({error})") from None
    return figure


def _bars(axes: Any, title: str, ways: Sequence[Way]) -> None:
    known = any(way.samples_per_s is not None for way in ways)
    for position, way in enumerate(ways):
        if not way.feasible:
            axes.text(0, position, " does not fit", va="center")
            continue
        assert way.step_time_ns is not None
        each = (way.batch_size or 1) * 1e9
        rate = each / max(way.step_time_ns, 1)
        low, high = each / (way.most_ns or 1), each / (way.least_ns or 1)
        spread = [[max(rate - low, 0.0)], [max(high - rate, 0.0)]]
        axes.barh(position, rate, height=0.6, color="tab:blue", xerr=spread)
    axes.set_yticks(range(len(ways)), [way.name for way in ways])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("samples per second (simulated)" if known else "steps per second (simulated)")
    axes.set_title(title)
