"""Hyperparameters of the planners that learn, and their presets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hplacer_optimizer.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class _Checked:
    """Numbers within their limits. Raises OptionError, which names the field."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            kind: Any = type(field.default)
            value: Any = getattr(self, field.name)
            if kind is float and type(value) is int:
                value = float(value)
                object.__setattr__(self, field.name, value)
            if type(value) is not kind:
                raise OptionError(f"{field.name}: must be of type {kind.__name__}, got {value!r}")
            if kind is not tuple and not value >= _MINIMA.get(field.name, 0):
                raise OptionError(
                    f"{field.name}: must be at least {_MINIMA.get(field.name, 0):g}, got {value!r}"
                )
            if kind is not tuple and not value <= (most := _MAXIMA.get(field.name, math.inf)):
                raise OptionError(f"{field.name}: must be at most {most:g}, got {value!r}")

    def replaced(self, values: Mapping[str, Any]) -> Any:
        """With other values by name. Raises OptionError, which lists the valid names."""
        names = [field.name for field in dataclasses.fields(self)]
        for name in values:
            if name not in names:
                raise OptionError(f"unknown setting '{name}'; valid are {', '.join(names)}")
        return dataclasses.replace(self, **values)


@dataclass(frozen=True, kw_only=True)
class Settings(_Checked):
    """Of tables (hierarchical.py); the defaults are the preset "default"."""

    batch: int = 32
    """Placements drawn per step. Paper: 4."""
    schedule: int = 16_000
    """Placements of the first phase, in which the learning rate falls; it ends when little is
    gained any more."""
    finer_schedule: int = 10_000
    """The same of each further phase."""
    learning_rate: float = 0.2
    """Of Adam for both tables, at first. 0: the policy stays as it begins. Paper: 0.1."""
    last_rate: float = 0.3
    """What is left of it at the end of a phase. Paper: 1."""
    entropy_bonus: float = 0.01
    """Weight of the entropy of a group's device, at first; in the end it is 0. Paper: none."""
    most_advantage: float = 3.0
    """Advantages are cut there: one bad draw does not decide an update. Paper: none."""
    items: int = 2000
    """Groups are cut into about so many items, or into units where there are fewer. Paper: ops."""
    neighbours: int = 5
    """An item may draw its own group or one of so many that it exchanges the most bytes with; 0: no
    Grouper. Paper: each group."""
    near: bool = True
    """Whether these are neighbours; else they are drawn at random."""
    moved_items: float = 40.0
    """So many items are off their own group in a draw of the first logits."""
    off_one_device: float = 40.0
    """So many groups are elsewhere in a draw of first logits that are near one device."""
    random_groups: int = 256
    """Of hierarchical_random_grouping. Paper: 256."""
    learns_groups: bool = True
    """Whether the Grouper's logits change."""
    rao_blackwell: bool = True
    """Whether an item's device counts for the Grouper's gradient, not the group that it drew."""
    z_score: bool = True
    """Whether advantages are z-scores; else -sqrt(step time) over its moving average, as in the
    paper."""
    simulated: int = 5_000
    """Placements that are scored by the simulator before steps are measured."""
    race: bool = True
    """Whether several kinds of groups and first logits race; else the first one is taken."""
    finer: bool = True
    """Whether a policy with finer groups joins the race after each phase."""
    uniform: bool = False
    """Whether the first logits of a group are equal for all its devices, and no item moves."""


@dataclass(frozen=True, kw_only=True)
class NetworkSettings(_Checked):
    """Of networks (networks.py); the defaults are the preset "paper".

    Sources: Mirhoseini et al., "A Hierarchical Model for Device Placement" (ICLR 2018), sections 3
    and 4.1, and Google's released controller for the decay and the failing signal.
    """

    batch: int = 4
    """Placements drawn per step, in one grouping."""
    groups: int = 256
    """Groups that the Grouper forms."""
    grouper_hidden: int = 64
    """Hidden units of the Grouper."""
    placer_hidden: int = 512
    """LSTM units of the decoder; the two directions of the encoder have half of them each."""
    learning_rate: float = 0.1
    """Of Adam for the networks."""
    clip_norm: float = 1.0
    """Largest norm of a network's gradient."""
    tanh_constant: float = 5.0
    """C of the logits C * tanh(l / T)."""
    temperature: float = 10.0
    """T of the logits."""
    baseline_decay: float = 0.9
    """Of the moving average of rewards that is the baseline."""
    failing_factor: float = 4.0
    """What does not fit counts as so many times the slowest step that did. Controller: 100 s."""
    table_rate: float = 0.0
    """Of Adam for free logits that are added to those of the networks; 0: there are none."""


_MINIMA: dict[str, float] = {
    "batch": 1,
    "schedule": 1,
    "finer_schedule": 1,
    "items": 1,
    "random_groups": 1,
    "groups": 1,
    "grouper_hidden": 1,
    "placer_hidden": 2,
    "temperature": 1e-9,
    "failing_factor": 1,
}

_MAXIMA: dict[str, float] = {"neighbours": 254}  # a unit has one candidate more, in a byte

PRESETS: dict[str, Settings | NetworkSettings] = {
    "default": Settings(),
    "paper": NetworkSettings(),
    "paper_tables": NetworkSettings(learning_rate=1e-3, table_rate=0.2),
}


def get_settings(
    preset: str, values: Mapping[str, Any] | None = None
) -> Settings | NetworkSettings:
    """Of a preset, with some values replaced. Raises OptionError."""
    if preset not in PRESETS:
        raise OptionError(f"preset: must be {', '.join(PRESETS)}, got {preset!r}")
    chosen: Settings | NetworkSettings = PRESETS[preset].replaced(values or {})
    return chosen
