"""Generated problems: training steps of random networks on random machines, by family and seed.

A network is a graph of *cells* (a layer, one time step of a recurrent layer, an attention head).
Each cell becomes ops as in a real training step: reads of its weight, forward ops, the gradients of
its input and of its weight, which read what the forward ops kept, sums of gradients where a tensor
or a weight is used more than once, and the update of the weight, which sits with it in one
colocation group. Costs are spread like those of real graphs; a third of the cells is cheap.

A machine has 2 to 16 accelerators of one kind or two, mostly a slower host, and links that share
channels or not, within hosts and between them. Of every two seeds one is tight: all memories
together hold 1.15 to 1.6 times what the step needs at least.

    problem = generate("recurrent", seed=7)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.problem.simulator import simulate

_Rng = np.random.Generator
_MB = 10**6
_ACCELERATORS = (2, 2, 3, 4, 4, 6, 8, 8, 12, 16)


@dataclass(frozen=True, kw_only=True)
class NetworkCell:
    """A node of a network."""

    inputs: list[int]  # cells
    cost_us: float  # of its forward ops, on the faster accelerator
    output_bytes: int
    weight: int  # cells of one number share the weight
    scope: str


@dataclass(kw_only=True)
class Network:
    """Cells in topological order, and what their weights hold."""

    cells: list[NetworkCell] = field(default_factory=list)
    weight_bytes: list[int] = field(default_factory=list)

    def add_weight(self, size_bytes: float) -> int:
        self.weight_bytes.append(int(size_bytes))
        return len(self.weight_bytes) - 1

    def add(
        self, inputs: list[int], cost_us: float, output_bytes: float, weight: int, scope: str
    ) -> int:
        self.cells.append(
            NetworkCell(
                inputs=inputs,
                cost_us=cost_us,
                output_bytes=max(4, int(output_bytes)),
                weight=weight,
                scope=scope,
            )
        )
        return len(self.cells) - 1


class _Draw:
    """Sizes that belong together within one network."""

    def __init__(self, rng: _Rng) -> None:
        self.rng = rng
        self.cost_us = float(np.exp(rng.uniform(np.log(20), np.log(1500))))
        self.bytes = float(np.exp(rng.uniform(np.log(0.05 * _MB), np.log(8 * _MB))))
        self.weight = float(np.exp(rng.uniform(np.log(0.2 * _MB), np.log(60 * _MB))))
        self.spread = rng.uniform(0.2, 1.0)

    def factor(self) -> float:
        return float(np.exp(self.rng.normal(0, self.spread)))

    def integer(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, most + 1))

    def cell(
        self, network: Network, inputs: list[int], scope: str, *, weight: int | None = None
    ) -> int:
        """A cell of random size, with a weight of its own unless one is given."""
        cheap = 0.05 if self.rng.random() < 1 / 3 else 1.0
        if weight is None:
            weight = network.add_weight(self.weight * self.factor() * cheap)
        return network.add(
            inputs, self.cost_us * self.factor() * cheap, self.bytes * self.factor(), weight, scope
        )


def recurrent(draw: _Draw) -> Network:
    """Layers of unrolled steps, which share a weight per layer; a projection at every step."""
    network = Network()
    layers, steps = draw.integer(2, 6), draw.integer(8, 40)
    weights = [network.add_weight(draw.weight * draw.factor()) for _ in range(layers + 2)]
    cost_us = [draw.cost_us * draw.factor() for _ in range(layers + 2)]
    below = [
        network.add([], 0.05 * cost_us[-1], draw.bytes, weights[-1], "embed") for _ in range(steps)
    ]
    for layer in range(layers):
        size = draw.bytes * draw.factor()
        row: list[int] = []
        for step in range(steps):
            inputs, scope = [below[step], *row[-1:]], f"layer{layer}/step{step}"
            row.append(network.add(inputs, cost_us[layer], size, weights[layer], scope))
        below = row
    for step in range(steps):
        network.add(
            [below[step]], 2 * cost_us[layers], 2 * draw.bytes, weights[layers], f"softmax/{step}"
        )
    return network


def branching(draw: _Draw) -> Network:
    """Blocks of branches of unequal length, joined after each block."""
    network = Network()
    last = draw.cell(network, [], "stem")
    for block in range(draw.integer(4, 16)):
        ends = []
        for branch in range(draw.integer(2, 6)):
            at = last
            for _ in range(draw.integer(1, 5)):
                at = draw.cell(network, [at], f"block{block}/branch{branch}")
            ends.append(at)
        last = draw.cell(network, ends, f"block{block}/join")
    return network


def layered(draw: _Draw) -> Network:
    """Random layers; a cell reads some of the layer before, at times of earlier ones."""
    network = Network()
    layers: list[list[int]] = [[]]
    width = draw.integer(3, 16)
    for layer in range(draw.integer(8, 40)):
        row = []
        for _ in range(draw.integer(1, width)):
            before = layers[-1]
            if len(layers) > 3 and draw.rng.random() < 0.15:
                before = layers[-draw.integer(2, 3)]
            count = min(len(before), draw.integer(1, 3))
            inputs = (
                [int(i) for i in draw.rng.choice(before, count, replace=False)] if count else []
            )
            row.append(draw.cell(network, inputs, f"layer{layer}"))
        layers.append(row)
    return network


def towers(draw: _Draw) -> Network:
    """Towers of unequal depth with few links between them, joined at the end."""
    network = Network()
    ends: list[int] = []
    for tower in range(draw.integer(2, 7)):
        at: list[int] = []
        for depth in range(draw.integer(5, 40)):
            inputs = list(at)
            if network.cells and draw.rng.random() < 0.03:
                inputs.append(draw.integer(0, len(network.cells) - 1))
            at = [draw.cell(network, sorted(set(inputs)), f"tower{tower}/layer{depth}")]
        ends += at
    for _ in range(draw.integer(1, 4)):
        ends = [draw.cell(network, ends, "head")]
    return network


def transformer(draw: _Draw) -> Network:
    """Blocks of attention heads and a feed-forward part, which experts share in some networks."""
    network = Network()
    heads, experts = draw.integer(2, 8), draw.integer(1, 8) if draw.rng.random() < 0.5 else 1
    last = draw.cell(network, [], "embed")
    for block in range(draw.integer(3, 14)):
        scope = f"block{block}"
        qkv = [draw.cell(network, [last], f"{scope}/{part}") for part in "qkv"]
        joined = draw.cell(
            network, [draw.cell(network, qkv, f"{scope}/head{h}") for h in range(heads)], scope
        )
        normal = draw.cell(network, [joined, last], f"{scope}/norm")
        ends = [
            draw.cell(network, [draw.cell(network, [normal], f"{scope}/in{e}")], f"{scope}/out{e}")
            for e in range(experts)
        ]
        last = draw.cell(network, [*ends, normal], f"{scope}/sum")
    draw.cell(network, [last], "loss")
    return network


FAMILIES: dict[str, Callable[[_Draw], Network]] = {
    "branching": branching,
    "layered": layered,
    "recurrent": recurrent,
    "towers": towers,
    "transformer": transformer,
}


def draw_network(family: str, seed: int) -> Network:
    """The network of a family (a key of FAMILIES) and a seed: always the same one."""
    return FAMILIES[family](_Draw(_rng_of(family, seed)))


def generate(family: str, seed: int) -> Problem:
    """The problem of a family (a key of FAMILIES) and a seed: always the same one."""
    rng = _rng_of(family, seed)
    step = _StepOps(FAMILIES[family](_Draw(rng)), rng)
    return step.problem(f"{family}-{seed}", rng, is_tight=seed % 2 == 1)


def _rng_of(family: str, seed: int) -> _Rng:
    return np.random.default_rng([sorted(FAMILIES).index(family), seed])


class _StepOps:
    """The ops of a training step of a network."""

    def __init__(self, network: Network, rng: _Rng) -> None:
        self.names: list[str] = []
        self.types: list[str] = []
        self.cost_us: list[float] = []
        self.bytes: list[int] = []
        self.persistent: list[int] = []
        self.group: list[int] = []
        self.edges: list[tuple[int, int]] = []
        self._rng = rng
        self._forward(network)
        self._backward(network)

    def _op(
        self,
        name: str,
        kind: str,
        cost_us: float,
        size: int,
        inputs: list[int],
        *,
        group: int = -1,
        persistent: int = 0,
    ) -> int:
        op = len(self.names)
        self.names.append(f"{name}/{kind}_{op}")
        self.types.append(kind)
        self.cost_us.append(cost_us)
        self.bytes.append(size)
        self.persistent.append(persistent)
        self.group.append(group)
        self.edges += [(src, op) for src in sorted(set(inputs))]
        return op

    def _forward(self, network: Network) -> None:
        self.reads = [
            self._op(f"w{w}", "ReadVariableOp", 1, size, [], group=w, persistent=3 * size)
            for w, size in enumerate(network.weight_bytes)
        ]
        self.product: list[int] = []
        self.output: list[int] = []
        for cell in network.cells:
            read = [self.reads[cell.weight]]
            size = cell.output_bytes
            inputs = [self.output[i] for i in cell.inputs]
            if len(inputs) > 1:
                inputs = [self._op(cell.scope, "ConcatV2", 0.05 * cell.cost_us + 1, size, inputs)]
            product = self._op(cell.scope, "MatMul", 0.85 * cell.cost_us, size, read + inputs)
            bias = self._op(cell.scope, "BiasAdd", 0.05 * cell.cost_us + 1, size, [product])
            self.product.append(product)
            self.output.append(self._op(cell.scope, "Relu", 0.05 * cell.cost_us + 1, size, [bias]))

    def _backward(self, network: Network) -> None:
        gradients: list[list[int]] = [[] for _ in network.cells]  # of each cell's output
        of_weight: list[list[int]] = [[] for _ in network.weight_bytes]
        for index in range(len(network.cells) - 1, -1, -1):
            cell, given = network.cells[index], gradients[index]
            scope, size = f"gradients/{cell.scope}", cell.output_bytes
            if len(given) > 1:
                given = [self._op(scope, "AddN", 0.02 * cell.cost_us * len(given), size, given)]
            cost_us = 0.05 * cell.cost_us + 1
            relu = self._op(scope, "ReluGrad", cost_us, size, [*given, self.output[index]])
            for source in cell.inputs:
                gradients[source].append(
                    self._op(
                        scope,
                        "MatMul",
                        cell.cost_us / len(cell.inputs),
                        network.cells[source].output_bytes,
                        [relu, self.reads[cell.weight]],
                    )
                )
            kept = [self.output[i] for i in cell.inputs]
            weight_size = network.weight_bytes[cell.weight]
            of_weight[cell.weight].append(
                self._op(scope, "MatMul", cell.cost_us, weight_size, [relu, *kept])
            )
        for weight, parts in enumerate(of_weight):
            size = network.weight_bytes[weight]
            cost_us = size / 2e5  # at 200 GB/s
            if len(parts) > 1:
                parts = [self._op(f"w{weight}", "AddN", cost_us * len(parts), size, parts)]
            self._op(f"w{weight}", "ResourceApplyAdam", 3 * cost_us, 0, parts, group=weight)

    def problem(self, name: str, rng: _Rng, *, is_tight: bool) -> Problem:
        n, cost_us = len(self.names), np.array(self.cost_us)
        machine = _machine(rng)
        slowdown = rng.uniform(8, 40) if machine.has_host else 1.0
        second = rng.uniform(1.3, 3.0)
        overhead_us = rng.uniform(1, 8)
        costs_us = [
            cost_us * slowdown + 0.2 * overhead_us,
            cost_us + overhead_us,
            cost_us * second + overhead_us,
        ]
        edges = np.array(self.edges, np.int32)
        made = Problem(
            name=name,
            device_kinds=["cpu", "fast", "slow"],
            device_names=machine.names,
            device_kind=machine.kind,
            device_memory_bytes=np.full(len(machine.names), 2**45),
            device_slots=np.ones(len(machine.names), np.int32),
            link_src=machine.src,
            link_dst=machine.dst,
            link_channel=machine.channel,
            link_latency_ns=machine.latency_ns,
            link_bytes_per_s=machine.bytes_per_s,
            op_names=self.names,
            op_types=self.types,
            cost_ns=(np.stack(costs_us, axis=1) * 1000).astype(np.int64),
            output_ptr=np.arange(n + 1),
            output_bytes=np.array(self.bytes, np.int64),
            output_alias_src=np.full(n, -1, np.int32),
            output_alias_output=np.zeros(n, np.int32),
            temp_bytes=np.zeros(n, np.int64),
            persistent_bytes=np.array(self.persistent, np.int64),
            edges=np.stack([edges[:, 0], np.zeros(len(edges), np.int32), edges[:, 1]], axis=1),
            control_edges=np.zeros((0, 2), np.int32),
            allowed_ptr=np.zeros(n + 1, np.int64),
            allowed_device=np.zeros(0, np.int32),
            allowed_given=np.zeros(n, np.bool_),
            colocation_group=np.array(self.group, np.int32),
            colocation_group_names=[f"w{w}" for w in range(len(self.reads))],
        )
        if not is_tight:
            return made
        first = int(machine.has_host)
        needed = int(simulate(made, np.full(n, first, np.int32)).peak_bytes.max())
        memory = np.full(len(machine.names), int(needed * rng.uniform(1.15, 1.6)))
        memory //= len(machine.names) - first
        memory[:first] = needed // 4
        return made.replace(device_memory_bytes=memory)


@dataclass(frozen=True, kw_only=True)
class _GeneratedMachine:
    names: list[str]
    has_host: bool
    kind: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    channel: list[str]
    latency_ns: np.ndarray
    bytes_per_s: np.ndarray


def _machine(rng: _Rng) -> _GeneratedMachine:
    accelerators = int(rng.choice(_ACCELERATORS))
    has_host = bool(rng.random() < 0.8)
    kind = (
        np.where(rng.random(accelerators) < 0.4, 2, 1)
        if rng.random() < 0.3
        else np.ones(accelerators)
    )
    host_of = (
        np.arange(accelerators)
        * (2 if accelerators >= 4 and rng.random() < 0.3 else 1)
        // accelerators
    )
    names = [f"/device:GPU:{d}" for d in range(accelerators)]
    if has_host:
        names, kind, host_of = ["/device:CPU:0", *names], np.r_[0, kind], np.r_[0, host_of]
    near = np.exp(rng.uniform(np.log(5e9), np.log(1e11)))
    far = near / rng.uniform(3, 10)
    latency_ns = rng.uniform(3_000, 30_000)
    channel = str(rng.choice(["{src}-{dst}", "up{src}", "bus{a}"]))
    pairs = [(a, b) for a in range(len(names)) for b in range(len(names)) if a != b]
    apart = np.array([host_of[a] != host_of[b] for a, b in pairs])
    return _GeneratedMachine(
        names=names,
        has_host=has_host,
        kind=kind.astype(np.int32),
        src=np.array([a for a, _ in pairs], np.int32),
        dst=np.array([b for _, b in pairs], np.int32),
        channel=[
            f"net{host_of[a]}" if is_far else channel.format(src=a, dst=b, a=host_of[a])
            for (a, b), is_far in zip(pairs, apart, strict=True)
        ],
        latency_ns=np.where(apart, 3 * latency_ns, latency_ns).astype(np.int64),
        bytes_per_s=np.where(apart, far, near).astype(np.int64),
    )
