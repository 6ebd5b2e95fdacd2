"""GPU kernels for a TensorFlow that has none: placeholders that can be looked up, but not run.

Which ops may go to a GPU is the kernel registry's knowledge. The table beside this module holds the
registrations that the GPU build of TensorFlow has and the CPU build lacks (`tools/gpu_kernels.py`
writes it). Per op it lists groups of kernels: `device` type, arguments in `host` memory, `label`,
`priority`, the constrained `attrs` with the kind of their values (t: data type, s: string, b:
boolean, i: integer) and, one row per kernel, the allowed values of each.

For processes that capture a graph and then end: nothing here can be undone.
"""

from __future__ import annotations

import json
from pathlib import Path

from hplacer_optimizer.capture import native

_PROBE = "MatMul"  # has a GPU kernel in every GPU build, and in no CPU build


def path() -> Path:
    """Of the table."""
    return Path(__file__).with_suffix(".json")


def ensure_registered() -> str | None:
    """Registers the placeholders unless this TensorFlow has GPU kernels of its own.

    Returns the version of the TensorFlow whose kernels were taken, or None. Left out are ops,
    attributes and types that this TensorFlow does not know, and kernels that overlap a registered
    one.
    """
    from tensorflow.python.framework import kernels

    tf_module = native.load()
    known = kernels.get_registered_kernels_for_op(_PROBE).kernel
    if any(kernel.device_type == "GPU" for kernel in known):
        return None
    text = path().read_text(encoding="ascii")
    tf_module.register_placeholder_kernels(text)
    return str(json.loads(text)["tensorflow"])
