"""The hyperparameters of the learned planners, and their presets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hplacer_optimizer.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Hyperparameters; the defaults are the preset "default". Raises OptionError.

    Sources: Mirhoseini et al., "A Hierarchical Model for Device Placement" (ICLR 2018), sections 3
    and 4.1, and the values of Google's released controller. What is not theirs says why.
    """

    clusters: int = 1000
    """What the Grouper assigns: so many clusters of units; 0: each unit by itself, as the paper.

    An op that goes to another device than its neighbours costs transfers, so that independent draws
    for thousands of ops hide the effect of each. cc/engine/search/unit_clusters.h joins what no
    good placement takes apart.
    """
    groups: int = 128
    """Groups that the Grouper forms; the length of the Placer's sequence. Paper: 256."""
    grouper_hidden: int = 64
    """Hidden units of the Grouper. Paper: 64."""
    placer_hidden: int = 64
    """LSTM units of the Placer, in each direction of the encoder. Paper: 512; an eighth of it draws
    and learns from several times as many placements per second, and finds better ones."""
    groupings: int = 32
    """Groupings drawn per step, m. Paper: 1."""
    placements: int = 2
    """Placements drawn per grouping, k. Paper: 4; the same number of draws finds better placements
    in more groupings."""
    learning_rate: float = 3e-3
    """Of Adam. Paper: 0.1, with which both softmaxes saturate within some tens of steps."""
    clip_norm: float = 1.0
    """Largest norm of a network's gradient. Paper: 1.0."""
    tanh_constant: float = 5.0
    """C of the logits C * tanh(l / T): how far from uniform the Placer can get. Paper: 5."""
    temperature: float = 1.0
    """T of the logits. Paper: 10, made for a learning rate of 0.1; released controller: 1."""
    baseline_decay: float = 0.9
    """Of the moving average of rewards that is the baseline. Released controller: 0.9."""
    failing_factor: float = 4.0
    """The signal for an infeasible placement, in step times of the slowest feasible one on a single
    device (if there is none, of the slowest at all). Released controller: 100 s for every graph."""
    entropy_bonus: float = 1e-2
    """Weight of the entropy of both softmaxes, which keeps the policy from collapsing onto the
    first good device. Not in the paper."""
    normalise_advantages: bool = True
    """Divides advantages by their moving standard deviation, so that one learning rate fits graphs
    of milliseconds and of seconds. Not in the paper."""
    aligned_decoder: bool = True
    """Gives the decoder the encoder's state of the group that it places, which attention alone
    would have to find by content. Not in the paper."""
    own_embeddings: bool = True
    """Adds to the embedding of each item and group one that is learned: from types, sizes and
    positions alone a small Grouper cannot tell apart the items of a good grouping. Not in the
    paper."""
    slow_device_penalty: float = 2.0
    """Subtracted from a device's logit per factor e by which it is slower than the fastest: most
    uniform draws would spend their time on the CPU. Not in the paper."""
    position_frequencies: int = 8
    """Sines and cosines of an op's topological position in its embedding, by which a small Grouper
    tells neighbouring parts of a deep graph. Not in the paper."""
    refine: float = 0.875
    """Share of placements that change the best one so far: a whole region goes to one device or
    group, drawn uniformly. Large-neighbourhood search, from which the networks do not learn;
    neighbourhoods.py chooses the sizes. Not in the paper."""
    imitate_best: float = 0.2
    """Weight of the likelihood of the best placement so far. Not in the paper."""
    stall_steps: int = 40
    """After so many steps with little gain training has stalled: the networks begin anew, from the
    best placement, with smaller clusters, and in the end with units; not without `imitate_best`.
    Not in the paper."""
    stall_gain: float = 5e-3
    """How much of the best step time is little. Not in the paper."""
    finer: int = 4
    """So many times as many clusters after a stall. Not in the paper."""
    cooling: float = 0.8
    """Of the learning rate and the entropy bonus, with every stall: what is sampled closes in on
    the best. Not in the paper."""
    own_draws_only: bool = False
    """Whether every placement is a fresh draw of the policy, as in the paper. Otherwise training
    starts from what `rollout` builds once, which is the answer where nothing better was drawn."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            kind: Any = type(field.default)
            value: Any = getattr(self, field.name)
            if kind is float and type(value) is int:
                value = float(value)
                object.__setattr__(self, field.name, value)
            if type(value) is not kind:
                raise OptionError(f"{field.name}: must be of type {kind.__name__}, got {value!r}")
            low = _MINIMA.get(field.name, 0.0)
            high = 1.0 if field.name in _SHARES else float("inf")
            if not low <= value <= high:
                limit = f"from {low:g} to {high:g}" if high == 1.0 else f"at least {low:g}"
                raise OptionError(f"{field.name}: must be {limit}, got {value!r}")
        if self.own_draws_only and (self.refine or self.imitate_best):
            raise OptionError("own_draws_only: needs the settings refine=0 and imitate_best=0")

    def replaced(self, values: Mapping[str, Any]) -> Settings:
        """With other values by name. Raises OptionError, which lists the valid names."""
        names = [field.name for field in dataclasses.fields(self)]
        for name in values:
            if name not in names:
                raise OptionError(f"unknown setting '{name}'; valid are {', '.join(names)}")
        return dataclasses.replace(self, **values)


_MINIMA: dict[str, float] = {
    "groups": 1,
    "grouper_hidden": 1,
    "placer_hidden": 1,
    "groupings": 1,
    "placements": 1,
    "learning_rate": 1e-9,
    "clip_norm": 1e-9,
    "tanh_constant": 1e-9,
    "temperature": 1e-9,
    "failing_factor": 1.0,
    "stall_steps": 1,
    "finer": 2,
}
_SHARES = {"baseline_decay", "refine", "stall_gain", "cooling"}

PRESETS: dict[str, Settings] = {
    "default": Settings(),
    "paper": Settings(
        clusters=0,
        groups=256,
        placer_hidden=512,
        groupings=1,
        placements=4,
        learning_rate=0.1,
        temperature=10.0,
        entropy_bonus=0.0,
        normalise_advantages=False,
        aligned_decoder=False,
        slow_device_penalty=0.0,
        position_frequencies=0,
        refine=0.0,
        imitate_best=0.0,
        own_embeddings=False,
        cooling=1.0,
        own_draws_only=True,
    ),
}


def get_settings(preset: str, values: Mapping[str, Any] | None = None) -> Settings:
    """Of a preset, with some values replaced. Raises OptionError."""
    if preset not in PRESETS:
        raise OptionError(f"preset: must be {' or '.join(PRESETS)}, got {preset!r}")
    return PRESETS[preset].replaced(values or {})
