"""Joint training of Grouper and Placer by policy gradient (REINFORCE) on the step time.

Mirhoseini et al., "A Hierarchical Model for Device Placement" (ICLR 2018), sections 3 and 4.1. A
training step draws B groupings of the N items and k placements of the G groups of each, R = B * k
rows, scores them, and follows the gradient of the expected reward, -sqrt(step time):

    propose   proposals.py says what is drawn, networks.py draws it
    score     scoring.py: the simulator, or what the caller measures
    learn     advantages over a moving-average baseline; Adam

The time of day only decides when training ends: the same seed and number of steps give the same
placements. TensorFlow's results depend on its number of threads, which is why process.py runs all
this in a process with one.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import CheckpointError
from hplacer_optimizer.learning.baselines import Baselines
from hplacer_optimizer.learning.models import make_model
from hplacer_optimizer.learning.networks import Grouper, Placer, embed_groups
from hplacer_optimizer.learning.optimizer import Adam
from hplacer_optimizer.learning.proposals import Best, Proposal, propose
from hplacer_optimizer.learning.scoring import Scorer, Scores
from hplacer_optimizer.learning.settings import Settings
from hplacer_optimizer.planners.budget import Budget, Progress

_LEAST_EXPLORATION = 0.1  # of what it is at first
_Int32 = NDArray[np.int32]


class Trainer:
    """A policy in training: `step` after `step`, or `run` until a budget ends."""

    def __init__(
        self, problem: Problem, model: str, settings: Settings, seed: int, scorer: Scorer
    ) -> None:
        """Raises InfeasibleError if a unit has no candidate, OptionError for an unknown model."""
        self.settings = settings
        self.steps = self.placements = self.improved = 0
        self.best: Best | None = None
        self.curve: list[Progress] = []
        self.losses: dict[str, float] = {}
        self.batch_seconds = np.zeros(0)  # of the last step's feasible placements
        self._identity = _identity(problem, model, settings, seed)
        self._rng = np.random.default_rng(seed)
        self._scorer = scorer
        self._baselines = Baselines()
        self._model = make_model(problem, model, settings, self._rng)
        self.networks: dict[str, Any] = {}
        if self._model.grouping is None:
            self.networks["grouper"] = Grouper(
                self._model.items, self._model.num_groups, settings, self._rng
            )
        if self._model.has_placer:
            self.networks["placer"] = Placer(
                self._model.items,
                self._model.num_groups,
                self._model.device_bias,
                settings,
                self._rng,
            )
        self._optimizers = {
            name: Adam(network.trainable_variables) for name, network in self.networks.items()
        }
        self._draw_devices = tf.function(self._draw_devices_with, autograph=False)
        self._update = tf.function(self._update_with, autograph=False)

    def run(self, budget: Budget, on_progress: Callable[[Progress], None] | None = None) -> None:
        """Steps until the budget ends; its seconds count from now, its steps from the first one."""
        ends = math.inf if budget.seconds is None else time.monotonic() + budget.seconds
        while not budget.stopped and time.monotonic() < ends:
            if budget.steps is not None and self.steps >= budget.steps:
                break
            if budget.patience is not None and self.steps - self.improved >= budget.patience:
                break
            self.step()
            if on_progress:
                on_progress(self.curve[-1])

    # ---- one step ----

    def step(self) -> None:
        """Draws, scores and learns from one batch of placements."""
        explore = self._explore()
        proposal = self._propose(explore)
        placements = self._model.placements(proposal.grouping, proposal.devices)
        scores = self._scorer.score(placements)
        self.steps += 1
        self.placements += len(placements)
        best = self._keep_best(proposal, placements, scores)
        advantages = np.zeros(len(placements))
        for kind, rows in proposal.rows_by_kind():
            advantages[rows] = self._baselines.advantages(kind, scores.rewards[rows], self.settings)
        self._learn(proposal, advantages, best, explore)
        self.batch_seconds = scores.seconds[scores.feasible]
        mean_s = float(self.batch_seconds.mean()) if len(self.batch_seconds) else None
        self.curve.append(
            Progress(
                steps=self.steps,
                placements=self.placements,
                best_ns=best.makespan_ns,
                mean_ns=None if mean_s is None else mean_s * 1e9,
                infeasible=float(1 - scores.feasible.mean()),
            )
        )

    def _propose(self, explore: float) -> Proposal:
        probabilities = None
        if "grouper" in self.networks:
            probabilities = tf.nn.softmax(self._group_logits()).numpy()
        proposal = propose(self._model, self.settings, explore, self._rng, probabilities, self.best)
        if "placer" in self.networks:
            shape = (*proposal.devices.shape, len(self._model.device_bias))
            proposal.devices = self._draw_devices(
                proposal.grouping,
                proposal.devices,
                self._rng.gumbel(size=shape).astype(np.float32),
                self._model.may_run(proposal.grouping),
            ).numpy()
        return proposal

    def _explore(self) -> float:
        share = math.pow(0.5, self.steps / self.settings.explore_half_life)
        return self.settings.explore * max(share, _LEAST_EXPLORATION)

    def _keep_best(self, proposal: Proposal, placements: _Int32, scores: Scores) -> Best:
        row = int(np.lexsort((scores.ranked, ~scores.feasible))[0])
        feasible = bool(scores.feasible[row])
        rank = (not feasible, float(scores.ranked[row]))
        if self.best is None or rank < self.best.rank:
            self.improved = self.steps
            self.best = Best(
                rank=rank,
                grouping=proposal.grouping[row // proposal.repeats].copy(),
                devices=proposal.devices[row].copy(),
                placement=placements[row].copy(),
                makespan_ns=round(float(scores.seconds[row]) * 1e9) if feasible else None,
            )
        return self.best

    def _learn(
        self, proposal: Proposal, advantages: NDArray[np.float64], best: Best, explore: float
    ) -> None:
        """One update, from the proposal's rows and from the best placement, which come last."""
        repeats = proposal.repeats
        grouping = np.concatenate([proposal.grouping, best.grouping[None]])
        per_grouping = advantages.reshape(-1, repeats).mean(axis=1)
        batch = {
            "grouping": grouping,
            "devices": np.concatenate(
                [proposal.devices, np.repeat(best.devices[None], repeats, axis=0)]
            ),
            "may_run": self._model.may_run(grouping),
            "drawn_items": _with_rows(proposal.drawn_items, 1, True),
            "uniform_items": _with_rows(proposal.uniform_items, 1, 0),
            "drawn_groups": _with_rows(proposal.drawn_groups, repeats, True),
            "item_advantages": _with_rows(per_grouping, 1, 0).astype(np.float32),
            "advantages": _with_rows(advantages, repeats, 0).astype(np.float32),
            "explore": np.where(
                np.arange(len(grouping)) >= proposal.num_fresh, np.float32(explore), np.float32(0)
            ),
        }
        self.losses = {name: float(value) for name, value in self._update(batch).items()}

    # ---- what TensorFlow runs ----

    def _group_logits(self) -> Any:
        logits = self.networks["grouper"].logits()
        if self._model.has_placer:
            return logits
        # Groups are devices.
        may_run = self._model.items.may_run
        return tf.where(may_run, logits + self._model.device_bias, tf.float32.min)

    def _encode(self, grouping: Any, repeats: int) -> Any:
        """Of groupings int32[B, N], each `repeats` times."""
        embedding = embed_groups(self._model.items, grouping, self._model.num_groups)
        return self.networks["placer"].encode(embedding).repeat(repeats)

    def _draw_devices_with(self, grouping: Any, forced: Any, gumbel: Any, may_run: Any) -> Any:
        repeats = forced.shape[0] // grouping.shape[0]
        encoded = self._encode(grouping, repeats)
        may_run = tf.repeat(may_run, repeats, axis=0)
        return self.networks["placer"].decide(encoded, forced, gumbel, may_run)

    def _update_with(self, batch: dict[str, Any]) -> dict[str, Any]:
        losses = {"grouper": self._grouper_loss, "placer": self._placer_loss}
        report: dict[str, Any] = {}
        for name, network in self.networks.items():
            with tf.GradientTape() as tape:
                loss, entropy = losses[name](batch)
            variables = network.trainable_variables
            norm = self._optimizers[name].apply(
                tape.gradient(loss, variables),
                self.settings.learning_rate,
                self.settings.clip_norm,
            )
            report |= {f"{name}_entropy": entropy, f"{name}_gradient_norm": norm}
        return report

    def _grouper_loss(self, batch: dict[str, Any]) -> tuple[Any, Any]:
        log_p = tf.nn.log_softmax(self._group_logits())
        of_item = tf.transpose(batch["grouping"])  # [N, B]
        return self._policy_loss(
            tf.repeat(_entropy(log_p)[None], tf.shape(of_item)[1], axis=0),
            tf.transpose(tf.gather(log_p, of_item, axis=1, batch_dims=1)),
            batch["drawn_items"],
            batch["uniform_items"],
            batch["item_advantages"],
            batch["explore"],
            num_best=1,
        )

    def _placer_loss(self, batch: dict[str, Any]) -> tuple[Any, Any]:
        devices = batch["devices"]
        repeats = devices.shape[0] // batch["grouping"].shape[0]
        may_run = tf.repeat(batch["may_run"], repeats, axis=0)
        encoded = self._encode(batch["grouping"], repeats)
        log_p = self.networks["placer"].log_probabilities(encoded, devices, may_run)
        return self._policy_loss(
            _entropy(log_p),
            tf.gather(log_p, devices, axis=2, batch_dims=2),
            batch["drawn_groups"],
            1 / tf.reduce_sum(tf.cast(may_run, tf.float32), axis=2),
            batch["advantages"],
            tf.repeat(batch["explore"], repeats),
            num_best=repeats,
        )

    def _policy_loss(
        self,
        entropy: Any,
        chosen: Any,
        drawn: Any,
        uniform: Any,
        advantages: Any,
        explore: Any,
        *,
        num_best: int,
    ) -> tuple[Any, Any]:
        """The loss whose gradient is the policy gradient, and the mean entropy of a decision.

        Args:
            entropy: float[R, S] of S decisions in each of R rows.
            chosen: log-probability of what was decided, float[R, S].
            drawn: bool[R, S], whether it was drawn here.
            uniform: float[R, S], its chance under the exploring part of the mixture.
            advantages: float[R].
            explore: float[R], the exploring part of the mixture that decisions were drawn from.
            num_best: the last rows are the best placement.
        """
        settings = self.settings
        policy = tf.exp(chosen)
        share = explore[:, None]
        mixture = (1 - share) * policy + share * uniform
        weight = policy / tf.maximum(mixture, 1e-20)
        credit = tf.stop_gradient(weight) * tf.cast(drawn, tf.float32) * chosen
        per_row = advantages * tf.reduce_sum(credit, axis=1)
        gain = tf.reduce_sum(per_row[:-num_best]) / tf.cast(
            tf.shape(chosen)[0] - num_best, tf.float32
        )
        best = tf.reduce_sum(chosen[-1])
        bonus = tf.reduce_mean(tf.reduce_sum(entropy, axis=1))
        objective = gain + settings.imitate_best * best + settings.entropy_bonus * bonus
        return -objective, tf.reduce_mean(entropy)

    # ---- checkpoints ----

    def save(self) -> bytes:
        """All that the next step depends on, and what was found."""
        arrays = {f"variable_{i}": value.numpy() for i, value in enumerate(self._variables())}
        facts: dict[str, Any] = {
            "identity": self._identity,
            "steps": self.steps,
            "placements": self.placements,
            "improved": self.improved,
            "rng": self._rng.bit_generator.state,
            "baselines": asdict(self._baselines),
            "slowest_s": self._scorer.slowest_s,
            "curve": [asdict(progress) for progress in self.curve],
            "best": None,
        }
        if self.best is not None:
            facts["best"] = [*self.best.rank, self.best.makespan_ns]
            for name in ("grouping", "devices", "placement"):
                arrays[f"best_{name}"] = getattr(self.best, name)
        arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    def restore(self, data: bytes) -> None:
        """Goes on where `save` was called.

        Raises CheckpointError if the data is damaged, or of another graph, model, setting or seed.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                arrays = dict(file)
            facts = json.loads(arrays["facts"].tobytes())
            theirs = facts["identity"]
            differs = [key for key, value in self._identity.items() if theirs[key] != value]
            if differs:
                raise CheckpointError(f"is of another {', '.join(differs)}")
            for i, variable in enumerate(self._variables()):
                variable.assign(arrays[f"variable_{i}"])
            self.steps, self.placements = facts["steps"], facts["placements"]
            self.improved = facts["improved"]
            self._rng.bit_generator.state = facts["rng"]
            self._baselines = Baselines(**facts["baselines"])
            self._scorer.slowest_s = facts["slowest_s"]
            self.curve = [Progress(**record) for record in facts["curve"]]
            if facts["best"] is not None:
                infeasible, score, makespan_ns = facts["best"]
                self.best = Best(
                    rank=(infeasible, score),
                    makespan_ns=makespan_ns,
                    **{n: arrays[f"best_{n}"] for n in ("grouping", "devices", "placement")},
                )
        except CheckpointError:
            raise
        except Exception as error:  # zipfile, NumPy and JSON each have their own
            raise CheckpointError(f"is damaged: {error}") from None

    def _variables(self) -> list[Any]:
        modules = [*self.networks.values(), *self._optimizers.values()]
        return [variable for module in modules for variable in module.variables]


def _entropy(log_p: Any) -> Any:
    """float[...] of float[..., C]."""
    return -tf.reduce_sum(tf.exp(log_p) * tf.maximum(log_p, -1e4), axis=-1)


def _with_rows(array: NDArray[Any], count: int, value: float) -> NDArray[Any]:
    """The array and so many rows more, full of one value."""
    return np.concatenate([array, np.full((count, *array.shape[1:]), value, array.dtype)])


def _identity(problem: Problem, model: str, settings: Settings, seed: int) -> dict[str, Any]:
    digest = hashlib.sha256()
    for array in (
        problem.cost_ns,
        problem.output_bytes,
        problem.edges,
        problem.units,
        problem.candidates,
        problem.device_memory_bytes,
        problem.link_bytes_per_s,
    ):
        digest.update(np.ascontiguousarray(array).tobytes())
    return {
        "graph or machine": digest.hexdigest(),
        "planner": model,
        "settings": asdict(settings),
        "seed": seed,
    }
