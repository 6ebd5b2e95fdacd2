"""Joint training of Grouper and Placer by policy gradient (REINFORCE) on the step time.

Mirhoseini et al., "A Hierarchical Model for Device Placement" (ICLR 2018), sections 3 and 4.1. A
training step draws B groupings of the N items and k placements of the G groups of each, R = B * k
rows, scores them, and follows the gradient of the expected reward, -sqrt(step time):

    draw      draws.py: groupings, networks.py: devices
    score     scoring.py: the simulator, or what the caller measures
    learn     advantages over a moving-average baseline; Adam

With `Settings.refine` most placements are changes of the best one instead (draws.py), from which
nothing is learned but what to change next.

The time of day only decides when training ends: the same seed and number of steps give the same
placements. TensorFlow's results depend on its number of threads, which is why trainer_process.py
runs all this in a process with one.
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
from hplacer_optimizer.planners.learning.draws import (
    MOST_ITEMS,
    Best,
    Changes,
    Draws,
    change,
    draw_groupings,
    unite,
)
from hplacer_optimizer.planners.learning.items import make_items
from hplacer_optimizer.planners.learning.models import Model, make_model
from hplacer_optimizer.planners.learning.neighbourhoods import Neighbourhoods
from hplacer_optimizer.planners.learning.networks import Grouper, Placer, embed_groups
from hplacer_optimizer.planners.learning.optimizer import Adam
from hplacer_optimizer.planners.learning.reward_baseline import RewardBaseline
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
        self.drawn_seconds = np.zeros(0)  # of what the policy drew last, if it fits
        self._identity = _identity(problem, model, settings, seed, start)
        self._rng = np.random.default_rng(seed)
        self._problem = problem
        self._scorer = scorer
        self._baseline = RewardBaseline()
        self._name = model
        self._begin(make_model(problem, model, settings, self._rng, start))
        self.best = self._first(start)
        self._mark = self.best.rank
        self._stalls = 0
        self._imitations = 0 if start is None or not settings.imitate_best else _IMITATIONS

    def _begin(self, model: Model) -> None:
        """With networks that know nothing yet."""
        settings = self.settings
        self._model = model
        self._unions: Changes | None = None
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
        base = self.best
        draws, changes = self._draw(), self._change()
        drawn = self._model.placements(draws.grouping, draws.of_row, draws.devices)
        rows = np.arange(len(changes.devices), dtype=np.int32)
        changed = self._model.placements(changes.grouping, rows, changes.devices)
        placements = np.concatenate([drawn, changed])
        scores = self._scorer.score(placements)
        self.steps += 1
        self.placements += len(placements)
        grouping = np.concatenate([draws.grouping[draws.of_row], changes.grouping])
        devices = np.concatenate([draws.devices, changes.devices])
        self._keep_best(scores, grouping, devices, placements)
        own = slice(0, len(drawn))
        self._learn(draws, self._baseline.advantages(scores.rewards[own], self.settings))
        self._learn_changes(changes, scores, len(drawn), base)
        self._record(scores, own)
        if self.steps % self.settings.stall_steps == 0:
            if self._is_stalled():
                self._stalls += 1
                self._neighbourhoods.cool()
                # Without imitation new networks would have nothing of the old ones.
                if self._model.can_be_finer and self.settings.imitate_best > 0:
                    self._go_finer()
            self._mark = self.best.rank

    def _record(self, scores: Scores, own: slice) -> None:
        """One step more of the curve; `own` rows are the policy's."""
        self.drawn_seconds = scores.seconds[own][scores.feasible[own]]
        mean_s = float(self.drawn_seconds.mean()) if len(self.drawn_seconds) else None
        self.curve.append(
            Progress(
                steps=self.steps,
                placements=self.placements,
                best_ns=self.best.makespan_ns,
                mean_ns=None if mean_s is None else mean_s * 1e9,
                infeasible=float(1 - scores.feasible.mean()),
            )
        )

    def _imitate(self) -> None:
        """An update towards the best placement alone."""
        draws = self._draw()
        self._learn(draws, np.zeros(len(draws.devices)), _IMITATION_RATE)
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

    def _draw(self) -> Draws:
        model = self._model
        probabilities = None
        if "grouper" in self.networks:
            probabilities = tf.nn.softmax(self._group_logits()).numpy()
        grouping, of_row = draw_groupings(model, self.settings, self._rng, probabilities)
        shape = (len(of_row), model.num_groups, len(model.device_bias))
        if "placer" in self.networks:
            gumbel = self._rng.gumbel(size=shape).astype(np.float32)
            may_run = model.may_run(grouping)
            devices = self._draw_devices(grouping, of_row, gumbel, may_run).numpy()
        else:
            devices = np.tile(np.arange(model.num_groups, dtype=np.int32), (len(of_row), 1))
        return Draws(grouping=grouping, of_row=of_row, devices=devices)

    def _change(self) -> Changes:
        return change(
            self._model,
            self.settings,
            self._neighbourhoods,
            self._rng,
            self.best,
            self._critical_items(),
            self._unions,
        )

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

    def _keep_best(
        self, scores: Scores, grouping: _Int32, devices: _Int32, placements: _Int32
    ) -> None:
        """Of equal ones the last, which may well be on the way to a better one.

        Rows as those of the scores: the groupings int32[R, N] and their devices int32[R, G].
        """
        row = int(np.lexsort((-np.arange(len(placements)), scores.ranked, ~scores.feasible))[0])
        best = _best_row(scores, row, grouping[row], devices[row], placements[row])
        if best.rank < self.best.rank:
            self.improved = self.steps
        if best.rank <= self.best.rank:
            self.best = best

    def _learn_changes(self, changes: Changes, scores: Scores, first: int, base: Best) -> None:
        """Which changes of the best placement pay, and which to unite.

        Their scores are those from row `first`.
        """
        feasible, ranked = scores.feasible[first:], scores.ranked[first:]
        was_infeasible, was_ranked = base.rank
        better = ranked < was_ranked
        better = feasible | better if was_infeasible else feasible & better
        count = len(changes.choices)
        self._neighbourhoods.learn(changes.choices, better[:count])
        order = np.lexsort((ranked, ~feasible))
        winners = order[better[order] & (order < count)]
        self._unions = unite(changes, base, winners.astype(np.int32))

    def _learn(self, draws: Draws, advantages: NDArray[np.float64], speed: float = 1.0) -> None:
        """One update, from what was drawn and from the best placement."""
        cooled = self.settings.cooling**self._stalls
        num_groupings = len(draws.grouping)
        rows = np.bincount(draws.of_row, minlength=num_groupings)
        total = np.bincount(draws.of_row, weights=advantages, minlength=num_groupings)
        encoded = draws.grouping
        if self.settings.imitate_best:
            encoded = np.concatenate([encoded, self.best.grouping[None]])
        batch = {
            "grouping": draws.grouping,
            "grouping_advantages": (total / rows).astype(np.float32),
            "encoded": encoded,
            "may_run": self._model.may_run(encoded),
            "of_row": draws.of_row,
            "devices": draws.devices,
            "advantages": advantages.astype(np.float32),
            "best_grouping": self.best.grouping,
            "best_devices": self.best.devices,
            "learning_rate": np.float32(self.settings.learning_rate * speed * cooled),
            "entropy_bonus": np.float32(self.settings.entropy_bonus * cooled),
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

    def _encode(self, grouping: Any, of_row: Any) -> Any:
        """For rows of groupings int32[E, N]."""
        embedding = embed_groups(self._model.items, grouping, self._model.num_groups)
        return self.networks["placer"].encode(embedding).rows(of_row)

    def _draw_devices_with(self, grouping: Any, of_row: Any, gumbel: Any, may_run: Any) -> Any:
        encoded = self._encode(grouping, of_row)
        return self.networks["placer"].decide(encoded, gumbel, tf.gather(may_run, of_row))

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
        best = tf.gather(log_p, batch["best_grouping"], batch_dims=1)
        return self._loss(batch, chosen, batch["grouping_advantages"], best, _entropy(log_p)[None])

    def _placer_loss(self, batch: dict[str, Any]) -> tuple[Any, Any]:
        of_row, devices = batch["of_row"], batch["devices"]
        num_rows = devices.shape[0]
        if self.settings.imitate_best:  # its grouping is the last one that is encoded
            last = tf.fill([1], batch["encoded"].shape[0] - 1)
            of_row = tf.concat([of_row, last], axis=0)
            devices = tf.concat([devices, batch["best_devices"][None]], axis=0)
        may_run = tf.gather(batch["may_run"], of_row)
        encoded = self._encode(batch["encoded"], of_row)
        log_p = self.networks["placer"].log_probabilities(encoded, devices, may_run)
        chosen = tf.gather(log_p, devices, axis=2, batch_dims=2)
        drawn, best = chosen[:num_rows], chosen[num_rows:]
        return self._loss(batch, drawn, batch["advantages"], best, _entropy(log_p))

    def _loss(
        self, batch: dict[str, Any], drawn: Any, advantages: Any, best: Any, entropy: Any
    ) -> tuple[Any, Any]:
        """What falls as the policy learns, and the mean of its entropies.

        Args:
            batch: of the update.
            drawn: log-probability of what was drawn, float[R, S], of S decisions.
            advantages: float[R].
            best: log-probability of the best placement's decisions, float[...].
            entropy: of decisions, float[R, S].
        """
        gain = tf.reduce_mean(advantages * tf.reduce_sum(drawn, axis=1))
        if self.settings.imitate_best:
            gain += self.settings.imitate_best * tf.reduce_sum(best)
        gain += batch["entropy_bonus"] * tf.reduce_mean(tf.reduce_sum(entropy, axis=1))
        return -gain, tf.reduce_mean(entropy)

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
            "baseline": asdict(self._baseline),
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
        if self._unions is not None:
            arrays["unions_grouping"] = self._unions.grouping
            arrays["unions_devices"] = self._unions.devices
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
            self._baseline = RewardBaseline(**facts["baseline"])
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
            self._unions = None
            if "unions_grouping" in arrays:
                self._unions = Changes(
                    grouping=arrays["unions_grouping"],
                    devices=arrays["unions_devices"],
                    choices=np.empty((0, 3), np.int32),
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
