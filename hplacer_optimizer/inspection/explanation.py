"""Why a plan's step takes as long as it does, and which change of the machine would help most."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from hplacer_optimizer.errors import InfeasibleError
from hplacer_optimizer.inspection.arrivals import are_copies, tensor_name
from hplacer_optimizer.inspection.critical_path import (
    CHANNEL_WAIT,
    STREAM_WAIT,
    TRANSFER,
    PathShare,
    Stage,
    path_shares,
)
from hplacer_optimizer.inspection.loads import (
    ChannelLoad,
    DeviceLoad,
    LinkLoad,
    channel_loads,
    device_loads,
    link_loads,
)
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.inspection.what_if import WhatIf, what_ifs

__all__ = ["Explanation", "TransferFacts", "explain"]

_MOST_EXPENSIVE = 10


@dataclass(frozen=True, kw_only=True)
class TransferFacts:
    """One transfer."""

    tensor: str
    src: str
    dst: str
    channel: str
    bytes: int
    wait_ns: int  # for its channel
    duration_ns: int  # without the wait
    critical: bool  # on the critical path


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A simulated step, explained."""

    step_time_ns: int
    feasible: bool
    infeasible_because: list[str]
    lower_bound_ns: int | None  # None: it is proved that no placement is feasible
    lower_bound_term: str | None
    path: list[Stage]  # in the order of time; it covers the step
    path_shares: list[PathShare]  # the largest first
    devices: list[DeviceLoad]
    channels: list[ChannelLoad]
    links: list[LinkLoad]
    transfers: list[TransferFacts]  # the most expensive ones, by falling duration
    unchanged: WhatIf
    changes: list[WhatIf]  # the most helpful first


def explain(
    step: SimulatedStep,
    *,
    seconds: float | None = None,
    seed: int = 0,
    on_start: Callable[[str], None] | None = None,
) -> Explanation:
    """Explains a step; the keywords are those of `what_ifs`.

    Raises InfeasibleError if the step has no trace, since a kernel or a link is missing.
    """
    problem, placement, trace = step.problem, step.placement, step.trace
    if trace.makespan_ns is None:
        raise InfeasibleError(f"there is no step to explain: {trace.infeasible_because[0]}")
    bound = step.bound
    path = step.path
    unchanged, *changed = what_ifs(
        problem, placement, seconds=seconds, seed=seed, on_start=on_start
    )
    return Explanation(
        step_time_ns=trace.makespan_ns,
        feasible=trace.feasible,
        infeasible_because=list(trace.infeasible_because),
        lower_bound_ns=bound.ns,
        lower_bound_term=bound.term,
        path=path,
        path_shares=path_shares(path),
        devices=device_loads(problem, placement, trace),
        channels=channel_loads(problem, trace),
        links=link_loads(problem, trace),
        transfers=_most_expensive(step, path),
        unchanged=unchanged,
        changes=_most_helpful_first(changed),
    )


def _most_expensive(step: SimulatedStep, path: list[Stage]) -> list[TransferFacts]:
    problem, sends = step.problem, step.trace.transfers
    of_transfers = (TRANSFER, CHANNEL_WAIT, STREAM_WAIT)
    critical = {stage.item for stage in path if stage.kind in of_transfers}
    wait_ns = sends["start_ns"] - sends["sent_ns"]  # for the channel
    for_streams_ns = sends["sent_ns"] - sends["issue_ns"]
    wait_ns += np.where(are_copies(problem, sends), for_streams_ns, 0)
    duration_ns = sends["finish_ns"] - sends["issue_ns"] - wait_ns
    op_names, devices = problem.op_names, problem.device_names
    return [
        TransferFacts(
            tensor=tensor_name(op_names, int(sends["src_op"][i]), int(sends["output"][i])),
            src=devices[sends["src_device"][i]],
            dst=devices[sends["dst_device"][i]],
            channel=problem.channel_names[sends["channel"][i]],
            bytes=int(sends["bytes"][i]),
            wait_ns=int(wait_ns[i]),
            duration_ns=int(duration_ns[i]),
            critical=i in critical,
        )
        for i in np.argsort(-duration_ns, kind="stable")[:_MOST_EXPENSIVE].tolist()
    ]


def _most_helpful_first(found: Iterable[WhatIf]) -> list[WhatIf]:
    def rank(tried: WhatIf) -> tuple[bool, int]:
        return tried.best_ns is None, tried.best_ns or 0

    return sorted(found, key=rank)
