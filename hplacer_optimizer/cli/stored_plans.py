"""Plans as arguments: where they are, and the graph of one that holds no problem."""

from __future__ import annotations

import argparse
import os

from hplacer_optimizer.cli.arguments import PLAN_HELP, add_store_options, open_store
from hplacer_optimizer.cli.graph_arguments import add_optional_graph, graph_options
from hplacer_optimizer.cli.waiting import waiting
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.plans.plan import Plan, load_plan
from hplacer_optimizer.plans.simulation import simulate_plan
from hplacer_optimizer.plans.training_starts import placement_id


def add_plan_arguments(parser: argparse.ArgumentParser, *names: str) -> None:
    """One positional argument for each name, and where to look for plans."""
    for name in names:
        text = f"a plan file, {PLAN_HELP}"
        parser.add_argument(name, metavar=name.upper(), help=text)
    add_store_options(parser)


def add_simulation_options(parser: argparse.ArgumentParser) -> None:
    """What `simulated` reads."""
    add_optional_graph(parser, "for a plan that holds no problem, the graph that it is for")


def is_file(text: str) -> bool:
    """A name that is a file or looks like one is a path, anything else a fingerprint prefix."""
    return "/" in text or text.endswith(".hplan") or os.path.isfile(text)


def find_plan(options: argparse.Namespace, text: str) -> Plan:
    """The plan of a file, or of the store."""
    if is_file(text):
        return load_plan(text)
    store = open_store(options)
    fingerprint = store.resolve(text)
    return store.get(fingerprint) or load_plan(store.path(fingerprint))  # None: just removed


def timed_starts(options: argparse.Namespace, text: str, plan: Plan) -> dict[str, int]:
    """How many starts option verify has timed with the plan, and without one; none for a file."""
    found = [] if is_file(text) else open_store(options).starts(plan.fingerprint)
    timed = [start for start in found if start.step_ns is not None]
    name = placement_id(plan)
    return {
        "with_plan": sum(start.applied and start.plan == name for start in timed),
        "without": sum(not start.applied for start in timed),
    }


def simulated(options: argparse.Namespace, plan: Plan) -> SimulatedStep:
    """The step of the plan, simulated again."""
    with waiting(f"simulating {plan.label}"):
        return simulate_plan(plan, options.graph, **graph_options(options))


def simulated_if_possible(options: argparse.Namespace, plan: Plan) -> SimulatedStep | None:
    """None if the plan holds no problem and no graph was named."""
    if plan.packed_problem is None and options.graph is None:
        return None
    return simulated(options, plan)
