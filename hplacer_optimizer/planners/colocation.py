"""Co-location groups in the manner of ColocRL's hand-made rules.

Mirhoseini et al., "Device Placement Optimization with Reinforcement Learning" (ICML 2017), section
4.1: an op whose output has a single consumer joins it, and ops of a layer, of an LSTM step or of a
block are together. The paper's rules were written for each graph; ours read name scopes, which
TensorFlow's layers open: `InceptionV3/Mixed_5b` and `encoder/layer_0/step_7` are groups. Ops of the
backward pass join their forward ops, whose scopes their names carry. `colocrl` learns on these
groups; `rollout` and `local_search` place them as one, among others.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.devices import candidate_mask

MOST_GROUPS = 280  # as many as the paper has at most (NMT)

_BACKWARD = re.compile(r"^(?:.*/)?gradients(?:_\d+)?/|_grad(?=/)")


def groups_of_units(problem: Problem, most: int = MOST_GROUPS) -> NDArray[np.int32]:
    """int32[U]: the group of each unit, at most `most` of them where there are names of scopes.

    Takes the deepest scopes that make few enough groups.
    """
    scopes = [_BACKWARD.sub("", name).split("/")[:-1] for name in problem.op_names]
    follows = _only_consumer(problem)
    group = np.zeros(problem.num_units, np.int32)
    scope_id = [0] * problem.num_ops
    for depth in range(max(map(len, scopes), default=0)):
        ids: dict[tuple[int, str], int] = {}
        scope_id = [
            ids.setdefault((above, scope[depth] if depth < len(scope) else ""), len(ids))
            for above, scope in zip(scope_id, scopes, strict=True)
        ]
        deeper = _majority(problem, np.array(scope_id), follows)
        if deeper.max(initial=-1) >= most:
            break
        group = deeper
    return _in_order(problem, group)


def scopes_of_units(problem: Problem) -> NDArray[np.int32]:
    """int32[U]: groups, each divided by the candidates of its units; int32[0] with one group."""
    group = groups_of_units(problem)
    if not group.any():
        return np.zeros(0, np.int32)
    _, candidates = np.unique(
        np.packbits(candidate_mask(problem), axis=1), axis=0, return_inverse=True
    )
    return split(group, candidates.ravel())


def split(group: NDArray[np.int32], by: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """int32[U]: groups in the order given, each divided by what its units have, int[U] from 0."""
    key = group.astype(np.int64) * (int(by.max(initial=0)) + 1) + by
    parts: NDArray[np.int32] = np.unique(key, return_inverse=True)[1].astype(np.int32)
    return parts


def _only_consumer(problem: Problem) -> NDArray[np.int64]:
    """int64[n]: the unit that alone reads what the op's unit makes, else the op's own."""
    units = problem.units.astype(np.int64)
    src, dst = units[np.concatenate([problem.edges[:, [0, 2]], problem.control_edges])].T
    apart = src != dst
    src, dst = np.divmod(np.unique(src[apart] * problem.num_units + dst[apart]), problem.num_units)
    single = np.bincount(src, minlength=problem.num_units) == 1
    target = np.arange(problem.num_units)
    alone = single[src]
    target[src[alone]] = dst[alone]
    return target


def _majority(
    problem: Problem, op_group: NDArray[np.int64], follows: NDArray[np.int64]
) -> NDArray[np.int32]:
    """int32[U]: the group of most ops of a unit, or of the unit that it follows; from 0."""
    count = int(op_group.max(initial=-1)) + 1
    pair, votes = np.unique(problem.units.astype(np.int64) * count + op_group, return_counts=True)
    order = np.lexsort((pair % count, -votes, pair // count))
    unit = pair[order] // count
    _, first = np.unique(unit, return_index=True)
    of_unit = (pair[order] % count)[first]
    _, numbered = np.unique(of_unit[follows], return_inverse=True)
    return numbered.astype(np.int32)


def _in_order(problem: Problem, group: NDArray[np.int32]) -> NDArray[np.int32]:
    """Numbers groups by the mean index of their ops, which is close to a topological order."""
    op_group = group[problem.units]
    count = int(group.max(initial=-1)) + 1
    position = np.bincount(op_group, weights=np.arange(len(op_group)), minlength=count)
    mean = position / np.maximum(np.bincount(op_group, minlength=count), 1)
    rank = np.empty(count, np.int32)
    rank[np.argsort(mean, kind="stable")] = np.arange(count)
    return rank[group]
