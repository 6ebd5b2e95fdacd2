"""The one training loop: draw, score, learn, until the budget ends.

    policy.draw() --placements--> scorer.score() --scores--> policy.learn()

What draws may be any `LearningPolicy`: tables (hierarchical.py), or networks in their own process.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import CheckpointError
from hplacer_optimizer.planners.budget import Budget, Progress
from hplacer_optimizer.planners.learning.scoring import Scores
from hplacer_optimizer.support.new_file import new_file

CHECKPOINT = "policy.npz"  # in the directory of a checkpoint

_FORMAT = 2  # of checkpoints; the first one held only networks
_SAVE_EVERY_S = 60.0

_Arrays = dict[str, NDArray[Any]]
_Int32 = NDArray[np.int32]


class BudgetEndedError(Exception):
    """A policy did not draw before the end."""


class LearningPolicy(Protocol):
    """What draws placements and learns from their scores."""

    @property
    def facts(self) -> dict[str, float]:
        """What to watch beside step times, by name."""

    def draw(self) -> _Int32:
        """A batch of placements, int32[R, n]."""

    def learn(self, scores: Scores) -> None:
        """From the scores of the last batch."""

    def save(self) -> tuple[dict[str, Any], _Arrays]:
        """Facts for JSON and arrays, on which all further draws depend."""

    def restore(self, facts: dict[str, Any], arrays: _Arrays) -> None:
        """Goes on where `save` was called."""


class Scorer(Protocol):
    """What scores placements."""

    def score(self, placements: _Int32, is_over: Callable[[], bool]) -> Scores:
        """Of the first rows of int32[R, n], `complete` unless it is over before."""


class PolicyTraining:
    """A policy in training, and the best placement that it drew."""

    def __init__(self, policy: LearningPolicy, scorer: Scorer) -> None:
        self.policy = policy
        self.scorer = scorer
        self.steps = self.placements = self.improved = 0
        self.best: _Int32 | None = None  # [n]
        self.best_ns: int | None = None  # None: nothing that was drawn fits
        self._best_rank = (True, math.inf)  # infeasible, cost
        self.last: Scores | None = None

    def run(self, budget: Budget, on_step: Callable[[Progress], None]) -> None:
        """Steps until the budget ends; its seconds count from now, its steps from the first one.

        There is one step at least, so that there is an answer.
        """
        ends = math.inf if budget.seconds is None else time.monotonic() + budget.seconds

        def is_over() -> bool:
            return budget.stopped or time.monotonic() >= ends

        while self.best is None or not is_over():
            if budget.steps is not None and self.steps >= budget.steps:
                break
            if budget.patience is not None and self.steps - self.improved >= budget.patience:
                break
            try:
                completed = self.step(is_over)
            except BudgetEndedError:
                break
            if not completed:
                break
            on_step(self.progress)

    def step(self, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Draws, scores and learns from one batch of placements.

        Returns False if it is over before all are scored: then nothing is learned.
        """
        placements = self.policy.draw()
        scores = self.scorer.score(placements, is_over)
        self.placements += len(scores.cost)
        row = scores.best
        rank = (not scores.feasible[row], float(scores.cost[row]))
        if rank < self._best_rank:
            self._best_rank, self.improved = rank, self.steps + 1
            self.best = placements[row].copy()
            self.best_ns = round(float(scores.seconds[row]) * 1e9) if scores.feasible[row] else None
        if not scores.complete:
            return False
        self.steps += 1
        self.last = scores
        self.policy.learn(scores)
        return True

    def forget(self) -> None:
        """What was drawn so far does not count: the next steps are scored in another way."""
        self.steps = self.placements = self.improved = 0
        self.best, self.best_ns, self._best_rank = None, None, (True, math.inf)

    @property
    def drawn_seconds(self) -> NDArray[np.float64]:
        """Of what was drawn last and fits."""
        return np.zeros(0) if self.last is None else self.last.seconds[self.last.feasible]

    @property
    def progress(self) -> Progress:
        """After the last step."""
        drawn = self.drawn_seconds
        return Progress(
            steps=self.steps,
            placements=self.placements,
            best_ns=self.best_ns,
            mean_ns=float(drawn.mean()) * 1e9 if len(drawn) else None,
            infeasible=0.0 if self.last is None else float(1 - self.last.feasible.mean()),
            entropy=self.policy.facts.get("placer_entropy"),
        )


class Keeper:
    """Keeps a training in a file, DIR/policy.npz, from which it goes on bit for bit."""

    def __init__(self, training: PolicyTraining, directory: Path, identity: dict[str, Any]) -> None:
        """`identity`: by name, what a checkpoint must have in common with this training."""
        self._training, self._identity = training, identity
        self._path = directory / CHECKPOINT
        self._due = time.monotonic() + _SAVE_EVERY_S

    def save_if_due(self) -> None:
        """Every minute."""
        if time.monotonic() > self._due:
            self._due = time.monotonic() + _SAVE_EVERY_S  # also where it fails
            self.save()

    def save(self) -> None:
        """Writes it whole or not at all. Raises CheckpointError if it cannot be written."""
        training = self._training
        facts, arrays = training.policy.save()
        document = {
            "format": _FORMAT,
            "identity": self._identity,
            "policy": facts,
            "counts": [training.steps, training.placements, training.improved],
            "best": [*training._best_rank, training.best_ns],
        }
        if training.best is not None:
            arrays["best"] = training.best
        arrays["facts"] = np.frombuffer(json.dumps(document).encode(), np.uint8)
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **arrays)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with new_file(self._path) as opened:
                opened.write(file.getvalue())
        except OSError as error:
            raise CheckpointError(f"{self._path}: cannot be written: {error}") from None

    def restore(self) -> bool:
        """From the file; whether there is one.

        Raises CheckpointError if it is damaged, of another version, graph, planner, setting or
        seed.
        """
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return False
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                arrays = dict(file)
            document = json.loads(arrays.pop("facts").tobytes())
            self._check(document)
            training = self._training
            training.best = arrays.pop("best", None)
            training.policy.restore(document["policy"], arrays)
            training.steps, training.placements, training.improved = document["counts"]
            infeasible, cost, training.best_ns = document["best"]
            training._best_rank = infeasible, cost
        except CheckpointError as error:
            raise CheckpointError(f"{self._path}: {error}") from None
        except Exception as error:  # zipfile, NumPy and JSON each have their own
            raise CheckpointError(f"{self._path}: is damaged: {error}") from None
        return True

    def _check(self, document: dict[str, Any]) -> None:
        if document.get("format") != _FORMAT:
            raise CheckpointError(
                "was written by another version of this package; remove it, or learn without resume"
            )
        theirs = document["identity"]
        differs = [key for key, value in self._identity.items() if theirs[key] != value]
        if differs:
            raise CheckpointError(f"is of another {', '.join(differs)}")


def identity(problem: Problem, model: str, preset: Any, seed: int) -> dict[str, Any]:
    """What two trainings have in common that draw the same. `preset`: a dataclass of settings."""
    file = io.BytesIO()
    _engine.write_problem(problem.replace(name=""), file)
    digest = hashlib.sha256(file.getvalue())
    return {
        "graph or machine": digest.hexdigest(),
        "planner": model,
        "settings": json.loads(json.dumps(asdict(preset))),
        "seed": seed,
    }
