"""What kernels cost on emulated devices, told by name or type; what is not told is estimated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.capture import native

# Of nodes that TensorFlow adds beside those that a problem's ops cost: for sends, for the end of a
# wait across devices, and for AccumulateNV2.
_COPIED = "ReadVariableOp"  # by a copy within the GPU, which the emulator times as such
_ADDED_TYPES = ("_Send", "_HostSend", "Identity", "Assign", "AssignAdd")


def charge(
    problem: Problem,
    node_names: Sequence[str],
    node_op: NDArray[np.int32],
    is_repeated: NDArray[np.bool_],
) -> None:
    """From now on each node takes what its op costs in a problem, wherever it runs.

    Several nodes may be one op, such as a loop: the first of them takes its time, the others none.
    What TensorFlow adds to send a tensor, or puts in the place of an op, takes no time of its own.

    Args:
        problem: with costs by device kind, for the emulated machine.
        node_names: N names of graph nodes.
        node_op: the op of each, [N].
        is_repeated: the ops whose costs the problem leaves out, [n], since TensorFlow runs an equal
            one for them. Where it does run them, their kernels are estimated.
    """
    emulator = native.load_emulator()
    is_host = ["CPU" in name for name in problem.device_names]
    kind_of = {
        on_host: int(problem.device_kind[is_host.index(on_host)]) for on_host in (False, True)
    }
    launch = int(problem.device_launch_ns[is_host.index(False)])
    emulator.clear_costs()
    for added in _ADDED_TYPES:
        for on_host in (False, True):
            charge_type(added, run_ns=0, on_host=on_host)
    op_types = problem.op_types
    charged: set[int] = set()
    for name, op in zip(node_names, node_op.tolist(), strict=True):
        if is_repeated[op]:
            continue
        for on_host, kind in kind_of.items():
            cost_ns = int(problem.cost_ns[op, kind])
            runs_ns = max(cost_ns, 0) if op not in charged else 0
            launch_ns = launch if runs_ns and not on_host else 0
            if not on_host and op_types[op] == _COPIED:
                runs_ns = 0
            emulator.set_cost(
                name, on_host=on_host, by_type=False, launch_ns=launch_ns, run_ns=runs_ns
            )
        charged.add(op)


def charge_type(op_type: str, *, launch_ns: int = 0, run_ns: int, on_host: bool = False) -> None:
    """From now on ops of a type take this on a GPU, or on the host, unless `charge` says more."""
    native.load_emulator().set_cost(
        op_type, on_host=on_host, by_type=True, launch_ns=launch_ns, run_ns=run_ns
    )


def allocate_only(on: bool = True, *, least_bytes: int = 1) -> None:
    """Whether kernels on real numbers only allocate what they would write.

    Those that read and write at least so many bytes; what lies in host memory, integers and
    conditions are computed in any case.
    """
    native.load_emulator().allocate_only_from(least_bytes if on else -1)
