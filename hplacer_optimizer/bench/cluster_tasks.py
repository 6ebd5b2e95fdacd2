"""Training graphs that a cluster of two small workers runs, and how a person would cut them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench import small_graphs
from hplacer_optimizer.planners.devices import where_possible
from hplacer_optimizer.workloads.graphs import write_graph

_UNDECIDED = -1
_SHARES = (0.25, 0.5, 0.75)
_VARIABLES = ("VarHandleOp", "VariableV2")

Rules = Mapping[str, int]
"""Worker by a regular expression, the first that occurs in an op's name."""


@dataclass(frozen=True, kw_only=True)
class ClusterTask:
    """A graph whose step takes a fraction of a second on one core."""

    name: str
    title: str
    write: Callable[[Path], None]
    """Writes the graph as a binary MetaGraphDef file."""
    by_hand: tuple[Rules, ...] = ()
    """The cuts that are peculiar to it; `cuts_by_hand` has those that suit any."""

    @property
    def workload(self) -> str:
        """What it is chosen by."""
        return self.name


def _small(name: str, *by_hand: Rules) -> ClusterTask:
    return ClusterTask(
        name=name.replace(" ", "_"),
        title=name,
        write=partial(small_graphs.write, name),
        by_hand=by_hand,
    )


TASKS: tuple[ClusterTask, ...] = (
    ClusterTask(
        name="two_tower",
        title="two-tower recommender",
        write=partial(
            write_graph,
            "two_tower",
            batch_size=512,
            features=4,
            rows=50_000,
            width=64,
            hidden=1024,
            pin_tables=False,
        ),
        by_hand=({"two_tower/user/": 0, "two_tower/item/": 1},),
    ),
    ClusterTask(
        name="nmt",
        title="NMT (2 layers, reduced)",
        write=partial(write_graph, "nmt", hidden=512, steps=8, vocabulary=4000),
        # As the experts of the papers have it: a layer per device.
        by_hand=({"layer_0/|embedding/": 0, "layer_1/|attention/|softmax/": 1},),
    ),
    _small("two convolutional towers", {"tower0/": 0, "tower1/": 1}),
    _small("four experts", {"expert[01]/|shared|gate": 0, "expert[23]/": 1}),
    _small("two unequal encoders", {"encoder0/": 0, "encoder1/": 1}),
    _small("encoder and decoder", {"encoder/": 0, "decoder/": 1}),
    _small("wide embeddings", {"table[0-3]|hidden|out": 0, "table[4-7]": 1}),
    _small("chain of large products"),
    _small("many tiny chains"),
    _small("few huge products", {"tower0/": 0, "tower1/": 1}),
    _small("reading in two directions", {"forwards/": 0, "backwards/": 1}),
    _small("images down and up", {"down": 0, "up": 1}),
    _small("layers of experts", {"expert[01]/|gate": 0, "expert[23]/": 1}),
    _small("two attention encoders", {"encoder0/": 0, "encoder1/": 1}),
    _small("gated recurrence", {"layer0/": 0, "layer1/": 1}),
    _small("wide and deep", {"table|wide|deep": 0, "hidden|out": 1}),
    _small("dense blocks", {"branch0/": 0, "branch1/": 1}),
    _small("separable convolutions", {"tower0/": 0, "tower1/": 1}),
    _small("messages along edges", {"relation[01]|own": 0, "relation2": 1}),
    _small("similar pairs", {"side0/": 0, "side1/|loss": 1}),
    _small("three unlike networks", {"network[01]/": 0, "network2/": 1}),
)

_OF_THE_MODEL = (
    "nmt",
    "two_convolutional_towers",
    "four_experts",
    "two_unequal_encoders",
    "wide_embeddings",
)

DEFAULT_TASKS: tuple[ClusterTask, ...] = tuple(
    task for task in TASKS if task.name not in _OF_THE_MODEL
)
"""All but those whose steps were looked at when the model of transfers was made."""


def cuts_by_hand(
    problem: Problem, own: tuple[Rules, ...]
) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """What a person would try: the task's own cuts, and those by the order of the layers.

    The first quarter, half or three quarters of the variables, with the ops near them, are on
    worker 0, the others on worker 1; or they take turns.
    """
    for number, rules in enumerate(own, start=1):
        yield f"by hand {number}", place_by_hand(problem, rules)
    variables = _variables_by_layer(problem)
    for share in _SHARES:
        first = round(share * len(variables))
        workers = [int(index >= first) for index in range(len(variables))]
        yield f"by hand, cut at {share:.0%}", _by_variables(problem, variables, workers)
    turns = [index % 2 for index in range(len(variables))]
    yield "by hand, in turn", _by_variables(problem, variables, turns)


def _variables_by_layer(problem: Problem) -> list[str]:
    """Their names, scope after scope, as the step comes to the first op that reads each.

    What reads nothing but one variable and constants is taken for the variable.
    """
    op_names, op_types = problem.op_names, problem.op_types
    reads: list[list[int]] = [[] for _ in range(problem.num_ops)]
    for src, _, dst in problem.edges.tolist():
        if op_types[src] != "Const":
            reads[dst].append(src)
    variable_of = [op if kind in _VARIABLES else -1 for op, kind in enumerate(op_types)]
    variables = [op for op, variable in enumerate(variable_of) if variable == op]
    first_use = dict.fromkeys(variables, problem.num_ops)
    for op, sources in enumerate(reads):  # in topological order
        read = {variable_of[src] for src in sources}
        if len(read) == 1:
            variable_of[op] = read.pop()
        for variable in read - {-1}:
            first_use[variable] = min(first_use[variable], op)
    variables.sort(key=first_use.__getitem__)
    scopes = [op_names[op].partition("/")[0] for op in variables]
    by_scope = sorted(zip(scopes, variables, strict=True), key=lambda pair: scopes.index(pair[0]))
    return [op_names[op] for _, op in by_scope]


def _by_variables(problem: Problem, variables: list[str], workers: list[int]) -> NDArray[np.int32]:
    rules = {
        f"(^|/){re.escape(name)}(/|$)": worker
        for name, worker in zip(variables, workers, strict=True)
    }
    return place_by_hand(problem, rules)


def place_by_hand(problem: Problem, rules: Rules) -> NDArray[np.int32]:
    """int32[n]; units that no rule names go where their first neighbour is, others to worker 0."""
    wanted = np.full(problem.num_ops, _UNDECIDED, np.int32)
    for op, name in enumerate(problem.op_names):
        found = (worker for expression, worker in rules.items() if re.search(expression, name))
        wanted[op] = next(found, _UNDECIDED)
    per_unit = np.full(problem.num_units, _UNDECIDED, np.int32)
    for op in np.flatnonzero(wanted != _UNDECIDED)[::-1]:  # the unit's first op decides
        per_unit[problem.units[op]] = wanted[op]
    ends = problem.units[problem.edges[:, [0, 2]]]
    for near, far in ((ends[:, 0], ends[:, 1]), (ends[:, 1], ends[:, 0])):  # consumers first
        while True:
            is_open = (per_unit[near] == _UNDECIDED) & (per_unit[far] != _UNDECIDED)
            units, first = np.unique(near[is_open], return_index=True)
            if not len(units):
                break
            per_unit[units] = per_unit[far[is_open][first]]
    return where_possible(problem, np.maximum(per_unit, 0))
