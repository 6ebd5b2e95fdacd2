"""Arrays and JSON in one compressed text, which the page's JavaScript unpacks (`data.js`).

    base64( zlib( uint32 size of the JSON | JSON | arrays ) )

In the JSON an array is {"type": "Uint16", "at": 24, "length": 3}. It holds the lowest byte of all
values, then the next one, and so on, since bytes of one significance compress best together. With
"delta": true it has the first value and the differences from then on, for values that rise.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.errors import ProblemError

_TYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float64")
EXACT = 1 << 53  # JavaScript's numbers are exact below


class Columns:
    """Collects arrays, then packs them beside a document that refers to them."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, values: NDArray[np.integer[Any]], *, delta: bool = False) -> dict[str, Any]:
        """Keeps a flat array; returns what stands for it in the document."""
        if len(values) and not -EXACT < int(values.min()) <= int(values.max()) < EXACT:
            raise ProblemError(
                "a report shows no times of 104 days and no sizes of 8 PiB: numbers of 2**53 or "
                "more are not exact in a browser"
            )
        stored = np.diff(values.astype(np.int64), prepend=0) if delta else values
        low, high = (int(stored.min()), int(stored.max())) if len(stored) else (0, 0)
        name = next(name for name in _TYPES if _holds(name, low, high))
        column = {"type": name.capitalize(), "at": len(self._bytes), "length": len(stored)}
        dtype = np.dtype(name).newbyteorder("<")
        self._bytes += stored.astype(dtype).view("uint8").reshape(-1, dtype.itemsize).T.tobytes()
        return {**column, "delta": True} if delta else column

    def pack(self, document: dict[str, Any]) -> str:
        """The text for the page."""
        head = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        data = struct.pack("<I", len(head)) + head + self._bytes
        return base64.b64encode(zlib.compress(data, 9)).decode("ascii")


def _holds(name: str, low: int, high: int) -> bool:
    if name == "float64":
        return True
    limits = np.iinfo(name)
    return int(limits.min) <= low and high <= int(limits.max)
