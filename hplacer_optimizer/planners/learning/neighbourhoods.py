"""How large a part of the best placement is decided anew, and how: by what has paid so far.

Adaptive large-neighbourhood search (Ropke and Pisinger, "An Adaptive Large Neighborhood Search
Heuristic for the Pickup and Delivery Problem with Time Windows", 2006): a choice is drawn in
proportion to the share of its proposals that improved the best placement. Large regions pay at
first, small ones close to the end, where large ones would only scatter what is sampled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ITEMS, GROUPS = 0, 1  # what is decided anew

_DECAY = 0.98  # per step
_PRIOR_WINS, _PRIOR_TRIES = 1.0, 20.0
_PRIOR_DECAY = 0.7  # per class of size: what pays for nothing should not scatter the samples
_COOLING = 0.95  # of the latter, with every stall
_LEAST = 0.1  # of the draws are by the prior alone


class Choice(NamedTuple):
    """Of a region."""

    kind: int  # ITEMS or GROUPS
    size: int  # 2^size to 2^(size + 1) - 1 nodes
    critical: bool  # it starts on the critical path


class Neighbourhoods:
    """Draws sizes of regions, 2^s to 2^(s+1) - 1 nodes, and where they start."""

    def __init__(self, most_items: int, most_groups: int) -> None:
        """`most_items`, `most_groups`: nodes of the largest region of a kind."""
        self._classes = [max(1, most.bit_length()) for most in (most_items, most_groups)]
        # Kind, size, where a region starts (anywhere, on the critical path).
        shape = (2, max(self._classes), 2)
        self.prior_decay = _PRIOR_DECAY
        self.wins = np.zeros(shape)
        self.tries = np.zeros(shape)

    def draw(self, kind: int, rng: Any) -> Choice:
        """Of a kind, ITEMS or GROUPS, by a NumPy generator."""
        classes = self._classes[kind]
        wins = self.wins[kind, :classes] + _PRIOR_WINS
        tries = self.tries[kind, :classes] + _PRIOR_TRIES
        of_size = self.prior_decay ** np.arange(classes)
        prior = np.broadcast_to(of_size[:, None], wins.shape)
        rate = wins / tries * prior
        chance = (1 - _LEAST) * rate / rate.sum() + _LEAST * prior / prior.sum()
        drawn = int(rng.choice(chance.size, p=chance.ravel() / chance.sum()))
        size, critical = (int(index) for index in np.unravel_index(drawn, chance.shape))
        return Choice(kind, size, bool(critical))

    def cool(self) -> None:
        """Prefers smaller regions from here on."""
        self.prior_decay *= _COOLING

    def learn(self, choices: NDArray[np.int32], improved: NDArray[np.bool_]) -> None:
        """Of choices int32[S, 3], and whether each improved the best placement."""
        self.wins *= _DECAY
        self.tries *= _DECAY
        np.add.at(self.tries, tuple(choices.T), 1)
        np.add.at(self.wins, tuple(choices[improved].T), 1)
