"""Searches that leave the host's CPU to what cannot run on an accelerator.

An op that moves to the CPU frees little of a GPU and costs two transfers, and a prediction that
says otherwise rests on two estimates. So a search is not offered the CPU of a task with
accelerators for what can run on one of these, unless the costs of both are measured, or memory does
not suffice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.devices import candidate_mask, device_types, tasks, units_on

_CPU = "CPU"


def accelerators_first(problem: Problem, is_measured: NDArray[np.bool_] | None = None) -> Problem:
    """A captured problem as a search gets it; the same object if nothing is held back.

    Its placements are placements of the given one. `is_measured`, bool[n, K], tells whose costs
    were measured on which kinds; None: nobody's. Raises InfeasibleError if an op has no device.
    """
    types = device_types(problem)
    task = np.array(tasks(problem))
    is_accelerator = np.array([name != _CPU for name in types])
    is_host = ~is_accelerator & np.isin(task, task[is_accelerator])
    if not is_host.any():
        return problem
    mask = candidate_mask(problem)
    held_back: NDArray[np.bool_] = units_on(mask, np.flatnonzero(is_accelerator).tolist())
    held_back &= units_on(mask, np.flatnonzero(is_host).tolist())
    if is_measured is not None:
        known = np.ones(problem.num_units, np.bool_)
        runs = problem.cost_ns >= 0
        np.logical_and.at(known, problem.units, (is_measured | ~runs).all(axis=1))
        held_back &= ~known
    op = np.repeat(np.arange(problem.num_ops), np.diff(problem.allowed_ptr))
    stays = ~(held_back[problem.units[op]] & is_host[problem.allowed_device])
    if stays.all():
        return problem
    counts = np.bincount(op[stays], minlength=problem.num_ops)
    offered = problem.replace(
        allowed_ptr=np.concatenate([[0], np.cumsum(counts)]),
        allowed_device=problem.allowed_device[stays],
    )
    return offered if _fits(offered) else problem


def _fits(problem: Problem) -> bool:
    """Whether something that takes no time fits into the memory of the devices."""
    if (
        problem.default_device is not None
        and _engine.simulate(problem, problem.default_device).feasible
    ):
        return True
    return _engine.simulate(problem, _engine.place_etf(problem)).feasible
