"""Links of NVIDIA GPUs within a host, as the driver's `nvidia-smi` tells them.

`nvidia-smi topo -m` prints a matrix of how GPUs reach each other: NV4 is four NVLink bricks, PIX
and PXB pass through PCIe switches only, PHB, NODE and SYS pass through the host.
"""

from __future__ import annotations

import functools
import itertools
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hplacer_optimizer.machines.machine import Link
from hplacer_optimizer.machines.topology import PcieNode, nvlink_links, nvswitch_links, pcie_links

_TIMEOUT_S = 10
_COPY_LATENCY_NS = 10_000  # TensorFlow's rendezvous and cudaMemcpyAsync
_BRICK_BYTES_PER_S = 25_000_000_000  # NVLink 2.0 to 4.0, one direction
_MOST_BRICKS = 18  # of any GPU: more in one row of the matrix are shared, through an NVSwitch
_PCIE_3_X16 = 12_000_000_000  # bytes/s of 15.75e9 that are left after packet headers
_PCIE_3_LANE = _PCIE_3_X16 // 16


@dataclass(frozen=True, kw_only=True)
class Topology:
    """How G GPUs are connected; `way[i][j]` is nvidia-smi's word for the path from i to j."""

    bus_ids: tuple[str, ...]  # [G] as "0000:0b:00.0"
    pcie_bytes_per_s: tuple[int, ...]  # [G]
    way: tuple[tuple[str, ...], ...]  # [G][G]


def links(
    cpus: Sequence[str], descriptions: Mapping[str, str], ask_driver: bool, assumptions: set[str]
) -> Iterator[Link]:
    """Links among a host's GPUs and its CPU devices; a pair may come twice, the first one counts.

    `descriptions` has TensorFlow's description of each GPU, which tells its PCI address.
    """
    topology = _ask_driver() if ask_driver else None
    index = {name: _gpu_index(text, topology) for name, text in descriptions.items()}
    if topology is None or None in index.values():
        assumptions.add(
            f"links of GPUs: PCIe, each with {_PCIE_3_X16:.3g} bytes/s of its own and a latency of "
            f"{_COPY_LATENCY_NS} ns"
        )
        leaves = [PcieNode(name=n, bytes_per_s=_PCIE_3_X16, devices=(n,)) for n in descriptions]
        yield from pcie_links(_root(cpus, leaves), _COPY_LATENCY_NS)
        return
    yield from _known_links(cpus, {name: i for name, i in index.items() if i is not None}, topology)


def _known_links(
    cpus: Sequence[str], index: Mapping[str, int], topology: Topology
) -> Iterator[Link]:
    names = list(index)
    bricks = {
        (a, b): int(way[2:])
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if re.fullmatch(r"NV\d+", way := topology.way[index[a]][index[b]])
    }
    per_gpu = {name: sum(n for pair, n in bricks.items() if name in pair) for name in names}
    if bricks and max(per_gpu.values()) > _MOST_BRICKS:
        rate = max(bricks.values()) * _BRICK_BYTES_PER_S
        yield from nvswitch_links([n for n in names if per_gpu[n]], _COPY_LATENCY_NS, rate)
    else:
        yield from nvlink_links(bricks, _COPY_LATENCY_NS, _BRICK_BYTES_PER_S)
    leaves = {
        name: PcieNode(name=name, bytes_per_s=topology.pcie_bytes_per_s[i], devices=(name,))
        for name, i in index.items()
    }
    nodes = []
    for group in _groups(index, topology):
        children = tuple(leaves[name] for name in group)
        rate = max(leaf.bytes_per_s for leaf in children)
        switch = PcieNode(name=f"switch of {group[0]}", bytes_per_s=rate, children=children)
        nodes.append(switch if len(group) > 1 else children[0])
    yield from pcie_links(_root(cpus, nodes), _COPY_LATENCY_NS)


def _groups(index: Mapping[str, int], topology: Topology) -> list[list[str]]:
    """GPUs that reach each other through PCIe switches alone.

    The matrix hides that behind NVLink; such GPUs are taken to have a link to the host each.
    """
    groups: list[list[str]] = []
    for name, i in index.items():
        near = [g for g in groups if any(topology.way[i][index[o]] in ("PIX", "PXB") for o in g)]
        merged = [*itertools.chain(*near), name]
        groups = [g for g in groups if g not in near] + [merged]
    return groups


def _root(cpus: Sequence[str], children: Sequence[PcieNode]) -> PcieNode:
    return PcieNode(name="host", bytes_per_s=1, devices=tuple(cpus), children=tuple(children))


def _gpu_index(description: str, topology: Topology | None) -> int | None:
    bus = re.search(r"pci bus id: ([0-9A-Fa-f:.]+)", description)
    if topology is None or bus is None or _bus_id(bus[1]) not in topology.bus_ids:
        return None
    return topology.bus_ids.index(_bus_id(bus[1]))


def _bus_id(text: str) -> str:
    """Of "00000000:0B:00.0" (nvidia-smi) and "0000:0b:00.0" (TensorFlow) the latter."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain[-4:]}:{rest}"


# ---- asking the driver ----


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU of this host, as the driver tells it."""

    model: str
    memory_mib: int
    free_mib: int


def gpus() -> list[Gpu]:
    """All of this host, with those that CUDA_VISIBLE_DEVICES hides; none if no driver answers."""
    table = _nvidia_smi("--query-gpu=name,memory.total,memory.free", "--format=csv,noheader")
    found = []
    for line in (table or "").splitlines():
        row = re.fullmatch(r"(.+), (\d+) MiB, (\d+) MiB", line.strip())
        if row:
            found.append(Gpu(model=row[1], memory_mib=int(row[2]), free_mib=int(row[3])))
    return found


def ways() -> dict[tuple[int, int], str]:
    """nvidia-smi's word for the path between two GPUs, by their numbers."""
    topology = _ask_driver()
    if topology is None:
        return {}
    return {
        (a, b): topology.way[a][b] for a, b in itertools.combinations(range(len(topology.way)), 2)
    }


def _ask_driver() -> Topology | None:
    fields = "pci.bus_id,pcie.link.gen.max,pcie.link.width.max"
    table = _nvidia_smi(f"--query-gpu={fields}", "--format=csv,noheader")
    matrix = _nvidia_smi("topo", "-m")
    return parse(table, matrix) if table and matrix else None


def parse(table: str, matrix: str) -> Topology | None:
    """From `--query-gpu=pci.bus_id,pcie.link.gen.max,pcie.link.width.max` and `topo -m`."""
    bus_ids, rates = [], []
    for line in table.splitlines():
        bus_id, generation, width = [cell.strip() for cell in (line + ",,").split(",")[:3]]
        known = generation.isdigit() and width.isdigit()
        lanes = int(width) * 2 ** (int(generation) - 3) if known else 16
        bus_ids.append(_bus_id(bus_id))
        rates.append(int(_PCIE_3_LANE * lanes))
    rows = {}
    for line in re.sub(r"\x1b\[[0-9;]*m", "", matrix).splitlines():
        cells = line.split()
        if cells and re.fullmatch(r"GPU\d+", cells[0]) and len(cells) > len(bus_ids):
            rows[int(cells[0][3:])] = tuple(cells[1 : len(bus_ids) + 1])
    if not bus_ids or sorted(rows)[: len(bus_ids)] != list(range(len(bus_ids))):
        return None
    way = tuple(rows[i] for i in range(len(bus_ids)))
    return Topology(bus_ids=tuple(bus_ids), pcie_bytes_per_s=tuple(rates), way=way)


@functools.cache
def _nvidia_smi(*arguments: str) -> str | None:
    """What it prints, or None if there is no such command or it fails.

    It is asked once in a process: where the driver hangs, each answer takes the limit.
    """
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
