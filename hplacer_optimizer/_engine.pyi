"""Types of the native planning engine, built from python/engine_*.cc and cc/engine.

n ops, T outputs, m devices of K kinds, L links, E data edges, C control edges, A allowed devices.
Arrays named `*_ptr` are CSR offsets. Properties that are arrays are read-only views.
"""

from collections.abc import Callable, Collection
from io import BufferedIOBase
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Bool = NDArray[np.bool_]
_Int32 = NDArray[np.int32]
_Float64 = NDArray[np.float64]
_Int64 = NDArray[np.int64]

class Problem:
    """One training step and one machine, checked and immutable."""

    def __init__(
        self,
        *,
        name: str,
        device_kinds: list[str],  # [K]
        device_names: list[str],  # [m]
        device_kind: _Int32,  # [m] index into device_kinds
        device_memory_bytes: _Int64,  # [m]
        device_slots: _Int32,  # [m]
        link_src: _Int32,  # [L]
        link_dst: _Int32,  # [L]
        link_channel: list[str],  # [L]
        link_latency_ns: _Int64,  # [L]
        link_bytes_per_s: _Int64,  # [L]
        op_names: list[str],  # [n]
        op_types: list[str],  # [n]
        cost_ns: _Int64,  # [n, K], -1: no kernel
        output_ptr: _Int64,  # [n + 1]
        output_bytes: _Int64,  # [T]
        output_alias_src: _Int32,  # [T] source op, -1: no alias, -2: persistent memory
        output_alias_output: _Int32,  # [T] output of the source op
        temp_bytes: _Int64,  # [n]
        persistent_bytes: _Int64,  # [n]
        edges: _Int32,  # [E, 3] (src, output, dst)
        control_edges: _Int32,  # [C, 2] (src, dst)
        allowed_ptr: _Int64,  # [n + 1]
        allowed_device: _Int32,  # [A]
        allowed_given: _Bool,  # [n] False: every device with a kernel is allowed
        colocation_group: _Int32,  # [n] index into colocation_group_names, -1: none
        colocation_group_names: list[str],
        same_as: _Int32 | None = None,  # [n] the first op that is the same constant, -1: none
        default_device: _Int32 | None = None,  # [n]
        order_op: _Int32 | None = None,  # [N] ops of the nodes by which TensorFlow orders ops
        order_input_ptr: _Int64 | None = None,  # [N + 1]
        order_inputs: _Int32 | None = None,  # [I, 2] (node, output), -1: only waits, comes last
        order_targets: _Int32 | None = None,  # nodes that are fetched
        device_cores: list[str] | None = None,  # [m] devices of one name share slots, "": its own
        device_start_ns: _Int64 | None = None,  # [m] before it, no op starts on the device
        device_turn_ns: _Int64 | None = None,  # [m] how long transfers' work waits for a slot
        device_cold_ns: _Int64 | None = None,  # [m] how much longer it takes after ops
        device_launch_ns: _Int64 | None = None,  # [m] to launch an op there, ahead of its start
        launch_seed: int = 0,  # draws the order of launches that nobody knows
        inter_op_threads: int = 16,  # that run ops at once, of the host of each task
        link_send_ns: _Int64 | None = None,  # [L] work of a transfer at its source
        link_send_bytes_per_s: _Int64 | None = None,  # [L] 0: bytes are no work
        link_receive_ns: _Int64 | None = None,  # [L] work of a transfer at its destination
        link_receive_bytes_per_s: _Int64 | None = None,  # [L] 0: bytes are no work
    ) -> None:
        """Raises ProblemError with the path of the faulty field, as in a problem file."""

    def replace(self, **changes: Any) -> Problem:
        """A problem with other values for some of the arguments above; raises as they do."""

    def _repr_html_(self) -> str: ...
    def __copy__(self) -> Problem: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> Problem: ...
    def __getstate__(self) -> dict[str, Any]: ...
    def __setstate__(self, keywords: dict[str, Any]) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def num_ops(self) -> int: ...
    @property
    def num_devices(self) -> int: ...
    @property
    def num_units(self) -> int: ...
    @property
    def units(self) -> _Int32:
        """int32[n]: the unit of each op; a colocation group is one unit, as is any other op."""

    @property
    def candidate_ptr(self) -> _Int32:
        """int32[U + 1]: the candidates of unit u are `candidates[ptr[u]:ptr[u + 1]]`."""

    @property
    def candidates(self) -> _Int32:
        """Devices where every op of a unit is allowed and has a kernel, ascending."""

    @property
    def device_kinds(self) -> list[str]: ...
    @property
    def device_names(self) -> list[str]: ...
    @property
    def device_kind(self) -> _Int32: ...
    @property
    def device_memory_bytes(self) -> _Int64: ...
    @property
    def device_slots(self) -> _Int32: ...
    @property
    def device_cores(self) -> list[str]:
        """Devices of one name share their slots; "": the device has its own."""

    @property
    def device_start_ns(self) -> _Int64:
        """int64[m]: before it, no op starts on the device."""

    @property
    def device_turn_ns(self) -> _Int64:
        """int64[m]: how long transfers' work waits at most, for each op that could run."""

    @property
    def device_cold_ns(self) -> _Int64:
        """int64[m]: how much longer transfers' work takes at most after ops."""

    @property
    def launch_seed(self) -> int: ...
    @property
    def inter_op_threads(self) -> int: ...
    @property
    def device_launch_ns(self) -> _Int64:
        """int64[m], to launch an op there; 0: it is not launched ahead."""

    @property
    def device_pool(self) -> _Int32:
        """int32[m]: equal for devices that share their slots; numbered from 0."""

    @property
    def link_src(self) -> _Int32: ...
    @property
    def link_dst(self) -> _Int32: ...
    @property
    def link_channel(self) -> list[str]: ...
    @property
    def link_latency_ns(self) -> _Int64: ...
    @property
    def link_bytes_per_s(self) -> _Int64: ...
    @property
    def link_send_ns(self) -> _Int64:
        """int64[L]: what a transfer takes of a slot of its source, beside the work on its bytes."""

    @property
    def link_send_bytes_per_s(self) -> _Int64:
        """int64[L]: the rate at which its source works on the bytes; 0: they are no work."""

    @property
    def link_receive_ns(self) -> _Int64:
        """int64[L]: what a transfer takes of a slot of its destination, beside its bytes."""

    @property
    def link_receive_bytes_per_s(self) -> _Int64:
        """int64[L]: the rate at which its destination works on the bytes; 0: they are no work."""

    @property
    def channel_names(self) -> list[str]:
        """Distinct channels in the order in which links first name them."""

    @property
    def op_names(self) -> list[str]: ...
    @property
    def op_types(self) -> list[str]: ...
    @property
    def cost_ns(self) -> _Int64: ...
    @property
    def output_ptr(self) -> _Int64: ...
    @property
    def output_bytes(self) -> _Int64: ...
    @property
    def output_alias_src(self) -> _Int32: ...
    @property
    def output_alias_output(self) -> _Int32: ...
    @property
    def temp_bytes(self) -> _Int64: ...
    @property
    def persistent_bytes(self) -> _Int64: ...
    @property
    def edges(self) -> _Int32:
        """int32[E, 3]: distinct (src, output, dst), sorted."""

    @property
    def control_edges(self) -> _Int32:
        """int32[C, 2]: distinct (src, dst), sorted."""

    @property
    def allowed_ptr(self) -> _Int64: ...
    @property
    def allowed_device(self) -> _Int32: ...
    @property
    def allowed_given(self) -> _Bool: ...
    @property
    def colocation_group(self) -> _Int32: ...
    @property
    def colocation_group_names(self) -> list[str]: ...
    @property
    def same_as(self) -> _Int32:
        """int32[n]: the first op that is the same constant; -1: none."""
    @property
    def default_device(self) -> _Int32 | None:
        """int32[n]: where TensorFlow's own Placer would put each op; None: not known."""
    @property
    def order_op(self) -> _Int32:
        """int32[N]: ops of the nodes by which TensorFlow orders ops; empty: by their numbers."""
    @property
    def order_input_ptr(self) -> _Int64: ...
    @property
    def order_inputs(self) -> _Int32:
        """int32[I, 2]: (node, output that is read); -1: the node is only waited for."""
    @property
    def order_targets(self) -> _Int32: ...

def read_problem(file: BufferedIOBase) -> Problem:
    """Reads an uncompressed problem file by `file.readinto`.

    Raises ProblemError with the path of the faulty field, and whatever `file` raises.
    """

def write_problem(problem: Problem, file: BufferedIOBase) -> None:
    """Writes a problem file; `file.write` must take all bytes that it is given."""

class StepTrace:
    """One simulated step, as `simulate` returns it."""

    def _repr_html_(self) -> str: ...
    def __copy__(self) -> StepTrace: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> StepTrace: ...
    def __getstate__(self) -> tuple[Problem, _Int32, int]: ...
    def __setstate__(self, made_of: tuple[Problem, _Int32, int]) -> None: ...
    @property
    def problem(self) -> Problem:
        """What was simulated."""

    @property
    def placement(self) -> _Int32:
        """int32[n]: where each op was."""

    @property
    def has_trace(self) -> bool:
        """Whether every op has a kernel on its device and every transfer a link."""

    @property
    def feasible(self) -> bool: ...
    @property
    def infeasible_because(self) -> list[str]:
        """Sentences that name the op, device or link and what is missing; empty if feasible."""

    @property
    def makespan_ns(self) -> int | None:
        """The step time; None without a trace."""

    @property
    def start_ns(self) -> _Int64 | None:
        """int64[n], or None without a trace."""

    @property
    def finish_ns(self) -> _Int64 | None:
        """int64[n], or None without a trace."""

    @property
    def transfers(self) -> NDArray[np.void]:
        """Structured array in the order (src_op, output, dst_device).

        Fields: int32 src_op, output (-1: a control signal), src_device, dst_device, channel (index
        into Problem.channel_names); int64 issue_ns (the op has finished), sent_ns, start_ns (on the
        channel), carried_ns, finish_ns (received), bytes.
        """

    @property
    def peak_bytes(self) -> _Int64:
        """int64[m]; zeros without a trace."""

    def memory_timeline(self) -> NDArray[np.void]:
        """Every change of what a device holds, in order; empty without a trace.

        Fields: int64 time_ns, int32 device, int64 bytes (held on that device after the change).
        Simulates the step once more.
        """

    def peak_holders(self, device: int) -> list[tuple[int, str, int]]:
        """What a device holds when its peak is first reached, as (op, what, bytes).

        Largest first; `what` is "persistent", "temp", "output K" or "copy of output K". Empty
        without a trace. Simulates the step once more. Raises ProblemError for no such device.
        """

LAUNCH_ORDERS: int  # of which the worst counts, where the order of launches is drawn

def simulate(problem: Problem, placement: _Int32, launch_orders: int = ...) -> StepTrace: ...
def simulate_batch(
    problem: Problem, placements: _Int32, threads: int, launch_orders: int = ...
) -> tuple[_Int64, _Bool, _Int64]: ...
def op_places(problem: Problem, placement: _Int32) -> _Int32:
    """int32[n]: the place of each op in TensorFlow's order (cc/engine/problem/op_order.h)."""

class LowerBound:
    """A step time that no feasible placement beats, and why."""

    @property
    def ns(self) -> int | None:
        """Nanoseconds; None if it is proved that no placement is feasible."""

    @property
    def term(self) -> str | None:
        """What binds, such as "critical path through decoder/MatMul" or "load of gpu"."""

    @property
    def terms(self) -> dict[str, int]:
        """All terms by falling nanoseconds."""

    @property
    def infeasible_because(self) -> list[str]:
        """Sentences; empty unless it is proved that no placement is feasible."""

def lower_bound(problem: Problem) -> LowerBound:
    """Proves a step time that no feasible placement of the problem can beat."""

def check_candidates(problem: Problem) -> None:
    """Raises InfeasibleError, which names the op and the devices, if a unit has no candidate."""

# All of these raise InfeasibleError if a unit has no candidate.
def place_etf(problem: Problem) -> _Int32: ...
def place_heft(problem: Problem) -> _Int32: ...
def place_sct(problem: Problem, favourite_child: _Int32) -> _Int32:
    """`favourite_child`: int32[n], an op or -1 for each op."""

def place_topo(problem: Problem, devices: list[int]) -> _Int32:
    """`devices`: which to fill, in order."""

def mean_costs(problem: Problem) -> tuple[_Int64, _Int64, int]:
    """Means over candidates and links in ns: of ops [n], tensors [T], a control signal."""

def cluster_units(problem: Problem, sizes: list[int], clusters_per_device: int) -> list[_Int32]:
    """For each of the sizes, falling: the cluster of each unit, int32[U], by mean position.

    `clusters_per_device`, at least 1, bounds the work of a cluster: see
    cc/engine/search/unit_clusters.h. Coarser clusters are unions of finer ones. Raises
    InfeasibleError if a unit has no candidate.
    """

# cc/engine/rollout/placement_policy.h and rollout_search.h
ROLLOUT_FEATURES: tuple[str, ...]  # of a pair (item, device)
ROLLOUT_ITEMS: tuple[str, ...]  # kinds of items

def rollout_search(
    problem: Problem,
    scope: _Int32,
    policies: NDArray[np.float64],
    chains: _Int32,
    *,
    seed: int,
    threads: int,
    seconds: float | None,
    max_evaluations: int | None,
    patience: int | None,
    passes: int,
    sweeps: bool,
    on_progress: Callable[[int, int | None], bool],
) -> tuple[_Int32, int, bool]:
    """Builds placements along the step, and decides parts of the best one again.

    `scope`: labels from 0, shape [U] or empty; units of one must have the same candidates.
    `policies`: [count, features + 1]: weights of ROLLOUT_FEATURES, then whether the policy is lazy.
    `chains`: [count, 2], a policy and one of ROLLOUT_ITEMS, in the order in which they are tried.
    `on_progress(evaluations, makespan_ns or None)` says whether to go on. Returns (placement,
    evaluations, whether time or on_progress ended it). Raises InfeasibleError if a unit has no
    candidate.
    """

def local_search(
    problem: Problem,
    starts: _Int32,
    *,
    seed: int,
    threads: int,
    seconds: float | None,
    max_evaluations: int | None,
    patience: int | None,
    until_stalled: bool,
    without: Collection[str],
    on_progress: Callable[[int, int | None], bool],
) -> tuple[_Int32, int, bool, bool]:
    """Searches for a fast placement from many starts, among them those of shape [count, n].

    `until_stalled`: it ends when little is gained any more (cc/engine/search/search_clock.h).
    `without`: parts of the search that are left out, of "screen" and "other_starts".
    `on_progress(evaluations, makespan_ns or None)` says whether to go on. Returns
    (placement, evaluations, whether time or on_progress ended it, whether it stalled). Raises
    InfeasibleError if a unit has no candidate.
    """

class RandomMoves:
    """Draws the moves that `local_search` makes, for searches that judge by other measures.

    `clusterings`: labels from 0 of shape [count, U], whose clusters may move as one. Raises
    InfeasibleError if a unit has no candidate.
    """

    def __init__(self, problem: Problem, clusterings: _Int32) -> None: ...
    def draw(self, placement: _Int32, count: int, seed: int) -> _Int32:
        """At most `count` placements, of shape [k, n], each one move away from one of shape [n].

        Moves that would change nothing are left out. The same arguments give the same moves.
        """

# cc/engine/learning/table_policy.h

class TablePolicy:
    """Grouper and Placer as tables of logits: U units, N items of K choices, G groups, m devices.

    `item_of_unit`: int32[U]. `candidates`: int32[N, K], the groups that an item may draw, or -1.
    `placer_logits`: float64[G, m], -inf where a group may not run. `grouper_logits`: float64[N, K].
    Raises ProblemError if they do not fit each other or the problem.
    """

    def __init__(
        self,
        problem: Problem,
        item_of_unit: _Int32,
        candidates: _Int32,
        placer_logits: NDArray[np.float64],
        grouper_logits: NDArray[np.float64],
    ) -> None: ...
    def draw(self, seed: int, count: int, threads: int) -> _Int32:
        """So many placements, int32[count, n]; the same for any number of threads."""

    def learn(
        self,
        advantages: NDArray[np.float64],
        *,
        placer_rate: float,
        grouper_rate: float,
        entropy_bonus: float,
        rao_blackwell: bool,
        threads: int,
    ) -> None:
        """Follows the policy gradient of the last batch, by Adam; advantages: float64[count]."""

    @property
    def entropy(self) -> float:
        """The mean entropy of a group's device, in nats."""

    @property
    def placer(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Logits [G, m], and Adam's means of the gradient and of its square."""

    @property
    def grouper(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """The same of the Grouper, [N, K]."""

    @property
    def updates(self) -> int:
        """How often it has learned."""

    def restore(
        self,
        placer: tuple[NDArray[np.float64], ...],
        grouper: tuple[NDArray[np.float64], ...],
        updates: int,
    ) -> None:
        """What `placer`, `grouper` and `updates` were. Raises ProblemError for other sizes."""

def missing_links(problem: Problem, placements: _Int32) -> _Int64:
    """Of each placement, int32[count, n]: edges between devices that have no link."""
