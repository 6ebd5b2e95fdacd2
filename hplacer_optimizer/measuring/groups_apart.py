"""Where a measured step has NoOps that group two ops: where a plan has them.

See `cc/tf/groups_apart.h` for what that is good for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GroupOfTwo:
    """A `NoOp` of a `tf.Graph` and its neighbours, all of them `tf.Operation`s."""

    op: Any
    neighbours: Sequence[Any]
    """The two that it waits for, and their Identities that wait for it."""

    def set_apart(self, device_names: Sequence[str]) -> None:
        """Moves it to the first device of its task where none of its neighbours is.

        It stays if these are all on one device, or on all devices.
        """
        taken = {op.device for op in self.neighbours}
        task = _task_of(self.op.device)
        free = (name for name in device_names if _task_of(name) == task and name not in taken)
        if len(taken) > 1:
            self.op._set_device(next(free, self.op.device))


def find_groups(ops: Sequence[Any]) -> list[GroupOfTwo]:
    """Those of the operations of a step."""
    in_step = {op.name for op in ops}
    groups = []
    for op in ops:
        if op.type != "NoOp":
            continue
        sources = [source for source in op.control_inputs if source.name in in_step]
        readers = [reader for reader in op._control_outputs if reader.name in in_step]
        hands_on = all(r.type == "Identity" and r.inputs[0].op in sources for r in readers)
        if len(sources) == len(readers) == 2 and hands_on:
            groups.append(GroupOfTwo(op, [*sources, *readers]))
    return groups


def _task_of(device: str) -> str:
    return device.partition("/device:")[0]
