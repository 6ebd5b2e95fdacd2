"""Types of the native TensorFlow modules (`_tf_2_21`), built from python/tf_module.cc and cc/tf.

n ops, N graph nodes that a plan may move, K device kinds. Times in properties named `*_s` are
seconds. Arrays are copies. Load it with `native.load()`: it needs TensorFlow's symbols.
"""

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

_Bool = NDArray[np.bool_]
_Int32 = NDArray[np.int32]
_Int64 = NDArray[np.int64]
_UInt16 = NDArray[np.uint16]
_UInt32 = NDArray[np.uint32]
_UInt64 = NDArray[np.uint64]

class _StepArrays(TypedDict):
    """The captured step's share of the keywords of `Problem`."""

    op_names: list[str]
    op_types: list[str]
    cost_ns: _Int64
    output_ptr: _Int64
    output_bytes: _Int64
    output_alias_src: _Int32
    output_alias_output: _Int32
    temp_bytes: _Int64
    persistent_bytes: _Int64
    edges: _Int32
    control_edges: _Int32
    allowed_ptr: _Int64
    allowed_device: _Int32
    default_device: NotRequired[_Int32]  # [n], where TensorFlow's placer puts the op

class SessionDevice:
    """A device of the session, as TensorFlow describes it."""

    def __init__(
        self,
        *,
        name: str,
        type: str,
        description: str = "",
        memory_bytes: int = 0,
        may_plan: bool = True,
    ) -> None: ...
    @property
    def name(self) -> str:
        """In full, as "/job:localhost/replica:0/task:0/device:CPU:0"."""

    @property
    def type(self) -> str: ...
    @property
    def description(self) -> str:
        """TensorFlow's physical description, may be empty."""

    @property
    def memory_bytes(self) -> int: ...
    @property
    def may_plan(self) -> bool:
        """False: ops pinned here stay, no other op is sent here."""

class MachineRates:
    """The rates of a session's devices; kinds first, then one call per device in their order."""

    def __init__(self) -> None: ...
    def add_kind(
        self,
        name: str,
        type: str,
        flops_per_s: Mapping[str, float],
        memory_bytes_per_s: float,
        launch_overhead_ns: int,
        executor_overhead_ns: int = 1000,
    ) -> None:
        """`flops_per_s`: peaks by dtype ("float64", "float32", "bfloat16", "float16", "int8").

        float32 is required and stands for dtypes that are absent. `launch_overhead_ns` is of an op
        with a kernel; `executor_overhead_ns`, its share that an op without a kernel costs too, is
        at most that. Raises ValueError without float32.
        """
    def add_device(self, kind: int, /) -> None:
        """`kind` is an index into the kinds that were added."""

class PassReport:
    """What became of one graph."""

    @property
    def label(self) -> str:
        """As "function train_step" or "session graph"."""

    @property
    def outcome(self) -> Literal["planned", "loaded", "shared", "skipped", "failed"]: ...
    @property
    def reason(self) -> str:
        """Why it failed, was skipped, or was planned although there was a stored plan; or ""."""

    @property
    def fingerprint(self) -> str:
        """The key; empty if it was not reached."""

    @property
    def trains(self) -> bool:
        """Whether the step computes gradients."""

    @property
    def num_ops(self) -> int: ...
    @property
    def num_devices(self) -> int:
        """Devices that may be planned."""

    @property
    def num_placed(self) -> int:
        """Nodes whose device was requested."""

    @property
    def pass_s(self) -> float:
        """All of it; the others are its phases."""

    @property
    def step_s(self) -> float: ...
    @property
    def fingerprint_s(self) -> float: ...
    @property
    def lookup_s(self) -> float: ...
    @property
    def capture_s(self) -> float: ...
    @property
    def plan_s(self) -> float: ...
    @property
    def rewrite_s(self) -> float: ...

class StepCheck:
    """One optimised graph, compared with the plan that its nodes come from."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def fetches(self) -> list[str]: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_planned(self) -> int:
        """Nodes of the graph that the plan names."""

    @property
    def differences(self) -> list[tuple[str, str, str]]:
        """(node, planned device, actual device), at most 100."""

class _CapturedStep:
    """What both kinds of capture have in common, in the stub only."""

    @property
    def label(self) -> str:
        """As "function train_step" or "session graph"."""

    @property
    def num_ops(self) -> int:
        """Nodes of the step."""

    @property
    def fingerprint(self) -> str:
        """32 hex digits."""

    @property
    def fingerprint_parts(self) -> list[tuple[str, str]]: ...
    @property
    def arrays(self) -> _StepArrays: ...
    @property
    def op_signatures(self) -> list[str]:
        """[n], the keys of measured costs (cc/tf/op_signature.h); "" for loops and calls."""

    @property
    def is_static(self) -> _Bool:
        """bool[n], the ops that TensorFlow replaces by constants before a step."""

    @property
    def is_removed(self) -> _Bool:
        """bool[n], the ops that TensorFlow removes before a step."""

    @property
    def is_repeated(self) -> _Bool:
        """bool[n], the ops that are equal to one that TensorFlow runs for them."""

    @property
    def units(self) -> _Int32:
        """int32[n]"""

    @property
    def num_units(self) -> int: ...
    @property
    def node_names(self) -> list[str]:
        """[N]"""

    @property
    def node_hashes(self) -> _UInt64:
        """uint64[N]"""

    @property
    def node_ranks(self) -> _UInt32:
        """uint32[N], tells nodes of one hash apart."""

    @property
    def structure(self) -> int:
        """64 bits; nodes of one hash and rank correspond in graphs where this is equal."""

    @property
    def node_op(self) -> _Int32:
        """int32[N], the op that stands for the node."""

    @property
    def assumptions(self) -> list[str]:
        """What had to be assumed, one sentence each."""

class PlannerRequest(_CapturedStep):
    """What a waiting pass asks for. The first `finish_*` answers it, later ones are ignored."""

    @property
    def stage(self) -> Literal["lookup", "plan", "report"]:
        """Arrays, units and nodes are there at stage "plan" only."""

    @property
    def function(self) -> str:
        """Its name, as the eager runtime calls it; "": the graph of a session."""

    @property
    def trains(self) -> bool:
        """Whether the step computes gradients."""

    @property
    def entry(self) -> bytes:
        """The options: a serialised `RewriterConfig.CustomGraphOptimizer`."""

    @property
    def devices(self) -> list[SessionDevice]: ...
    @property
    def report(self) -> PassReport:
        """Of stage "report" only, which waits for no answer."""

    @property
    def is_abandoned(self) -> bool:
        """Nobody waits for the answer any more: the time limit has passed, or a signal came."""

    def finish_assigned(
        self,
        names: bytes | str,
        hashes: _UInt64,
        ranks: _UInt32,
        structure: int,
        devices: _UInt16,
        device_names: list[str],
        machine: MachineRates,
        /,
    ) -> None:
        """Answers with devices, an index into `device_names` per node; `names` joined by newlines.

        `ranks` may be empty: then alike nodes are not told apart.
        The machine is needed even so: the plan may not fit, and then the pass asks for another.
        """

    def finish_missing(self, machine: MachineRates, /) -> None:
        """Answers a lookup: there is no plan, so make one for this machine."""

    def finish_kept(self, reason: str, /) -> None:
        """Answers "TensorFlow's own placement stays", and why."""

    def finish_declined(self, reason: str, /) -> None:
        """Answers "leave the graph alone"; a reason makes it a failure, "" a wish."""

def register_passes(defaults: bytes, /) -> None:
    """Registers the pass and the Grappler optimizer, once per process.

    `defaults` is a serialised CustomGraphOptimizer with the options that an entry may leave out.
    """

def open() -> None:
    """Requests are served from now on, by this process."""

def close() -> None:
    """Refuses new requests and wakes whoever waits in `next_request`."""

def next_request() -> PlannerRequest | None:
    """The next request, however long that takes; None when closed and drained."""

def reports() -> list[PassReport]:
    """One per graph, oldest first; the last 1000."""

def step_checks() -> list[StepCheck]: ...
def op_estimates() -> dict[str, str]:
    """Our own estimates by op type: what is counted, in words (cc/tf/op_estimate_table.h)."""

def tensorflow_cost_functions() -> list[str]:
    """The op types for which this TensorFlow's OpLevelCostEstimator has a cost function, sorted."""

class OfflineCapture(_CapturedStep):
    """The step of a graph that is not running. With `keep_graph`, also what can be run of it."""

    @property
    def flat_graph(self) -> bytes:
        """A GraphDef as the pass sees it: inlined and lowered, arguments are nodes."""

    @property
    def targets(self) -> list[str]:
        """Nodes of the flat graph whose ancestors are the step."""

    @property
    def fed_shapes(self) -> dict[str, list[list[int]]]:
        """Shapes of the outputs of fed nodes, as they were costed."""

def capture_graph(
    graph_def: bytes,
    *,
    devices: list[SessionDevice],
    rates: MachineRates,
    function: str,
    argument_devices: list[str],
    handles: list[tuple[int, int, list[int] | None]],
    free_arguments: list[int],
    targets: list[str],
    allow_soft_placement: bool,
    batch_size: int,
    loop_trip_count: int,
    shapes: dict[str, list[int]],
    keep_graph: bool = False,
) -> OfflineCapture:
    """What the pass would see if this serialised GraphDef ran on these devices.

    `function` names one in its library, or is "" for the graph itself; `handles` has (argument,
    tensorflow.DataType, shape with -1 or None) of the variables among its arguments; those in
    `free_arguments` may be on any device, whatever `argument_devices` say. Raises ValueError with
    TensorFlow's reason. TensorFlow may abort on malformed graphs.
    """

def keep_one_kind(devices: list[SessionDevice], /) -> list[SessionDevice]:
    """The same devices; of those that may be planned, only devices of one kind still may.

    That is the kind of the first device that is no CPU, else of the first.
    """

def register_placeholder_kernels(table: str, /) -> None:
    """Registers the kernels of the table gpu_kernels.json for look-up only; for good."""
