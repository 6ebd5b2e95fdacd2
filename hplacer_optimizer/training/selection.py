"""Chooses the chains of a portfolio, and the whole training of one.

    evolve x 4, and those set by hand --> x kinds of items --> greedy choice --> Portfolio

Each chain of a portfolio is the one that lowers the mean logarithm of the best step the most, given
the chains before it: the first is the best alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer.planners.policies import BY_HAND, Policy, Portfolio
from hplacer_optimizer.training.evolution import Found, Stage, evolve, relative_steps
from hplacer_optimizer.training.problems import TrainingProblem

CHAINS = 16
# The first policy has half of the time. Kinds of items that suit each, by its order.
_SHARES = (0.5, 0.15, 0.15, 0.1)
_ITEMS = (
    ("large_clusters", "clusters"),
    ("large_clusters", "small_clusters"),
    ("units", "clusters"),
    ("scopes", "large_clusters"),
)
STAGES = len(_SHARES)
_LEAST_LEFT_S = 0.1  # checkpoints round to that
_DRAWS = 10


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What training tells after each generation."""

    stage: int  # from 0
    generation: int
    share_done: float  # of all time
    mean: float  # of the generation's best, logarithm of the step over the reference


def train(
    problems: Sequence[TrainingProblem],
    *,
    seconds: float,
    seed: int = 0,
    done: Sequence[Found] = (),
    on_progress: Callable[[Progress], bool] = lambda progress: True,
    on_stage: Callable[[Found, int], None] = lambda found, stage: None,
) -> Portfolio:
    """Trains a portfolio; chains of policies set by hand are among those that it chooses from.

    Args:
        problems: at least one.
        seconds: in all, without what the choice at the end takes.
        seed: of all draws.
        done: what the stages of a run that was stopped have found; the last one goes on from its
            mean if it had time left.
        on_progress: says whether to go on; if not, chains are chosen of what there is.
        on_stage: told what each stage has found, and its number, to keep it.
    """
    begin_s = time.monotonic()
    found, goes_on = list(done), True
    best = np.full(len(problems), np.inf)
    for stage in range(STAGES):
        earlier = found[stage] if stage < len(found) else None
        left_s = _SHARES[stage] / sum(_SHARES) * seconds - (earlier.seconds if earlier else 0.0)
        if left_s > _LEAST_LEFT_S:

            def report(generation: int, mean: float, stage: int = stage) -> bool:
                nonlocal goes_on
                goes_on = on_progress(
                    Progress(
                        stage=stage,
                        generation=generation,
                        share_done=min(1.0, (time.monotonic() - begin_s) / seconds),
                        mean=mean,
                    )
                )
                return goes_on

            step = Stage(
                start=earlier.policies[0] if earlier else BY_HAND.policies[stage],
                items=_ITEMS[stage],
                seconds=left_s,
                seed=seed * STAGES + stage,
            )
            now = evolve(step, problems, best, on_generation=report, draws=_DRAWS)
            found[stage:] = [now if earlier is None else now.after(earlier)]
            on_stage(found[stage], stage)
        if not goes_on:
            break
        mean_policy = found[stage].policies[:1]
        for kind in _ITEMS[stage]:
            chain = Portfolio(policies=mean_policy, chains=((0, kind),))
            best = np.minimum(best, [relative_steps(problem, chain)[0] for problem in problems])
    evolved = [policy for one in found for policy in one.policies]
    return select([*BY_HAND.policies, *evolved], problems)


def select(
    pool: Sequence[Policy], problems: Sequence[TrainingProblem], *, chains: int = CHAINS
) -> Portfolio:
    """The chains that are best together, in the order in which they were chosen."""
    every = Portfolio.of_all(*pool)
    steps = np.array([relative_steps(problem, every) for problem in problems])
    chosen = _greedy(steps, min(chains, len(every.chains)))
    used = sorted({every.chains[chain][0] for chain in chosen})
    return Portfolio(
        policies=tuple(pool[policy] for policy in used),
        chains=tuple((used.index(every.chains[c][0]), every.chains[c][1]) for c in chosen),
    )


def _greedy(steps: NDArray[np.float64], count: int) -> list[int]:
    """Of float64[problems, chains]."""
    best = np.full(len(steps), np.inf)
    chosen: list[int] = []
    for _ in range(count):
        means = np.minimum(best[:, None], steps).mean(axis=0)
        means[chosen] = np.inf
        chosen.append(int(means.argmin()))
        best = np.minimum(best, steps[:, chosen[-1]])
    return chosen


def random_portfolio(seed: int) -> Portfolio:
    """Policies with random weights, for comparison: as many policies and chains as by hand.

    Each weight is drawn uniformly in the logarithm between 0.02 and 5, or is 0 for every third.
    """
    random = np.random.default_rng(seed)
    policies = []
    for _ in BY_HAND.policies:
        weights = np.exp(random.uniform(np.log(0.02), np.log(5), len(_engine.ROLLOUT_FEATURES)))
        weights[random.random(len(weights)) < 1 / 3] = 0
        names = zip(_engine.ROLLOUT_FEATURES, weights.tolist(), strict=True)
        policies.append(Policy(weights=dict(names), is_lazy=bool(random.random() < 0.5)))
    return Portfolio.of_all(*policies)
