"""What starts of training scripts say of a plan: only those that ran the same are compared."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplacer_optimizer.plans import training_starts
from hplacer_optimizer.plans.training_starts import Start, applies_next, placement_id, verdict
from hplacer_optimizer.plans.verdict import FASTER, NO_DIFFERENCE, SLOWER, Verdict
from tests.plans.test_plan import make_plan


def start(number: int, *, applied: bool, step_ns: int | None, **changes: object) -> Start:
    fields = {"script": "s", "plan": "p", "moves": True, "context": "c", **changes}
    return Start(start=f"s.{number}", applied=applied, step_ns=step_ns, **fields)  # type: ignore[arg-type]


def pairs(ratio: float, count: int, **changes: object) -> list[Start]:
    """With the plan and without it in turn; a step with it takes so many times as long."""
    found = []
    for number in range(count):
        jitter = 1.0 + 0.002 * (-1) ** number
        found += [
            start(2 * number, applied=True, step_ns=round(1e6 * ratio * jitter), **changes),
            start(2 * number + 1, applied=False, step_ns=1_000_000, **changes),
        ]
    return found


def judged(found: list[Start], plan: str = "p", context: str = "c") -> Verdict | None:
    return verdict(found, plan, context, by=lambda pairs: f"{pairs} pairs")


@pytest.mark.parametrize(("ratio", "outcome"), [(2.0, SLOWER), (0.5, FASTER)])
def test_three_pairs_tell_a_large_difference(ratio: float, outcome: str) -> None:
    assert judged(pairs(ratio, 2)) is None
    found = judged(pairs(ratio, 3))
    assert found is not None
    assert (found.outcome, found.turns, found.by) == (outcome, 3, "3 pairs")
    assert found.speedup == pytest.approx(1 / ratio, rel=0.01)
    assert found.binds


def test_no_difference_takes_more_and_ends() -> None:
    assert judged(pairs(1.0, 5)) is None
    found = judged(pairs(1.0, 6))
    assert found is not None
    assert found.outcome == NO_DIFFERENCE
    # Starts that differ so much that no number of them tells.
    wild = [
        start(n, applied=n % 2 == 0, step_ns=[3, 1, 1, 3][n % 4] * 1_000_000) for n in range(24)
    ]
    assert judged(wild[:22]) is None
    assert judged(wild) is not None


@given(
    ratio=st.floats(0.2, 5.0),
    others=st.lists(
        st.tuples(st.sampled_from(["plan", "context", "untimed"]), st.booleans(), st.integers(1)),
        max_size=20,
    ),
    data=st.data(),
)
def test_starts_of_other_plans_and_contexts_never_count(
    ratio: float, others: list[tuple[str, bool, int]], data: st.DataObject
) -> None:
    alone = pairs(ratio, 4)
    mixed = list(alone)
    for number, (what, applied, step_ns) in enumerate(others):
        other = start(100 + number, applied=applied or what == "plan", step_ns=step_ns)
        changes: dict[str, object] = {
            "plan": {"plan": "q"},
            "context": {"context": "d"},
            "untimed": {"step_ns": None, "context": None},
        }[what]
        other = dataclasses.replace(other, **changes)  # type: ignore[arg-type]
        mixed.insert(data.draw(st.integers(0, len(mixed))), other)
    found, expected = judged(mixed), judged(alone)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert math.isclose(found.speedup, expected.speedup)
        assert (found.low, found.high, found.turns) == (expected.low, expected.high, 4)


def test_sides_take_turns() -> None:
    found: list[Start] = []
    sides = []
    for number in range(6):
        applied = applies_next(found, "s", "p")
        sides.append(applied)
        found.append(start(number, applied=applied, step_ns=1))
    assert sides == [True, False] * 3
    # What was not timed is tried again; starts of other scripts do not count.
    found.append(start(6, applied=True, step_ns=None))
    assert applies_next(found, "s", "p")
    assert applies_next([start(7, applied=True, step_ns=1, script="t")], "s", "p")
    # A better plan has its own turns, against the baselines that are known.
    assert [applies_next(found, "s", "q")] == [True]


@given(st.integers(0, 200))
def test_a_file_keeps_the_latest(count: int) -> None:
    found = [start(number, applied=number % 2 == 0, step_ns=number) for number in range(count)]
    again = training_starts.from_bytes(training_starts.to_bytes(found))
    assert again == found[-len(again) :] if count else not again
    assert len(again) == min(count, 80)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"format": "hplacer-starts/9", "starts": []}',
        b'{"format": "hplacer-starts/1", "starts": [{"start": 1}]}',
        b'{"format": "hplacer-starts/1", "starts": 7}',
        b"\xff\xfe",
    ],
)
def test_a_file_that_holds_something_else_is_begun_anew(data: bytes) -> None:
    assert training_starts.from_bytes(data) == []


def test_plans_are_known_by_where_they_place() -> None:
    plan = make_plan()
    moved = dataclasses.replace(plan, node_devices=[1 - d for d in plan.node_devices])
    assert placement_id(plan) == placement_id(dataclasses.replace(plan, seed=9))
    assert placement_id(plan) != placement_id(moved)
