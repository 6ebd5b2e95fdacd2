"""Evolution strategies on the weights and gains of a policy.

CMA-ES (Hansen, "The CMA Evolution Strategy: A Tutorial", 2016) with a diagonal covariance, by the
library `cma`. What is minimised is the mean logarithm of the step over a reference, of a single
chain on a handful of problems, drawn anew for each generation. A later policy is rewarded only
where it beats the best of those before it, so that the policies of a portfolio differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.planners.policies import Policy, Portfolio
from hplacer_optimizer.training.problems import TrainingProblem, chain_steps_ns

_POPULATION, _BATCH = 20, 32
_SIGMA, _GAIN_SCALE = 0.25, 0.5
_LEAST_WEIGHT = 0.02  # where a policy that training starts from has none
_GAIN_DECAY = 1e-4
INFEASIBLE = 1.6
"""What counts as the step, over the reference, of a placement that does not fit the memories."""
_LARGEST_EXPONENT = 25.0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One policy's evolution.

    Attributes:
        start: the policy it begins with.
        items: the kinds of items that its chains have.
        seconds: how long.
        seed: of the draws.
    """

    start: Policy
    items: Sequence[str]
    seconds: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a stage ended with.

    Attributes:
        policies: the mean of the last generation, then draws of its distribution.
        generations: how many there were.
        seconds: how long it took.
    """

    policies: tuple[Policy, ...]
    generations: int
    seconds: float

    def after(self, earlier: Found) -> Found:
        """This, with the effort of what it went on from."""
        return replace(
            self,
            generations=earlier.generations + self.generations,
            seconds=earlier.seconds + self.seconds,
        )


def evolve(
    stage: Stage,
    problems: Sequence[TrainingProblem],
    best_before: NDArray[np.float64],
    *,
    on_generation: Callable[[int, float], bool] = lambda generation, mean: True,
    draws: int = 12,
) -> Found:
    """Runs a stage.

    Args:
        stage: what is trained.
        problems: at least one.
        best_before: float64[problems], the logarithm of the best step over the reference that
            earlier policies reach; infinite if there are none.
        on_generation: told the number of the generation and the mean of its best; says whether to
            go on.
        draws: how many policies of the last distribution are returned beside its mean.

    Raises PlannerUnavailableError without the library `cma`.
    """
    try:
        import cma
    except ImportError:
        raise PlannerUnavailableError(
            "training policies needs the library cma: pip install 'hplacer-optimizer[train]'"
        ) from None
    start = to_parameters(stage.start)
    scale = np.ones(len(start))
    scale[len(_engine.ROLLOUT_FEATURES) :] = _GAIN_SCALE
    strategy = cma.CMAEvolutionStrategy(
        start,
        _SIGMA,
        {
            "CMA_diagonal": True,
            "CMA_stds": scale,
            "popsize": _POPULATION,
            "seed": stage.seed + 1,  # 0 means the clock
            "verbose": -9,
        },
    )
    random = np.random.default_rng(stage.seed)
    begin_s = time.monotonic()
    generation = 0
    while time.monotonic() < begin_s + stage.seconds:
        batch = random.choice(len(problems), min(_BATCH, len(problems)), replace=False)
        drawn = strategy.ask()
        policies = [from_parameters(values, is_lazy=stage.start.is_lazy) for values in drawn]
        losses = np.mean(
            [_gains(problems[i], policies, stage.items, best_before[i]) for i in batch], axis=0
        )
        sizes = np.array(
            [np.square(values[len(_engine.ROLLOUT_FEATURES) :]).sum() for values in drawn]
        )
        strategy.tell(drawn, list(losses + _GAIN_DECAY * sizes))
        generation += 1
        if not on_generation(generation, float(losses.min())):
            break
    rows = [strategy.result.xfavorite, *(strategy.ask(draws) if draws else [])]
    return Found(
        policies=tuple(from_parameters(row, is_lazy=stage.start.is_lazy) for row in rows),
        generations=generation,
        seconds=time.monotonic() - begin_s,
    )


def _gains(
    problem: TrainingProblem, policies: Sequence[Policy], items: Sequence[str], best_before: float
) -> NDArray[np.float64]:
    """float64[policies]: mean over the kinds of items of the logarithm, at most `best_before`."""
    chains = [(i, kind) for kind in items for i in range(len(policies))]
    portfolio = Portfolio(policies=tuple(policies), chains=tuple(chains))
    found = relative_steps(problem, portfolio).reshape(len(items), len(policies))
    mean: NDArray[np.float64] = np.minimum(found, best_before).mean(axis=0)
    return mean


def relative_steps(problem: TrainingProblem, portfolio: Portfolio) -> NDArray[np.float64]:
    """float64[chains]: the logarithm of each chain's step over the reference."""
    ratio = chain_steps_ns(problem.problem, problem.scope, portfolio) / problem.reference_ns
    return np.log(np.where(np.isfinite(ratio), ratio, INFEASIBLE))


# ---- parameters ----


def to_parameters(policy: Policy) -> NDArray[np.float64]:
    """Logarithms of the weights, then gains."""
    row = np.array(policy.row())
    count = len(_engine.ROLLOUT_FEATURES)
    return np.concatenate([np.log(np.maximum(row[:count], _LEAST_WEIGHT)), row[count:-1]])


def from_parameters(values: NDArray[np.float64], *, is_lazy: bool) -> Policy:
    """The policy of parameters, with as many digits as its file keeps."""
    features, contexts = _engine.ROLLOUT_FEATURES, _engine.ROLLOUT_CONTEXTS
    gains = values[len(features) :].reshape(len(features), len(contexts))
    sums = np.abs(gains).sum(axis=1, keepdims=True)
    gains = gains * np.minimum(1, _LARGEST_EXPONENT / np.maximum(sums, 1e-9))
    return Policy(
        weights={
            name: _rounded(np.exp(value)) for name, value in zip(features, values, strict=False)
        },
        gains={
            name: {context: _rounded(gain) for context, gain in zip(contexts, row, strict=True)}
            for name, row in zip(features, gains, strict=True)
        },
        is_lazy=is_lazy,
    )


def _rounded(value: float) -> float:
    return float(f"{min(value, 1e5):.5g}")
