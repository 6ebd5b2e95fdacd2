"""`hplacer diff`: what moved between two plans, and what that does to the step."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from hplacer_optimizer.cli.arguments import OK, add_command, add_json
from hplacer_optimizer.cli.load_tables import add_depth
from hplacer_optimizer.cli.printing import print_json, step_time
from hplacer_optimizer.cli.stored_plans import (
    add_plan_arguments,
    add_simulation_options,
    find_plan,
    simulated_if_possible,
)
from hplacer_optimizer.cli.terminal_tables import print_line, print_table
from hplacer_optimizer.inspection.loads import short_names
from hplacer_optimizer.plans.comparison import (
    Moves,
    StepFacts,
    compare_nodes,
    on_one_problem,
    step_facts,
)
from hplacer_optimizer.plans.fingerprint import differences
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.ranking import predicted_alike
from hplacer_optimizer.support.formats import format_bytes, format_ratio

_MAX_SCOPES = 40


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    text = "compare two plans: nodes that moved, step time, transfers and memory"
    diff = add_command(commands, "diff", _diff, text, "hplacer diff 3f9c2b1a old.hplan --depth 2")
    add_plan_arguments(diff, "a", "b")
    add_simulation_options(diff)
    add_depth(diff)
    add_json(diff)


def _diff(options: argparse.Namespace) -> int:
    a, b = find_plan(options, options.a), find_plan(options, options.b)
    step_a, step_b = simulated_if_possible(options, a), simulated_if_possible(options, b)
    if step_a is None or step_b is None:
        step_a = step_b = None  # what is simulated now is not compared with what a plan states
    shared = on_one_problem(a, b) if step_a and step_b else None
    comparable = step_a is not None or predicted_alike(a, b)
    basis = _basis(shared is not None, step_a is not None, comparable)
    facts_a, facts_b = step_facts(a, step_a), step_facts(b, shared or step_b)
    moves = compare_nodes(a, b, options.depth)
    have_parts = a.fingerprint and b.fingerprint
    parts = differences(a.fingerprint_parts, b.fingerprint_parts) if have_parts else []
    if options.json:
        print_json(
            {
                "a": _document(a, facts_a),
                "b": _document(b, facts_b),
                "basis": basis,
                "comparable": comparable,
                "fingerprint_differences": [asdict(part) for part in parts],
                "moves": asdict(moves),
            }
        )
        return OK
    print_line(f"A: {a.label}: {a.summary_line()}")
    print_line(f"B: {b.label}: {b.summary_line()}")
    for part in parts:
        print_line(f"fingerprints differ in {part.part}: {part.meaning}")
    print_line(basis)
    _print_facts(a, b, facts_a, facts_b, comparable)
    _print_moves(moves)
    return OK


def _document(plan: Plan, facts: StepFacts) -> dict[str, Any]:
    return {"fingerprint": plan.fingerprint, "planner": plan.planner} | asdict(facts)


def _basis(shared: bool, simulated: bool, comparable: bool) -> str:
    if shared:
        return "both simulated on A's costs and links"
    if simulated:
        return "each simulated on its own graph and machine"
    stated = "as the plans state it: a plan without its problem needs --graph to be simulated"
    if comparable:
        return stated
    return (
        f"{stated}. The step times are not comparable: the plans were predicted by different "
        "versions of the simulator, for different machines or with different costs"
    )


def _print_facts(
    a: Plan, b: Plan, facts_a: StepFacts, facts_b: StepFacts, comparable: bool
) -> None:
    times = facts_a.step_time_ns, facts_b.step_time_ns
    rows = [
        (
            "step time",
            step_time(times[0], facts_a.feasible),
            step_time(times[1], facts_b.feasible),
            _change(*times) if comparable else "",
        )
    ]
    speedups = facts_a.speedup, facts_b.speedup
    if speedups != (None, None):
        shown = ["-" if speedup is None else format_ratio(speedup) for speedup in speedups]
        rows.append(("times as fast as TensorFlow's placement", shown[0], shown[1], ""))
    if facts_a.transfers is not None and facts_b.transfers is not None:
        counts = facts_a.transfers, facts_b.transfers
        rows.append(("transfers", str(counts[0]), str(counts[1]), _change(*counts)))
        sizes = facts_a.transfer_bytes or 0, facts_b.transfer_bytes or 0
        rows.append(("bytes sent", format_bytes(sizes[0]), format_bytes(sizes[1]), _change(*sizes)))
    peaks_a = dict(zip(a.device_names, facts_a.peak_bytes, strict=True))
    peaks_b = dict(zip(b.device_names, facts_b.peak_bytes, strict=True))
    names = [*dict.fromkeys([*peaks_a, *peaks_b])]
    for name, short in zip(names, short_names(names), strict=True):
        peaks = peaks_a.get(name), peaks_b.get(name)
        shown = ["no such device" if peak is None else format_bytes(peak) for peak in peaks]
        rows.append((f"peak of {short}", shown[0], shown[1], _change(*peaks)))
    print_table(("", "A", "B", "B to A"), rows)


def _change(a: int | None, b: int | None) -> str:
    """Such as "+12.5%"; "" where it is not known or from nothing."""
    return f"{b / a - 1:+.1%}" if a and b is not None else ""


def _print_moves(moves: Moves) -> None:
    print(f"{moves.moved} of {moves.common} common nodes are on another device", end="")
    if moves.only_in_a or moves.only_in_b:
        print(f"; {moves.only_in_a} are only in A, {moves.only_in_b} only in B", end="")
    print()
    print_table(
        ("scope", "nodes", "moved", "from A to B"),
        [
            (
                scope.scope or "(none)",
                str(scope.nodes),
                str(scope.moved),
                "; ".join(f"{count} {src} to {dst}" for src, dst, count in scope.routes[:3]),
            )
            for scope in moves.scopes[:_MAX_SCOPES]
        ],
    )
    if len(moves.scopes) > _MAX_SCOPES:
        print(f"{len(moves.scopes) - _MAX_SCOPES} more scopes: see --json")
