"""Whether HPLACER_DISABLE switches the optimizer off in this process, whatever the options say."""

from __future__ import annotations

import os
from collections.abc import Mapping


def is_switched_off(environment: Mapping[str, str] = os.environ) -> bool:
    """As cc/tf/pass.cc has it: by any value but "" and "0"."""
    return environment.get("HPLACER_DISABLE", "") not in ("", "0")
