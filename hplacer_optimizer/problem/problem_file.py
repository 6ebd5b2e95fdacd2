"""Problem files: `*.hplacer.json` and `*.hplacer.json.gz`, format `hplacer-problem/2`.

A problem file lets a graph be planned, shared and studied without TensorFlow. Reading is strict:
an unknown key, a missing key, a wrong type or a value out of range is a ProblemError that starts
with the path of the faulty field (`ops[17].cost_ns: ...`) and names the file. JSON is read and
written by the native engine (`python/engine_problem_file.h`), in a stream; this module opens,
compresses and replaces the files.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import ProblemError
from hplacer_optimizer.support.formats import json_type
from hplacer_optimizer.support.new_file import new_file

__all__ = ["EXAMPLE_FILE", "Problem", "check_placement", "load_problem_file", "save_problem"]

EXAMPLE_FILE = Path(__file__).with_name("example.hplacer.json")

_GZIP_MAGIC = b"\x1f\x8b"


def load_problem_file(path: str | os.PathLike[str]) -> Problem:
    """Reads a problem file, gzip-compressed or not (told by its first bytes).

    Raises ProblemError, which names the field and the file, or OSError if it cannot be opened.
    """
    with open(path, "rb") as file:
        try:
            return _engine.read_problem(_decompressed(file))
        except ProblemError as error:
            raise ProblemError(f"{error} (in file '{os.fspath(path)}')") from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ProblemError(
                f"damaged gzip data: {error} (in file '{os.fspath(path)}')"
            ) from None


def save_problem(problem: Problem, path: str | os.PathLike[str]) -> None:
    """Writes a problem file, gzip-compressed if the name ends with `.gz`.

    The bytes depend on the problem only. A reader sees the old file or the new one, never a part.

    Args:
        problem: the graph and the machine.
        path: of the file, by custom `NAME.hplacer.json` or `NAME.hplacer.json.gz`.

    Raises:
        OSError: the file cannot be written.

    Example:
        >>> import hplacer_optimizer as hp
        >>> hp.save_problem(hp.load_problem("example"), "mine.hplacer.json.gz")
        >>> hp.load_problem("mine.hplacer.json.gz").num_ops
        9
    """
    with new_file(path, may_compress=True) as file:
        _engine.write_problem(problem, file)


def check_placement(
    problem: Problem, placement: Sequence[int] | NDArray[np.integer[Any]]
) -> NDArray[np.int32]:
    """Returns the placement as int32[n], one device index per op.

    Raises ProblemError for a wrong length, an index outside 0..m-1, or anything but integers.
    Constraints, kernels and memory are not looked at: that is the simulator's `feasible`.
    """
    if isinstance(placement, np.ndarray):
        if placement.dtype.kind not in "iu":
            _fail("placement", f"expected integers, got an array of {placement.dtype}")
        if placement.ndim != 1:
            _fail("placement", f"expected one dimension, got shape {placement.shape}")
    elif isinstance(placement, (str, bytes)) or not isinstance(placement, Sequence):
        _fail("placement", f"expected a list of device indices, got {json_type(placement)}")
    else:
        for i, device in enumerate(placement):
            if isinstance(device, bool) or not isinstance(device, (int, np.integer)):
                _fail(f"placement[{i}]", f"expected an integer, got {json_type(device)}")
    if len(placement) != problem.num_ops:
        _fail("placement", f"has {len(placement)} devices for {problem.num_ops} ops")
    devices = np.asarray(placement)
    outside = np.flatnonzero((devices < 0) | (devices >= problem.num_devices))
    if len(outside):
        _fail(
            f"placement[{outside[0]}]",
            f"device {devices[outside[0]]} is out of range, there are {problem.num_devices}",
        )
    return devices.astype(np.int32)


def _fail(path: str, message: str) -> NoReturn:
    raise ProblemError(f"{path}: {message}")


def _decompressed(file: io.BufferedReader) -> io.BufferedIOBase:
    if file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC):
        return gzip.GzipFile(fileobj=file, mode="rb")
    return file
