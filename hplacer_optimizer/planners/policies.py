"""How rollouts choose devices: policies set by hand, and files of trained ones.

A policy scores pairs (item, device); `cc/engine/rollout/placement_policy.h` says what its features
and contexts mean. A portfolio is a list of chains to try, each a policy and a kind of items.

    format: hplacer-policy/1
    policies:
    - {weights: {wait: 1, apart: 0.8}, gains: {apart: {traffic: 0.4}}, lazy: false}
    chains:
    - {policy: 0, items: large_clusters}
    training: {command: hplacer policy train ..., minutes: 30}

`training` is free text by key: how the file was made.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer.errors import DocumentError, PolicyError
from hplacer_optimizer.support.document import Field, parse_yaml
from hplacer_optimizer.support.new_file import new_file

FORMAT = "hplacer-policy/1"
TRAINED_FILE = Path(__file__).with_name("trained_policies.yaml")
_LARGEST = 1e6  # of weights
_LARGEST_EXPONENT = 30.0  # of the sum of a weight's gains
_MOST_POLICIES, _MOST_CHAINS = 1_000, 10_000


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How a rollout chooses devices.

    Attributes:
        weights: of features, by name (`_engine.ROLLOUT_FEATURES`); of others 0. All features are
            nanoseconds; the lowest sum wins.
        gains: by feature, then by context (`_engine.ROLLOUT_CONTEXTS`), of others 0: a weight is
            multiplied by the exponential of its gains times the contexts, which lie between -1
            and 1.
        is_lazy: items wait for an idle device, and the one with the longest way to the end of the
            step is decided first. Otherwise each is decided as soon as its inputs are computed.
    """

    weights: Mapping[str, float]
    gains: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    is_lazy: bool = False

    def row(self) -> list[float]:
        """As `_engine.rollout_search` takes it."""
        features, contexts = _engine.ROLLOUT_FEATURES, _engine.ROLLOUT_CONTEXTS
        weights = [float(self.weights.get(name, 0.0)) for name in features]
        gains = [
            float(self.gains.get(name, {}).get(context, 0.0))
            for name in features
            for context in contexts
        ]
        return [*weights, *gains, float(self.is_lazy)]


@dataclass(frozen=True, kw_only=True)
class Portfolio:
    """Chains in the order in which they are tried.

    Attributes:
        policies: at least one.
        chains: pairs of a policy's index and its kind of items (`_engine.ROLLOUT_ITEMS`).
        training: how it was made, by key; empty for those set by hand.
    """

    policies: tuple[Policy, ...]
    chains: tuple[tuple[int, str], ...]
    training: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_all(cls, *policies: Policy) -> Portfolio:
        """Each policy with each kind of items, all with units first."""
        chains = [(i, items) for items in _engine.ROLLOUT_ITEMS for i in range(len(policies))]
        return cls(policies=policies, chains=tuple(chains))

    def rows(self) -> NDArray[np.float64]:
        """float64[policies, ...], as `_engine.rollout_search` takes them."""
        return np.array([policy.row() for policy in self.policies])

    def chain_table(self) -> NDArray[np.int32]:
        """int32[chains, 2], likewise."""
        kinds = _engine.ROLLOUT_ITEMS
        return np.array([(policy, kinds.index(items)) for policy, items in self.chains], np.int32)


EARLIEST_FINISH = Portfolio.of_all(Policy(weights={"wait": 1, "late": 1, "work": 1}))
"""HEFT's rule, for comparison: no other reason counts."""

_SET_BY_HAND = (
    # Balanced. Waiting is the unit of all weights. Tensors between devices cost nearly what they
    # take, more so to neighbours that were there in the last pass: they know where they are. Work
    # at the same time on the same device costs one and a half times what it is, since some of it
    # will be late and hold up others. A full memory is avoided gently; a stronger weight tears
    # apart what belongs together.
    Policy(
        weights={
            "wait": 1,
            "late": 0.6,
            "critical_wait": 0.2,
            "apart": 0.85,
            "apart_before": 1.6,
            "crowding": 1.5,
            "scope_apart": 0.05,
            "moved": 0.1,
            "full": 0.15,
        }
    ),
    # The longest way first: what it needs is decided before what could run elsewhere, so that late
    # inputs count in full. What has moved once stays, which calms the later passes.
    Policy(
        is_lazy=True,
        weights={
            "wait": 1,
            "late": 1.2,
            "critical_wait": 0.3,
            "work": 0.7,
            "transfer": 0.2,
            "apart": 0.5,
            "critical_apart": 0.1,
            "crowding": 2.8,
            "moved": 0.5,
            "full": 0.2,
        },
    ),
    # Close to earliest finish, for machines whose links cost little.
    Policy(
        weights={
            "wait": 1,
            "late": 0.75,
            "critical_wait": 0.25,
            "work": 0.5,
            "transfer": 0.2,
            "apart": 0.12,
            "apart_before": 0.3,
            "critical_apart": 0.2,
            "crowding": 0.15,
            "full": 0.2,
        }
    ),
    # Spreads: for wide steps, and for tight memories.
    Policy(
        weights={
            "wait": 1,
            "late": 1.7,
            "work": 2,
            "apart": 0.06,
            "critical_apart": 0.4,
            "crowding": 8,
            "scope_apart": 0.3,
            "moved": 0.1,
            "full": 1.8,
        }
    ),
)

# Chosen one by one on training problems (training/selection.py). All twenty leave searches of a
# second for 10,000 ops less time for sweeps (docs/results/benchmarks.md).
BY_HAND = Portfolio(
    policies=_SET_BY_HAND,
    chains=(
        (2, "large_clusters"),
        (0, "large_clusters"),
        (2, "units"),
        (1, "scopes"),
        (1, "small_clusters"),
        (2, "scopes"),
        (1, "large_clusters"),
        (3, "scopes"),
    ),
)


@functools.cache
def trained() -> Portfolio:
    """The portfolio that is shipped. Raises PolicyError if its file is damaged or gone."""
    return load_portfolio(TRAINED_FILE)


def load_portfolio(path: str | os.PathLike[str]) -> Portfolio:
    """Reads a policy file. Raises PolicyError, which names the field and the file."""
    try:
        return _portfolio(parse_yaml(Path(path).read_bytes()))
    except OSError as error:
        raise PolicyError(f"policy file '{path}' cannot be read: {error.strerror}") from None
    except DocumentError as error:
        raise PolicyError(f"{error} (in file '{path}')") from None


def save_portfolio(portfolio: Portfolio, path: str | os.PathLike[str]) -> None:
    """Writes a policy file. A reader sees the old file or the new one, never a part."""
    lines = [f"format: {FORMAT}", "policies:"]
    for policy in portfolio.policies:
        gains = {name: _without_zeros(of_context) for name, of_context in policy.gains.items()}
        fields = {
            "weights": _without_zeros(policy.weights),
            "gains": {name: of_context for name, of_context in gains.items() if of_context},
            "lazy": policy.is_lazy,
        }
        lines.append(f"- {json.dumps(fields)}")
    lines.append("chains:")
    lines += [f"- {{policy: {policy}, items: {items}}}" for policy, items in portfolio.chains]
    if portfolio.training:
        lines.append("training:")
        lines += [f"  {key}: {json.dumps(value)}" for key, value in portfolio.training.items()]
    with new_file(path) as file:
        file.write(("\n".join(lines) + "\n").encode())


def _without_zeros(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.5g}") for name, value in values.items() if value}


# ---- reading ----


def _portfolio(document: Field) -> Portfolio:
    fields = document.record(("format", "policies", "chains"), ("training",))
    if (name := fields["format"].text()) != FORMAT:
        raise fields["format"].error(f"{name!a:.80} is not supported, this version reads {FORMAT}")
    policies = tuple(_policy(entry) for entry in _some(fields["policies"], _MOST_POLICIES))
    chains = []
    for entry in _some(fields["chains"], _MOST_CHAINS):
        record = entry.record(("policy", "items"))
        items = record["items"].text()
        if items not in _engine.ROLLOUT_ITEMS:
            kinds = ", ".join(_engine.ROLLOUT_ITEMS)
            raise record["items"].error(f"unknown kind {items!a:.80}; the kinds are {kinds}")
        chains.append((record["policy"].whole_number(0, len(policies) - 1), items))
    training = fields["training"].mapping() if "training" in fields else {}
    return Portfolio(
        policies=policies,
        chains=tuple(chains),
        training={key: value.text() for key, value in training.items()},
    )


def _some(entries: Field, most: int) -> list[Field]:
    found = entries.sequence()
    if not 1 <= len(found) <= most:
        raise entries.error(f"has {len(found)} entries, must have 1 to {most}")
    return found


def _policy(entry: Field) -> Policy:
    fields = entry.record(("weights",), ("gains", "lazy"))
    gains = {}
    for name, of_context in _named(fields.get("gains"), _engine.ROLLOUT_FEATURES).items():
        gains[name] = {
            context: _number(value, _LARGEST_EXPONENT)
            for context, value in _named(of_context, _engine.ROLLOUT_CONTEXTS).items()
        }
        if sum(map(abs, gains[name].values())) > _LARGEST_EXPONENT:
            raise of_context.error(f"gains of more than {_LARGEST_EXPONENT:.0f} in all")
    return Policy(
        weights={
            name: _number(value, _LARGEST)
            for name, value in _named(fields["weights"], _engine.ROLLOUT_FEATURES).items()
        },
        gains=gains,
        is_lazy="lazy" in fields and fields["lazy"].boolean(),
    )


def _named(entry: Field | None, names: tuple[str, ...]) -> dict[str, Field]:
    fields = entry.mapping() if entry is not None else {}
    for name, value in fields.items():
        if name not in names:
            raise value.error(f"unknown; this version has {', '.join(names)}")
    return fields


def _number(entry: Field, largest: float) -> float:
    try:
        number = float(entry.text())
    except ValueError:
        number = math.nan
    if not abs(number) <= largest:
        raise entry.error(f"expected a number of at most {largest:g}, found {entry.value!a:.80}")
    return number
