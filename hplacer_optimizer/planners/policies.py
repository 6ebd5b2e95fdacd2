"""How rollouts choose devices: policies, with weights set by hand.

A policy scores pairs (item, device); `cc/engine/rollout/placement_policy.h` says what its features
mean. A portfolio is a list of chains to try, each a policy and a kind of items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How a rollout chooses devices.

    Attributes:
        weights: of features, by name (`_engine.ROLLOUT_FEATURES`); of others 0. All features are
            nanoseconds; the lowest sum wins.
        is_lazy: items wait for an idle device, and the one with the longest way to the end of the
            step is decided first. Otherwise each is decided as soon as its inputs are computed.
    """

    weights: Mapping[str, float]
    is_lazy: bool = False

    def row(self) -> list[float]:
        """As `_engine.rollout_search` takes it."""
        weights = [float(self.weights.get(name, 0.0)) for name in _engine.ROLLOUT_FEATURES]
        return [*weights, float(self.is_lazy)]


@dataclass(frozen=True, kw_only=True)
class Portfolio:
    """Chains in the order in which they are tried.

    Attributes:
        policies: at least one.
        chains: pairs of a policy's index and its kind of items (`_engine.ROLLOUT_ITEMS`).
    """

    policies: tuple[Policy, ...]
    chains: tuple[tuple[int, str], ...]

    def rows(self) -> NDArray[np.float64]:
        """float64[policies, ...], as `_engine.rollout_search` takes them."""
        return np.array([policy.row() for policy in self.policies])

    def chain_table(self) -> NDArray[np.int32]:
        """int32[chains, 2], likewise."""
        kinds = _engine.ROLLOUT_ITEMS
        return np.array([(policy, kinds.index(items)) for policy, items in self.chains], np.int32)


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

# Chosen one by one on generated problems and small training graphs: each lowers the mean step the
# most, given those before it. All twenty leave searches of a second for 10,000 ops less time for
# sweeps (docs/results/planners.md).
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
