"""`hplacer why`: why a lookup found no plan."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.cli.arguments import (
    FAILED,
    OK,
    add_command,
    add_json,
    add_store_options,
    open_store,
)
from hplacer_optimizer.cli.graph_arguments import add_optional_graph, graph_options
from hplacer_optimizer.cli.plan_texts import verdict_lines
from hplacer_optimizer.cli.printing import print_json
from hplacer_optimizer.cli.terminal_tables import print_table
from hplacer_optimizer.cli.waiting import waiting
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.plans.elsewhere import made_for
from hplacer_optimizer.plans.fingerprint import Miss, differences, read_misses
from hplacer_optimizer.plans.plan import Plan

# Outcomes other than a miss, as plugin/history.py words them.
_OTHER_OUTCOMES = re.compile(
    r"hplacer: (.*(?:keeps TensorFlow's own placement|is left alone|a stored plan cannot be used|"
    r"plans are not kept|was planned again|nothing to place).*)"
)


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    text = "tell why a script or a graph finds no stored plan, or a retired one; exit code 1 if so"
    why = add_command(commands, "why", _why, text, "hplacer why train.log")
    why.add_argument(
        "log",
        nargs="?",
        metavar="LOG",
        help="what the script printed to stderr, with HPLACER_LOG=debug; - for stdin",
    )
    add_optional_graph(why, "in place of a log, look up this graph")
    add_store_options(why)
    add_json(why)


def _why(options: argparse.Namespace) -> int:
    if (options.log is None) == (options.graph is None):
        raise OptionError("name a LOG or a --graph")
    lookups, remarks = _of_graph(options) if options.graph else _of_log(options.log)
    plans = [entry.plan for entry in open_store(options).list() if entry.plan]
    answers = [_answer(lookup, plans) for lookup in lookups]
    if options.json:
        print_json({"lookups": answers, "remarks": remarks})
    else:
        for remark in remarks:
            print(remark)
        for answer in answers:
            _print(answer)
        if not answers and not remarks:
            print(f"{options.log}: no lookup failed, or it was not logged: HPLACER_LOG=debug does")
    return OK if all(map(_is_used, answers)) else FAILED


def _of_log(name: str) -> tuple[list[Miss], list[str]]:
    text = sys.stdin.read() if name == "-" else Path(name).read_text(errors="replace")
    lines = text.splitlines()
    remarks = [match[1] for line in lines if (match := _OTHER_OUTCOMES.search(line))]
    misses = {(miss.label, *miss.parts.items()): miss for miss in read_misses(lines)}
    return list(misses.values()), list(dict.fromkeys(remarks))


def _of_graph(options: argparse.Namespace) -> tuple[list[Miss], list[str]]:
    with waiting(f"loading {options.graph}"):
        captured = load_graph(options.graph, **graph_options(options)).captured
    return [Miss(label=captured.label, parts=dict(captured.fingerprint_parts))], []


def _answer(lookup: Miss, plans: list[Plan]) -> dict[str, Any]:
    """The nearest plan is the one that differs in the fewest parts, the graph counting most."""
    answer: dict[str, Any] = {"label": lookup.label, "parts": lookup.parts}
    ranked = []
    for plan in plans:
        found = differences(lookup.parts, plan.fingerprint_parts)
        other_graph = any(difference.part == "graph" for difference in found)
        ranked.append((other_graph, len(found), plan.label != lookup.label, plan.fingerprint))
    if not ranked:
        return {**answer, "stored": False, "verdict": [], "nearest": None, "differences": []}
    nearest = plans[ranked.index(min(ranked))]
    found = differences(lookup.parts, nearest.fingerprint_parts)
    return {
        **answer,
        "stored": not found,
        "verdict": [] if found else list(verdict_lines(nearest)),
        "nearest": {
            "fingerprint": nearest.fingerprint,
            "label": nearest.label,
            "created": nearest.created,
            "device_names": nearest.device_names,
            "made_for": made_for(nearest) or None,
            "versions": nearest.versions,
            "retired": nearest.is_retired,
            "verdict": nearest.verdict.as_json() if nearest.verdict else None,
        },
        "differences": [asdict(difference) for difference in found],
    }


def _is_used(answer: dict[str, Any]) -> bool:
    return answer["stored"] and not answer["nearest"]["retired"]


def _print(answer: dict[str, Any]) -> None:
    nearest = answer["nearest"]
    if nearest is None:
        print(f"{answer['label']}: the store holds no plan at all")
        return
    name = f"plan {nearest['fingerprint'][:8]} of {nearest['label']}, made {nearest['created']}"
    if answer["stored"]:
        print(f"{answer['label']}: {name}, is stored now and fits")
        for line in (nearest["made_for"], *answer["verdict"]):
            if line:
                print(line)
        return
    print(f"{answer['label']}: nothing fits; the nearest is {name}, which differs in")
    print_table(
        ("part", "made of", "looked up", "in the plan", "what to do"),
        [
            (
                difference["part"],
                difference["meaning"],
                difference["wanted"] or "none",
                difference["found"] or "none",
                difference["remedy"],
            )
            for difference in answer["differences"]
        ],
    )
    if any(difference["part"] == "machine" for difference in answer["differences"]):
        print(f"devices of the plan: {', '.join(nearest['device_names'])}")
