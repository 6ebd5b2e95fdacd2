"""The learning curve as a static SVG: step times over the steps of a search."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hplacer_optimizer.support.formats import format_ns

__all__ = ["draw_curve"]

_WIDTH, _HEIGHT = 560, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 50, 12, 32
_LINE_HEIGHT = 13
_FAR_BOUND = 8  # a bound further below than this would flatten the curve

_Points = Sequence[tuple[int, float]]


def draw_curve(best: _Points, mean: _Points, bound_ns: int | None) -> str:
    """Lines for the best and the mean step time, a dashed one for the lower bound.

    Points are (step of the search, nanoseconds); `best` is not empty.
    """
    chart = _Chart(best, mean, bound_ns)
    parts = [*chart.grid(), *chart.lines()]
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Step time over the steps of the search">{"".join(parts)}</svg>'
    )


class _Chart:
    def __init__(self, best: _Points, mean: _Points, bound_ns: int | None) -> None:
        self._series = [("best", best)] + ([("mean", mean)] if mean else [])
        values = [value for _, points in self._series for _, value in points]
        if bound_ns is not None and bound_ns * _FAR_BOUND >= max(values):
            self._series.append(("bound", [(0, bound_ns), (best[-1][0], bound_ns)]))
            values.append(bound_ns)
        self._last_step = max(best[-1][0], 1)
        self._ticks = _round_numbers(min(values), max(values))

    def _x(self, step: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / self._last_step

    def _y(self, value: float) -> float:
        low, high = self._ticks[0], self._ticks[-1]
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - value) / (high - low)

    def grid(self) -> list[str]:
        parts = []
        for value in self._ticks:
            y = f"{self._y(value):.1f}"
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
                f'<text x="{_LEFT - 6}" y="{self._y(value) + 4:.1f}" text-anchor="end">'
                f"{format_ns(round(value))}</text>"
            )
        for step in _round_numbers(0, self._last_step):
            if step <= self._last_step:
                parts.append(
                    f'<text x="{self._x(step):.1f}" y="{_HEIGHT - 17}" text-anchor="middle">'
                    f"{step:g}</text>"
                )
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        name = "step of the search"
        return [*parts, f'<text x="{middle}" y="{_HEIGHT - 3}" text-anchor="middle">{name}</text>']

    def lines(self) -> list[str]:
        parts = []
        label_y = -math.inf
        for name, points in sorted(self._series, key=lambda series: -series[1][-1][1]):
            path = " ".join(f"{self._x(step):.1f},{self._y(value):.1f}" for step, value in points)
            label_y = max(self._y(points[-1][1]) + 4, label_y + _LINE_HEIGHT)
            parts.append(
                f'<polyline class="{name}" points="{path}"/>'
                f'<text x="{self._x(points[-1][0]) + 4:.1f}" y="{label_y:.1f}">{name}</text>'
            )
        return parts


def _round_numbers(low: float, high: float) -> list[float]:
    """About six round numbers, evenly spaced, from at most `low` to at least `high`."""
    rough = max((high - low) / 5, high * 1e-3, 1e-9)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [step * i for i in range(first, max(last, first + 1) + 1)]
