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
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import CheckpointError
from hplacer_optimizer.planners.budget import Budget, Progress
from hplacer_optimizer.planners.learning.baselines import Baselines
from hplacer_optimizer.planners.learning.items import make_items
from hplacer_optimizer.planners.learning.models import Model, make_model
from hplacer_optimizer.planners.learning.neighbourhoods import Neighbourhoods
from hplacer_optimizer.planners.learning.networks import Grouper, Placer, embed_groups
from hplacer_optimizer.planners.learning.optimizer import Adam
from hplacer_optimizer.planners.learning.proposals import (
    MOST_ITEMS,
    Best,
    Combined,
    Proposal,
    combine,
    propose,
)
from hplacer_optimizer.planners.learning.scoring import Scorer, Scores
from hplacer_optimizer.planners.learning.settings import Settings

_IMITATIONS = 60  # updates towards a placement to start from,
_IMITATION_RATE = 3.0  # at so many times the learning rate
_BEST_ARRAYS = ("grouping", "devices", "placement")
_Int32 = NDArray[np.int32]


class Trainer:
    """A policy in training: `step` after `step`, or `run` until a budget ends."""

    def __init__(
        self,
        problem: Problem,
        model: str,
        settings: Settings,
        seed: int,
        scorer: Scorer,
        start: _Int32 | None = None,
    ) -> None:
        """With a placement int32[n] to start from, which the policy learns to imitate first.

        Raises InfeasibleError if a unit has no candidate, OptionError for an unknown model.
        """
        self.settings = settings
        self.steps = self.placements = self.improved = 0
        self.curve: list[Progress] = []
        self.losses: dict[str, float] = {}
        self.batch_seconds = np.zeros(0)  # of the last step's feasible placements
        self._identity = _identity(problem, model, settings, seed, start)
        self._rng = np.random.default_rng(seed)
        self._problem = problem
        self._scorer = scorer
        self._baselines = Baselines()
        self._name = model
        self._begin(make_model(problem, model, settings, self._rng, start))
        self.best = self._first(start)
        self._mark = self.best.rank
        self._stalls = 0
        self._imitations = 0 if start is None else _IMITATIONS

    def _begin(self, model: Model) -> None:
        """With networks that know nothing yet."""
        settings = self.settings
        self._model = model
        self._combined: Combined | None = None
        self._neighbourhoods = Neighbourhoods(min(model.items.count, MOST_ITEMS), model.num_groups)
        self.networks: dict[str, Any] = {}
        if model.grouping is None:
            self.networks["grouper"] = Grouper(model.items, model.num_groups, settings, self._rng)
        if model.has_placer:
            self.networks["placer"] = Placer(
                model.items, model.num_groups, model.device_bias, settings, self._rng
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
            if self._imitations:
                self._imitate()
                continue
            self.step()
            if on_progress:
                on_progress(self.curve[-1])

    # ---- one step ----

    def step(self) -> None:
        """Draws, scores and learns from one batch of placements."""
        while self._imitations:
            self._imitate()
        proposal = self._propose()
        placements = self._model.placements(proposal.grouping, proposal.of_row, proposal.devices)
        scores = self._scorer.score(placements)
        self.steps += 1
        self.placements += len(placements)
        base = self.best
        self._keep_best(proposal, placements, scores)
        advantages = np.zeros(len(placements))
        for kind, rows in proposal.rows_by_kind():
            advantages[rows] = self._baselines.advantages(kind, scores.rewards[rows], self.settings)
        self._learn(proposal, advantages)
        self._search(proposal, scores, base)
        self.batch_seconds = scores.seconds[scores.feasible]
        mean_s = float(self.batch_seconds.mean()) if len(self.batch_seconds) else None
        self.curve.append(
            Progress(
                steps=self.steps,
                placements=self.placements,
                best_ns=self.best.makespan_ns,
                mean_ns=None if mean_s is None else mean_s * 1e9,
                infeasible=float(1 - scores.feasible.mean()),
            )
        )
        if self.steps % self.settings.stall_steps == 0:
            if self._is_stalled():
                self._stalls += 1
                self._neighbourhoods.cool()
                # Without imitation new networks would have nothing of the old ones.
                if self._model.can_be_finer and self.settings.imitate_best > 0:
                    self._go_finer()
            self._mark = self.best.rank

    def _imitate(self) -> None:
        """An update towards the best placement alone."""
        proposal = self._propose()
        self._learn(proposal, np.zeros(len(proposal.devices)), _IMITATION_RATE)
        self._imitations -= 1

    def _is_stalled(self) -> bool:
        """Little was found since the last mark."""
        was_infeasible, was_ranked = self._mark
        infeasible, ranked = self.best.rank
        return infeasible == was_infeasible and ranked > was_ranked * (1 - self.settings.stall_gain)

    def _go_finer(self) -> None:
        """Begins anew from the best placement, with smaller items."""
        settings = replace(self.settings, clusters=self.settings.finer * self._model.items.count)
        self._begin(make_model(self._problem, self._name, settings, self._rng, self.best.placement))
        grouping, devices = self._model.start_groups(self._rng)
        self.best = replace(self.best, grouping=grouping, devices=devices)
        self._imitations = _IMITATIONS

    def _propose(self) -> Proposal:
        probabilities = None
        if "grouper" in self.networks:
            probabilities = tf.nn.softmax(self._group_logits()).numpy()
        proposal = propose(
            self._model,
            self.settings,
            self._neighbourhoods,
            self._rng,
            probabilities,
            self.best,
            self._critical_items(),
            self._combined,
        )
        if "placer" in self.networks:
            placed, encoded = proposal.num_placed, proposal.num_encoded
            shape = (placed, proposal.devices.shape[1], len(self._model.device_bias))
            proposal.devices[:placed] = self._draw_devices(
                proposal.grouping[:encoded],
                proposal.of_row[:placed],
                proposal.devices[:placed],
                self._rng.gumbel(size=shape).astype(np.float32),
                self._model.may_run(proposal.grouping[:encoded]),
            ).numpy()
        return proposal

    def _critical_items(self) -> _Int32:
        """On the critical path of the best placement; all if it is not refined or has no trace."""
        items = self._model.items
        every = np.arange(items.count, dtype=np.int32)
        if self.settings.refine == 0:
            return every
        ops = _engine.critical_ops(self._problem, self.best.placement)
        return np.unique(items.of_unit[self._problem.units[ops]]) if len(ops) else every

    def _first(self, start: _Int32 | None) -> Best:
        """The start; a rank that every draw reaches if only draws count."""
        grouping, devices = self._model.start_groups(self._rng)
        if self.settings.own_draws_only and start is None:
            placement = self._model.start[self._model.items.of_unit][self._problem.units]
            return Best(
                rank=(True, math.inf),
                grouping=grouping,
                devices=devices,
                placement=placement,
                makespan_ns=None,
            )
        placements = self._model.placements(grouping[None], np.zeros(1, np.int32), devices[None])
        scores = self._scorer.score(placements)
        return _best_row(scores, 0, grouping, devices, placements[0])

    def _keep_best(self, proposal: Proposal, placements: _Int32, scores: Scores) -> None:
        """Of equal ones the last, which may well be on the way to a better one."""
        row = int(np.lexsort((-np.arange(len(placements)), scores.ranked, ~scores.feasible))[0])
        best = _best_row(
            scores,
            row,
            proposal.grouping[proposal.of_row[row]],
            proposal.devices[row],
            placements[row],
        )
        if best.rank < self.best.rank:
            self.improved = self.steps
        if best.rank <= self.best.rank:
            self.best = best

    def _search(self, proposal: Proposal, scores: Scores, base: Best) -> None:
        """Learns which changes of the best placement pay, and which to combine."""
        order = np.lexsort((scores.ranked, ~scores.feasible))
        was_infeasible, was_ranked = base.rank
        if was_infeasible:
            better = scores.feasible | (scores.ranked < was_ranked)
        else:
            better = scores.feasible & (scores.ranked < was_ranked)
        refined = proposal.refined()
        self._neighbourhoods.learn(proposal.choices[refined], better[refined])
        winners = order[better[order] & np.isin(order, refined)]
        self._combined = combine(proposal, base, winners.astype(np.int32))

    def _learn(
        self, proposal: Proposal, advantages: NDArray[np.float64], speed: float = 1.0
    ) -> None:
        """One update, from the proposal's rows and from the placement that they changed."""
        cooled = self.settings.cooling**self._stalls
        placed, encoded = proposal.num_placed, proposal.num_encoded
        groupings = len(proposal.grouping)
        rows = np.maximum(np.bincount(proposal.of_row, minlength=groupings), 1)
        total = np.bincount(proposal.of_row, weights=advantages, minlength=groupings)
        explore = np.zeros(groupings, np.float32)
        explore[proposal.of_row] = proposal.explore  # with refined items one row each
        batch = {
            "grouping": proposal.grouping,
            "drawn_items": proposal.drawn_items,
            "uniform_items": proposal.uniform_items,
            "item_advantages": (total / rows).astype(np.float32),
            "item_explore": explore,
            "encoded": proposal.grouping[:encoded],
            "may_run": self._model.may_run(proposal.grouping[:encoded]),
            "of_row": proposal.of_row[:placed],
            "devices": proposal.devices[:placed],
            "drawn_groups": proposal.drawn_groups[:placed],
            "advantages": advantages[:placed].astype(np.float32),
            "explore": proposal.explore[:placed],
            "learning_rate": np.float32(self.settings.learning_rate * speed * cooled),
            "entropy_bonus": np.float32(self.settings.entropy_bonus * cooled),
        }
        if proposal.best_devices is not None:
            batch["best_grouping"] = proposal.grouping[encoded - 1]
            batch["best_devices"] = proposal.best_devices
        self.losses = {name: float(value) for name, value in self._update(batch).items()}

    # ---- what TensorFlow runs ----

    def _group_logits(self) -> Any:
        logits = self.networks["grouper"].logits()
        if self._model.has_placer:
            return logits
        # Groups are devices.
        may_run = self._model.items.may_run
        return tf.where(may_run, logits + self._model.device_bias, tf.float32.min)

    def _encode(self, grouping: Any, of_row: Any) -> Any:
        """For rows of groupings int32[E, N]."""
        embedding = embed_groups(self._model.items, grouping, self._model.num_groups)
        return self.networks["placer"].encode(embedding).rows(of_row)

    def _draw_devices_with(
        self, grouping: Any, of_row: Any, forced: Any, gumbel: Any, may_run: Any
    ) -> Any:
        encoded = self._encode(grouping, of_row)
        return self.networks["placer"].decide(encoded, forced, gumbel, tf.gather(may_run, of_row))

    def _update_with(self, batch: dict[str, Any]) -> dict[str, Any]:
        losses = {"grouper": self._grouper_loss, "placer": self._placer_loss}
        report: dict[str, Any] = {}
        for name, network in self.networks.items():
            with tf.GradientTape() as tape:
                loss, entropy = losses[name](batch)
            variables = network.trainable_variables
            norm = self._optimizers[name].apply(
                tape.gradient(loss, variables),
                batch["learning_rate"],
                self.settings.clip_norm,
            )
            report |= {f"{name}_entropy": entropy, f"{name}_gradient_norm": norm}
        return report

    def _grouper_loss(self, batch: dict[str, Any]) -> tuple[Any, Any]:
        log_p = tf.nn.log_softmax(self._group_logits())  # [N, G]
        chosen = tf.transpose(tf.gather(log_p, tf.transpose(batch["grouping"]), batch_dims=1))
        gain = self._gain(
            chosen,
            batch["drawn_items"],
            batch["uniform_items"],
            batch["item_advantages"],
            batch["item_explore"],
        )
        best = 0.0
        if "best_grouping" in batch:
            best = tf.reduce_sum(tf.gather(log_p, batch["best_grouping"], batch_dims=1))
        return self._objective(batch, gain, best, _entropy(log_p)[None])

    def _placer_loss(self, batch: dict[str, Any]) -> tuple[Any, Any]:
        of_row, devices = batch["of_row"], batch["devices"]
        num_rows = devices.shape[0]
        if "best_devices" in batch:  # of the last grouping that is encoded
            last = tf.fill([1], batch["encoded"].shape[0] - 1)
            of_row = tf.concat([of_row, last], axis=0)
            devices = tf.concat([devices, batch["best_devices"][None]], axis=0)
        may_run = tf.gather(batch["may_run"], of_row)
        encoded = self._encode(batch["encoded"], of_row)
        log_p = self.networks["placer"].log_probabilities(encoded, devices, may_run)
        chosen = tf.gather(log_p, devices, axis=2, batch_dims=2)
        gain = self._gain(
            chosen[:num_rows],
            batch["drawn_groups"],
            self._uniform(devices[:num_rows], may_run[:num_rows]),
            batch["advantages"],
            batch["explore"],
        )
        best = tf.reduce_sum(chosen[num_rows:])
        return self._objective(batch, gain, best, _entropy(log_p))

    def _uniform(self, devices: Any, may_run: Any) -> Any:
        """float[R, G]: the chance of the devices int32[R, G], had they been drawn by no policy."""
        chance = tf.where(may_run, self._model.device_chance, 0.0)
        chosen = tf.gather(self._model.device_chance, devices)
        return chosen / tf.reduce_sum(chance, axis=2)

    def _gain(self, chosen: Any, drawn: Any, uniform: Any, advantages: Any, explore: Any) -> Any:
        """What has the policy gradient for its gradient, of S decisions in each of R rows.

        Args:
            chosen: log-probability of what was decided, float[R, S].
            drawn: bool[R, S], whether it was drawn here.
            uniform: float[R, S], its chance under the uniform part of the mixture.
            advantages: float[R].
            explore: float[R], the uniform part of the mixture that decisions were drawn from.
        """
        policy = tf.exp(chosen)
        share = explore[:, None]
        mixture = (1 - share) * policy + share * uniform
        weight = policy / tf.maximum(mixture, 1e-20)
        credit = tf.stop_gradient(weight) * tf.cast(drawn, tf.float32) * chosen
        return tf.reduce_mean(advantages * tf.reduce_sum(credit, axis=1))

    def _objective(
        self, batch: dict[str, Any], gain: Any, best: Any, entropy: Any
    ) -> tuple[Any, Any]:
        """The loss, and the mean of the entropies float[R, S] of decisions."""
        bonus = tf.reduce_mean(tf.reduce_sum(entropy, axis=1))
        objective = gain + self.settings.imitate_best * best + batch["entropy_bonus"] * bonus
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
            "imitations": self._imitations,
            "mark": self._mark,
            "stalls": self._stalls,
            "groups": self._model.num_groups,
            "prior_decay": self._neighbourhoods.prior_decay,
            "best": [*self.best.rank, self.best.makespan_ns],
        }
        for name in _BEST_ARRAYS:
            arrays[f"best_{name}"] = getattr(self.best, name)
        arrays["of_unit"] = self._model.items.of_unit
        arrays["wins"], arrays["tries"] = self._neighbourhoods.wins, self._neighbourhoods.tries
        if self._combined is not None:
            arrays["combined_grouping"] = self._combined.grouping
            arrays["combined_devices"] = self._combined.devices
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
            items = make_items(self._problem, arrays["of_unit"], self.settings.position_frequencies)
            self._begin(replace(self._model, items=items, num_groups=facts["groups"]))
            for i, variable in enumerate(self._variables()):
                variable.assign(arrays[f"variable_{i}"])
            self.steps, self.placements = facts["steps"], facts["placements"]
            self.improved = facts["improved"]
            self._rng.bit_generator.state = facts["rng"]
            self._baselines = Baselines(**facts["baselines"])
            self._scorer.slowest_s = facts["slowest_s"]
            self.curve = [Progress(**record) for record in facts["curve"]]
            infeasible, score, makespan_ns = facts["best"]
            self.best = Best(
                rank=(infeasible, score),
                makespan_ns=makespan_ns,
                **{name: arrays[f"best_{name}"] for name in _BEST_ARRAYS},
            )
            self._imitations = facts["imitations"]
            infeasible, ranked = facts["mark"]
            self._mark = (infeasible, ranked)
            self._stalls = facts["stalls"]
            self._neighbourhoods.prior_decay = facts["prior_decay"]
            self._neighbourhoods.wins = arrays["wins"]
            self._neighbourhoods.tries = arrays["tries"]
            self._combined = None
            if "combined_grouping" in arrays:
                self._combined = Combined(
                    grouping=arrays["combined_grouping"], devices=arrays["combined_devices"]
                )
        except CheckpointError:
            raise
        except Exception as error:  # zipfile, NumPy and JSON each have their own
            raise CheckpointError(f"is damaged: {error}") from None

    def _variables(self) -> list[Any]:
        modules = [*self.networks.values(), *self._optimizers.values()]
        return [variable for module in modules for variable in module.variables]


def _best_row(
    scores: Scores, row: int, grouping: _Int32, devices: _Int32, placement: _Int32
) -> Best:
    feasible = bool(scores.feasible[row])
    return Best(
        rank=(not feasible, float(scores.ranked[row])),
        grouping=grouping.copy(),
        devices=devices.copy(),
        placement=placement.copy(),
        makespan_ns=round(float(scores.seconds[row]) * 1e9) if feasible else None,
    )


def _entropy(log_p: Any) -> Any:
    """float[...] of float[..., C]."""
    return -tf.reduce_sum(tf.exp(log_p) * tf.maximum(log_p, -1e4), axis=-1)


def _with_rows(array: NDArray[Any], count: int, value: float) -> NDArray[Any]:
    """The array and so many rows more, full of one value."""
    return np.concatenate([array, np.full((count, *array.shape[1:]), value, array.dtype)])


def _optional_times(problem: Problem) -> list[NDArray[np.int64]]:
    """Nothing if all are 0, so that the checkpoints of such problems do not depend on them."""
    times = [
        problem.device_start_ns,
        problem.device_turn_ns,
        problem.device_launch_ns,
        problem.link_send_ns,
        problem.link_send_bytes_per_s,
        problem.link_receive_ns,
        problem.link_receive_bytes_per_s,
    ]
    return times if any(values.any() for values in times) else []


def _identity(
    problem: Problem, model: str, settings: Settings, seed: int, start: _Int32 | None
) -> dict[str, Any]:
    digest = hashlib.sha256()
    for array in (
        problem.cost_ns,
        problem.output_bytes,
        problem.edges,
        problem.units,
        problem.candidates,
        problem.device_memory_bytes,
        problem.link_bytes_per_s,
        *_optional_times(problem),
    ):
        digest.update(np.ascontiguousarray(array).tobytes())
    return {
        "graph or machine": digest.hexdigest(),
        "planner": model,
        "settings": asdict(settings),
        "seed": seed,
        "start": None if start is None else hashlib.sha256(start.tobytes()).hexdigest(),
    }
