"""How old something is, and how fast, for people."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from hplacer_optimizer.support.formats import format_age, format_ratio, times_as_fast

CREATED = "2024-05-01T12:00:00Z"
CREATED_S = datetime(2024, 5, 1, 12, tzinfo=timezone.utc).timestamp()
HOUR_S = 3600


@pytest.mark.parametrize(
    ("age_s", "text"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (HOUR_S - 1, "59 min ago"),
        (3 * HOUR_S + 59, "3 h ago"),
        (48 * HOUR_S, "2 days ago"),
        (31 * 24 * HOUR_S - 1, "30 days ago"),
        (31 * 24 * HOUR_S, "2024-05-01"),
    ],
)
def test_an_age(age_s: float, text: str) -> None:
    assert format_age(CREATED, CREATED_S + age_s) == text


@pytest.mark.parametrize(
    ("created", "text"),
    [
        ("2024-05-01T12:00:00.25Z", "2 h ago"),
        ("2024-05-01T12:00:00+00:00", "2 h ago"),
        ("2024-13-41T99:00:00Z", "2024-13-41"),  # the form is all that a plan file checks
    ],
)
def test_every_time_that_a_plan_may_have(created: str, text: str) -> None:
    assert format_age(created, CREATED_S + 2 * HOUR_S + 1) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.9, "0.90"), (1.0, "1.00"), (1.494, "1.49"), (1.5, "1.5"), (2.04, "2.0"), (12.0, "12.0")],
)
def test_a_ratio(ratio: float, text: str) -> None:
    assert format_ratio(ratio) == text
    assert times_as_fast(ratio) == f"{text} times as fast"
