"""Quantities with their units, and durations."""

from __future__ import annotations

import pytest

from hplacer_optimizer.errors import DocumentError
from hplacer_optimizer.support.quantities import (
    BYTE_RATE,
    DURATION,
    FLOP_RATE,
    SIZE,
    Dimension,
    parse_duration,
)


@pytest.mark.parametrize(
    ("dimension", "text", "value"),
    [
        (SIZE, "12 GiB", 12 * 2**30),
        (SIZE, "12GB", 12 * 10**9),
        (SIZE, "1.5 kB", 1500),
        (DURATION, "4.29 ms", 4_290_000),
        (BYTE_RATE, "10 Gbit/s", 1_250_000_000),
        (BYTE_RATE, "3.35 TB/s", 3_350_000_000_000),
        (FLOP_RATE, "4.29 TFLOP/s", 4.29e12),
        (FLOP_RATE, "1e3 GFLOP/s", 1e12),
    ],
)
def test_a_quantity_with_its_unit(dimension: Dimension, text: str, value: float) -> None:
    assert dimension.parse(text, "x") == value
    assert dimension.parse(dimension.format(value), "x") == value


@pytest.mark.parametrize(
    "text",
    ["12", "GB", "12 gb", "12 Gb", "1,5 GB", "1 2 GB", "+1 GB", "-1 GB", "nan GB", "inf GB",
     "1 GB/s", "0x1 GB", "١ GB", "1e GB"],
)  # fmt: skip
def test_no_quantity(text: str) -> None:
    with pytest.raises(DocumentError, match=r"^x: '.*' is no size; write a number and a unit"):
        SIZE.parse(text, "x")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5s", 1.5), ("2h5s", 7205)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "1m1h", "-5s", "0s", "1d", "1e3s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"write 90s, 10m or 1h30m|more than 0"):
        parse_duration(text)
