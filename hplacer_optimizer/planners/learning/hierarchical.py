"""The Hierarchical Planner, from top to bottom: what it draws, and how it learns from its draws.

Mirhoseini et al., "A Hierarchical Model for Device Placement" (ICLR 2018):

    Grouper   draws a group for each item           Placer   draws a device for each group
    reward    the step time of that placement       both     follow its policy gradient (REINFORCE)

Every placement that is scored is a draw of the policy. Groups and first logits come from the graph
and the machine alone (groups.py), except for around.py; logits change by the advantages of the last
batch and by nothing else. What it returns is the best draw.

Departures from the paper; docs/results/learning.md has their ablations, but for the first:

 1. Logits are tables, one free number per choice, where the paper has networks (networks.py): those
    share weights, so that one choice cannot change without all others. The tables are drawn from
    and updated in C++ (cc/engine/learning/table_policy.h).
 2. Groups begin as structure, clusters and name scopes, where the paper begins with random ones. An
    item chooses between its own group and those with which it exchanges the most bytes.
 3. An advantage is the z-score of -log(step time) within the batch, where the paper has -sqrt(step
    time) over a moving average. So one learning rate suits all graphs, from start to end.
 4. The Grouper's gradient is Rao-Blackwellised: what counts is an item's device.
 5. Policies race: of several kinds of groups and first logits, those whose draws are worse are
    given up one after the other.
 6. Phases: when little is gained any more, a policy with finer groups joins the race. Its groups
    are the items of before, each with the chances that it had of every device.

The schedule is one of draws, not of time: the same seed and number of steps give the same bytes,
for any number of threads, and a run of seconds is repeated by the steps that it did.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.machines.host import whole_cores
from hplacer_optimizer.planners import colocation
from hplacer_optimizer.planners.learning.groups import GroupMaker, Groups, slowness
from hplacer_optimizer.planners.learning.scoring import Scores
from hplacer_optimizer.planners.learning.settings import Settings

UNIFORM, NEAR_ONE = "uniform", "near one device"  # first logits of the Placer
_SLOW = 2.0  # taken from a device's first logit for each factor e by which it is slower
_LEAST_LOGIT = -9.0  # as in cc/engine/learning/table_policy.cc
_MOST_SCOPES = 280  # as many groups as the paper of 2017 has at most
_LEAST_SCOPES = 32  # fewer of them say little about the graph
_PARTS_PER_DEVICE = 4  # clusters of one device's share of the work: how large an item may be
_TRIED_AROUND = 4.0  # groups, and items, that a draw then puts elsewhere
_COMPARED = 4  # batches, the last ones, by whose mean cost policies are compared
# Settled: the mean cost of a policy's last batches is hardly less than that of as many before.
_RECENT, _SETTLED_TURNS, _LITTLE = 100, 120, 0.02
# The race: in each heat so many batches of each policy, then so many policies are left.
_HEATS = ((10, 3), (15, 2), (30, 1))
_FINER_HEATS = ((25, 1),)

_Float64 = NDArray[np.float64]
_Int32 = NDArray[np.int32]

# (kind of groups, first logits) of the policies that race.
RACES = {
    "hierarchical": (
        ("scopes", UNIFORM),
        ("scopes", NEAR_ONE),
        ("clusters 256x2", UNIFORM),
        ("clusters 1000x8", UNIFORM),
        ("clusters 1000x8", NEAR_ONE),
    ),
    "hierarchical_no_grouping": (("units", UNIFORM), ("units", NEAR_ONE)),
    "hierarchical_random_grouping": (("random", UNIFORM), ("random", NEAR_ONE)),
    "colocrl": (("scopes", UNIFORM), ("scopes", NEAR_ONE)),
}
LEARNED_PLANNERS = tuple(sorted(RACES))
_STATE = ("_batches", "_phase", "_phase_began", "_heat", "_turn", "_position", "_baseline")


def _softmax(logits: _Float64) -> _Float64:
    """Over the last axis; 0 where the logit is -inf."""
    chances = np.exp(logits - logits.max(axis=-1, keepdims=True))
    normal: _Float64 = chances / chances.sum(axis=-1, keepdims=True)
    return normal


# ---- one policy: two tables ----


class Tables:
    """Placer and Grouper of one kind of groups."""

    def __init__(
        self, problem: Problem, groups: Groups, placer_logits: _Float64, settings: Settings
    ) -> None:
        """`placer_logits`: float[G, m] at first."""
        self.groups = groups
        self._settings = settings
        self._tables = _engine.TablePolicy(
            problem,
            groups.item_of_unit,
            groups.candidates,
            np.where(groups.may_run, placer_logits, -np.inf),
            _grouper_logits(groups, settings),
        )

    def draw(self, seed: int) -> _Int32:
        """A batch of placements, int32[batch, n]."""
        return self._tables.draw(seed, self._settings.batch, whole_cores())

    def learn(self, advantages: _Float64, rate: float, entropy_bonus: float) -> None:
        """Follows the policy gradient of the last batch."""
        self._tables.learn(
            advantages,
            placer_rate=rate,
            grouper_rate=rate if self._settings.learns_groups else 0.0,
            entropy_bonus=entropy_bonus,
            rao_blackwell=self._settings.rao_blackwell,
            threads=whole_cores(),
        )

    @property
    def entropy(self) -> float:
        """The mean entropy of a group's device, in nats."""
        return self._tables.entropy

    def chances(self) -> _Float64:
        """Of every device for an item, float[N, m]."""
        of_group = _softmax(self._tables.placer[0])
        of_candidate = _softmax(self._tables.grouper[0])
        chances: _Float64 = np.einsum(
            "nk,nkm->nm", of_candidate, of_group[np.maximum(self.groups.candidates, 0)]
        )
        return chances

    def save(self) -> dict[str, NDArray[Any]]:
        """Arrays by name."""
        names = ("logits", "mean", "square")
        arrays = {"updates": np.array(self._tables.updates)}
        for table in ("placer", "grouper"):
            values = getattr(self._tables, table)
            arrays |= {f"{table}_{name}": v for name, v in zip(names, values, strict=True)}
        return arrays

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """What `save` returned."""
        placer, grouper = (
            tuple(arrays[f"{table}_{name}"] for name in ("logits", "mean", "square"))
            for table in ("placer", "grouper")
        )
        self._tables.restore(placer, grouper, int(arrays["updates"]))


def _grouper_logits(groups: Groups, settings: Settings) -> _Float64:
    """float[N, K] of the start: nearly all items are in their own groups."""
    logits = np.zeros(groups.candidates.shape)
    others = np.maximum((groups.candidates >= 0).sum(axis=1) - 1, 1)
    off = np.clip(settings.moved_items / max(len(logits), 1), 1e-6, 0.5)
    logits[:, 0] = np.log((1 - off) / off * others)
    return logits


def _placer_logits(
    problem: Problem, num_groups: int, device: _Int32 | None, settings: Settings
) -> _Float64:
    """float[G, m] of the start: nearly all groups on a device, int32[G]; None: on any one."""
    if settings.uniform:
        return np.zeros((num_groups, problem.num_devices))
    logits = np.tile(-_SLOW * slowness(problem), (num_groups, 1))
    if device is not None and problem.num_devices > 1:
        chance = np.exp(logits)
        at = np.arange(num_groups), device
        off = min(settings.off_one_device / max(num_groups, 1), 0.5)
        logits[at] = np.log((1 - off) / off * (chance.sum(axis=1) - chance[at]))
    return logits


# ---- the planner ----


@dataclass(kw_only=True)
class _Racer:
    """A policy in the race."""

    arm: int  # of RACES
    finer_at: tuple[int, ...] = ()  # the phases in which its items became groups
    tables: Tables
    rate: float  # at the beginning of the phase
    turns: int = 0  # in this phase
    recent: list[float] = field(default_factory=list)  # mean costs of its last batches

    @property
    def cost(self) -> float:
        """By which policies are compared."""
        return float(np.mean(self.recent[-_COMPARED:]))

    @property
    def is_settled(self) -> bool:
        """It gains little any more."""
        half = len(self.recent) // 2
        if self.turns < _SETTLED_TURNS:
            return False
        gain = float(np.mean(self.recent[:half]) - np.mean(self.recent[half:]))
        return gain < _LITTLE


class HierarchicalPolicy:
    """`draw` a batch, then `learn` from its scores.

    Policies race until one is left. When that one gains little any more, it races against itself
    with finer groups.
    """

    def __init__(
        self,
        problem: Problem,
        model: str,
        settings: Settings,
        seed: int,
        near: _Int32 | None = None,
    ) -> None:
        """Raises InfeasibleError if a unit has no candidate.

        `near`: a placement, int32[n], with which the first logits nearly agree; None: they are of
        the graph and the machine alone.
        """
        self._problem, self.settings, self._seed = problem, settings, seed
        self._maker = GroupMaker(problem)
        self._near = None if near is None else near[np.unique(problem.units, return_index=True)[1]]
        race = RACES[model] if settings.race else RACES[model][:1]
        groups: dict[str, _Int32] = {}
        self._neighbours = settings.neighbours if model == "hierarchical" else 0
        self._is_finer_at_times = model == "hierarchical" and settings.finer
        if near is not None:
            groups["scopes"] = self._groups("scopes")
            has_scopes = int(groups["scopes"].max(initial=-1)) + 1 >= _LEAST_SCOPES
            race = (("scopes" if has_scopes else "clusters 1000x8", UNIFORM),)
        groups |= {kind: self._groups(kind) for kind, _ in race if kind not in groups}
        self._racers = [
            _Racer(arm=arm, tables=self._first(groups[kind], start), rate=settings.learning_rate)
            for arm, (kind, start) in enumerate(race)
        ]
        self._batches = self._phase = self._phase_began = 0
        self._heat = self._turn = self._position = 0
        self._baseline: float | None = None

    def draw(self) -> _Int32:
        """A batch of placements, int32[batch, n]."""
        key = [self._seed % (1 << 64), self._batches]
        seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
        return self._racers[self._position].tables.draw(seed)

    def sample(self, seed: int) -> _Int32:
        """What `draw` would draw with another seed; learning goes on from `draw` alone."""
        return self._racers[self._position].tables.draw(seed)

    def learn(self, scores: Scores) -> None:
        """From the scores of the last batch."""
        settings, racer = self.settings, self._racers[self._position]
        length = settings.schedule if self._phase == 0 else settings.finer_schedule
        passed = min((self._batches - self._phase_began) * settings.batch / length, 1.0)
        if settings.learning_rate:
            rate = racer.rate * (1 - passed * (1 - settings.last_rate))
            bonus = settings.entropy_bonus * (1 - passed) if self._phase == 0 else 0.0
            racer.tables.learn(self._advantages(scores), rate, bonus)
        racer.recent = [*racer.recent, float(scores.cost.mean())][-_RECENT:]
        self._batches += 1
        racer.turns += 1
        self._next_turn()
        is_over = passed == 1 or (self._phase == 0 and racer.is_settled)
        if is_over and len(self._racers) == 1 and settings.learning_rate:
            self._next_phase()

    def _advantages(self, scores: Scores) -> _Float64:
        """float[batch], more is better."""
        if self.settings.z_score:
            cost = scores.cost
            advantages = (cost.mean() - cost) / (cost.std() + 1e-9)
        else:
            reward = -np.exp(scores.cost / 2)
            mean = float(reward.mean())
            before = mean if self._baseline is None else self._baseline
            self._baseline = 0.9 * before + 0.1 * mean
            advantages = reward - self._baseline
        most = self.settings.most_advantage
        clipped: _Float64 = np.clip(advantages, -most, most)
        return clipped

    # ---- the race ----

    def _next_turn(self) -> None:
        """All have a turn in turn; after a heat the better ones are left."""
        self._position += 1
        if self._position < len(self._racers):
            return
        self._position = 0
        self._turn += 1
        heats = _HEATS if self._phase == 0 else _FINER_HEATS
        if len(self._racers) == 1 or self._turn < heats[self._heat][0]:
            return
        self._racers.sort(key=lambda racer: racer.cost)
        del self._racers[heats[self._heat][1] :]
        self._heat, self._turn = self._heat + 1, 0

    def _next_phase(self) -> None:
        """The policy that is left goes on more slowly.

        Beside it one begins with finer groups, unless an earlier one was worse.
        """
        (racer,) = self._racers
        may_be_finer = self._is_finer_at_times and len(racer.finer_at) == self._phase
        self._phase += 1
        self._phase_began = self._batches
        self._heat = self._turn = 0
        racer.rate = self.settings.learning_rate * self.settings.last_rate
        racer.turns, racer.recent = 0, []
        finer = self._finer(racer.tables, self._phase) if may_be_finer else None
        if finer is not None:
            self._racers.append(
                _Racer(
                    arm=racer.arm,
                    finer_at=(*racer.finer_at, self._phase),
                    tables=finer,
                    rate=self.settings.learning_rate,
                )
            )

    def try_around(self) -> None:
        """Goes on with the policy in the lead alone, and tries more around what it is certain of.

        For scores of another kind, such as measured steps: the race has been decided by others.
        """
        racer = min(self._racers, key=lambda racer: racer.cost if racer.recent else np.inf)
        tables = racer.tables
        logits = tables.save()["placer_logits"]
        choices = logits.shape[0] * max(logits.shape[1] - 1, 1)
        least = np.log(min(_TRIED_AROUND / max(choices, 1), 0.5))
        settings = replace(self.settings, moved_items=_TRIED_AROUND)
        racer.tables = Tables(self._problem, tables.groups, np.maximum(logits, least), settings)
        racer.rate, racer.recent = settings.learning_rate, []
        self._racers, self._position = [racer], 0

    # ---- groups ----

    def _first(self, group: _Int32, start: str) -> Tables:
        """A policy that has drawn nothing yet, with a group int32[U] of each unit."""
        settings = self.settings
        part = self._parts(0) if self._neighbours else group
        if self._near is not None:
            group = colocation.split(group, self._near)
        groups = self._maker.groups(group, part, self._neighbours, settings.near)
        device = None
        if self._near is not None:
            device = np.zeros(len(groups.may_run), np.int32)
            device[group] = self._near
        elif start == NEAR_ONE:
            fastest = slowness(self._problem).argmin()
            device = np.full(len(groups.may_run), fastest, np.int32)
        logits = _placer_logits(self._problem, len(groups.may_run), device, settings)
        return Tables(self._problem, groups, logits, settings)

    def _groups(self, kind: str) -> _Int32:
        """int32[U]: the group of each unit."""
        name, _, size = kind.partition(" ")
        if name == "units":
            return self._maker.of_units()
        if name == "scopes":
            return self._maker.scopes(_MOST_SCOPES)
        if name == "random":
            rng = np.random.default_rng([self._seed % (1 << 64), 1])
            return self._maker.at_random(self.settings.random_groups, rng)
        count, per_device = map(int, size.split("x"))
        return self._maker.clusters(count, per_device)

    def _finer(self, policy: Tables, phase: int) -> Tables | None:
        """Its items as groups, each with its chances of every device; None if they are groups."""
        before, part = policy.groups.item_of_unit, self._parts(phase)
        group = colocation.split(before, part)
        if int(group.max(initial=-1)) + 1 == len(policy.groups.may_run):
            return None
        finer = self._maker.groups(group, part, self._neighbours, self.settings.near)
        coarse = np.zeros(len(finer.may_run), np.int32)
        coarse[group] = before
        logs = np.log(np.maximum(policy.chances()[coarse], 1e-300))
        logits = np.maximum(logs - logs.max(axis=1, keepdims=True), _LEAST_LOGIT)
        return Tables(self._problem, finer, logits, self.settings)

    def _parts(self, phase: int) -> _Int32:
        """int32[U]: what groups are cut by; twice as many parts in each phase, units in the end."""
        count = self.settings.items << phase
        if count >= self._problem.num_units:
            return self._maker.of_units()
        return self._maker.clusters(count, _PARTS_PER_DEVICE)

    # ---- checkpoints, and what to watch ----

    @property
    def facts(self) -> dict[str, float]:
        """Of the policy that draws next."""
        racer = self._racers[self._position]
        return {
            "placer_entropy": racer.tables.entropy,
            "racing": float(len(self._racers)),
            "phase": float(self._phase),
        }

    def save(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Facts for JSON and arrays, on which all further draws depend."""
        facts: dict[str, Any] = {name: getattr(self, name) for name in _STATE}
        facts["racers"] = [[r.arm, r.finer_at, r.rate, r.turns, r.recent] for r in self._racers]
        arrays: dict[str, NDArray[Any]] = {}
        for number, racer in enumerate(self._racers):
            arrays |= {f"{number}_{name}": array for name, array in racer.tables.save().items()}
        return facts, arrays

    def restore(self, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Goes on where `save` was called."""
        for name in _STATE:
            setattr(self, name, facts[name])
        first = {racer.arm: racer.tables for racer in self._racers}
        self._racers = []
        for number, (arm, finer_at, rate, turns, recent) in enumerate(facts["racers"]):
            tables = first[arm]
            for phase in finer_at:
                tables = self._finer(tables, phase) or tables
            prefix = f"{number}_"
            mine = {name: array for name, array in arrays.items() if name.startswith(prefix)}
            tables.restore({name.removeprefix(prefix): array for name, array in mine.items()})
            self._racers.append(
                _Racer(
                    arm=arm,
                    finer_at=tuple(finer_at),
                    tables=tables,
                    rate=rate,
                    turns=turns,
                    recent=recent,
                )
            )
