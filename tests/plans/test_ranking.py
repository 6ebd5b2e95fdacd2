"""The order of plans, and which of them can be compared."""

from __future__ import annotations

from hplacer_optimizer.plans.ranking import better_than, predicted_alike
from tests.plans.test_plan import make_plan


def test_better_than_is_a_strict_order() -> None:
    fast, slow = make_plan(step_time_ns=1), make_plan(step_time_ns=2)
    unknown, infeasible = make_plan(step_time_ns=None), make_plan(step_time_ns=0, feasible=False)
    measured = [
        make_plan(planner_options={"measured": {"step_ns": ns}}, simulator_version=version)
        for ns, version in ((8, 1), (9, 2))
    ]
    newer = [make_plan(step_time_ns=ns, simulator_version=2) for ns in (30, 40)]
    older = make_plan(step_time_ns=3, simulator_version=1)
    ranking = [*measured, *newer, older, fast, slow, unknown, infeasible]
    for i, plan in enumerate(ranking):
        for j, other in enumerate(ranking):
            assert better_than(plan, other) == (i < j)


def test_stated_steps_are_compared_only_where_one_model_predicted_them() -> None:
    plan = make_plan(simulator_version=2)
    assert predicted_alike(plan, make_plan(simulator_version=2, planner="heft", step_time_ns=1))
    for other in (
        {"simulator_version": 1},
        {"simulator_version": None},
        {"machine": "format: hplacer-machine/1\nname: other\n"},
        {"machine": None},
        {"cost_source": "measured"},
        {"assumptions": ["loop_trip_count=20"]},
    ):
        changed_plan = make_plan(**{"simulator_version": 2, **other})
        assert not predicted_alike(plan, changed_plan)
        assert not predicted_alike(changed_plan, plan)
    unknown = make_plan()
    assert not predicted_alike(unknown, unknown)
