"""Links by topology: what a machine file says of buses and networks, as links of device pairs.

docs/reference/machines.md defines the elements. A transfer occupies one channel, so each element
decides which part of a path that is: the one that the most transfers share on the sender's side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hplacer_optimizer.machines.machine import Link
from hplacer_optimizer.support.document import Field
from hplacer_optimizer.support.quantities import BYTE_RATE, DURATION, shorten

_MAX_BRICKS = 64
# The optional keys of an element that say how a transfer is work: the field of `Link` of each.
WORK = {
    "send": ("send_ns", DURATION),
    "send_bandwidth": ("send_bytes_per_s", BYTE_RATE),
    "receive": ("receive_ns", DURATION),
    "receive_bandwidth": ("receive_bytes_per_s", BYTE_RATE),
}
_T = TypeVar("_T")


def memory_links(devices: Sequence[str], latency_ns: int, bytes_per_s: int) -> Iterator[Link]:
    """Copies within a host's memory: every ordered pair has a channel of its own."""
    for src, dst in _pairs(devices):
        yield Link(
            src=src,
            dst=dst,
            channel=f"memory {src} -> {dst}",
            latency_ns=latency_ns,
            bytes_per_s=bytes_per_s,
        )


def nvswitch_links(devices: Sequence[str], latency_ns: int, bytes_per_s: int) -> Iterator[Link]:
    """A crossbar: a transfer occupies the port through which it leaves its source."""
    for src, dst in _pairs(devices):
        yield Link(
            src=src,
            dst=dst,
            channel=f"nvswitch {src} egress",
            latency_ns=latency_ns,
            bytes_per_s=bytes_per_s,
        )


def nvlink_links(
    bricks: dict[tuple[str, str], int], latency_ns: int, bytes_per_s: int
) -> Iterator[Link]:
    """Point-to-point: `bricks` by unordered pair, each of `bytes_per_s` in each direction."""
    for (a, b), count in bricks.items():
        for src, dst in ((a, b), (b, a)):
            yield Link(
                src=src,
                dst=dst,
                channel=f"nvlink {src} -> {dst}",
                latency_ns=latency_ns,
                bytes_per_s=count * bytes_per_s,
            )


@dataclass(frozen=True, kw_only=True)
class Host:
    """A host on a network and the bandwidth of its adapter."""

    name: str
    devices: tuple[str, ...]
    bytes_per_s: int


def network_links(
    network: str, hosts: Sequence[Host], latency_ns: int, **work: int
) -> Iterator[Link]:
    """A transfer occupies the adapter of its source's host, at the slower adapter's bandwidth.

    `work`: `send_ns`, `send_bytes_per_s`, `receive_ns` and `receive_bytes_per_s` of every link.
    """
    for source in hosts:
        for target in hosts:
            if source.name == target.name:
                continue
            for src in source.devices:
                for dst in target.devices:
                    yield Link(
                        src=src,
                        dst=dst,
                        channel=f"{network} {source.name} egress",
                        latency_ns=latency_ns,
                        bytes_per_s=min(source.bytes_per_s, target.bytes_per_s),
                        **work,
                    )


@dataclass(frozen=True, kw_only=True)
class PcieNode:
    """A device or a switch of a PCIe tree, and the bandwidth of its link to its parent.

    The root has no parent. `devices` are those at the node: a leaf's one device, the host's CPU
    devices at the root.
    """

    name: str
    bytes_per_s: int
    devices: tuple[str, ...] = ()
    children: tuple[PcieNode, ...] = ()


def pcie_links(root: PcieNode, latency_ns: int) -> Iterator[Link]:
    """A transfer climbs to the lowest common ancestor, then descends to its destination.

    It occupies the last link that it climbs (`up`), or if its source is that ancestor the first
    one that it descends (`down`). Its bandwidth is the least on the path.
    """
    paths = {device: path for path in _paths(root, ()) for device in path[-1].devices}
    for src, dst in _pairs(list(paths)):
        shared = 0
        for a, b in zip(paths[src], paths[dst], strict=False):
            if a is not b:
                break
            shared += 1
        climbed, descended = paths[src][shared:], paths[dst][shared:]
        if not climbed and not descended:
            continue  # two devices at one node: not this tree's business
        channel = f"pcie {climbed[0].name} up" if climbed else f"pcie {descended[0].name} down"
        yield Link(
            src=src,
            dst=dst,
            channel=channel,
            latency_ns=latency_ns,
            bytes_per_s=min(node.bytes_per_s for node in (*climbed, *descended)),
        )


def _paths(node: PcieNode, above: tuple[PcieNode, ...]) -> Iterator[tuple[PcieNode, ...]]:
    path = (*above, node)
    yield path
    for child in node.children:
        yield from _paths(child, path)


def _pairs(devices: Sequence[str]) -> Iterator[tuple[str, str]]:
    return ((src, dst) for src in devices for dst in devices if src != dst)


# ---- reading ----


class _Scope:
    """What the elements of one file share: device names, and the channel names given out."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = frozenset(devices)
        self._names: set[tuple[str, str]] = set()

    def device(self, field: Field) -> str:
        name = field.text()
        if name not in self.devices:
            raise field.error(f"unknown device {shorten(name)}; it is not among `devices`")
        return name

    def distinct_devices(self, field: Field, taken: set[str]) -> tuple[str, ...]:
        """Devices that are not `taken` yet, and then are."""
        names = tuple(self.device(item) for item in field.sequence())
        for name, item in zip(names, field.sequence(), strict=True):
            self._take(item, name, taken)
        return names

    def new_name(self, field: Field, what: str) -> str:
        """A name that no other switch (or network) of the file has."""
        name = field.text()
        self._take(field, (what, name), self._names)
        return name

    @staticmethod
    def _take(field: Field, name: _T, taken: set[_T]) -> None:
        if name in taken:
            raise field.error(f"{shorten(field.text())} is there twice")
        taken.add(name)


def read_links(links: Field, devices: Sequence[str]) -> tuple[Link, ...]:
    """Expands the `links` of a machine file; where two elements link a pair, the first one counts.

    Raises DocumentError with the path of the faulty field, or the MachineError of a link.
    """
    scope = _Scope(devices)
    expanded: dict[tuple[str, str], Link] = {}
    explicit: set[tuple[str, str]] = set()
    for element in links.sequence():
        fields = element.mapping()
        if len(fields) != 1 or next(iter(fields)) not in _READERS:
            raise element.error(f"expected one key, one of {', '.join(_READERS)}")
        ((name, field),) = fields.items()
        for link in _READERS[name](field, scope):
            pair = (link.src, link.dst)
            if name == "link":
                if pair in explicit:
                    raise field.error(f"a second link from {pair[0]} to {pair[1]}")
                explicit.add(pair)
            expanded.setdefault(pair, link)
    return tuple(expanded.values())


def _read_link(field: Field, scope: _Scope) -> Iterator[Link]:
    fields = field.record(("src", "dst", "channel", "latency", "bandwidth"), optional=(*WORK,))
    src = scope.device(fields["src"])
    latency_ns, bytes_per_s = _rates(fields)
    work = _work(fields)
    several = isinstance(fields["dst"].value, list)
    for item in fields["dst"].sequence() if several else [fields["dst"]]:
        dst = scope.device(item)
        if dst == src:
            raise item.error(f"{dst!r} is the source, too")
        yield field.build(
            Link,
            src=src,
            dst=dst,
            channel=fields["channel"].text(),
            latency_ns=latency_ns,
            bytes_per_s=bytes_per_s,
            **work,
        )


def _read_memory(field: Field, scope: _Scope) -> Iterator[Link]:
    fields = field.record(("devices", "latency", "bandwidth"))
    return memory_links(scope.distinct_devices(fields["devices"], set()), *_rates(fields))


def _read_nvswitch(field: Field, scope: _Scope) -> Iterator[Link]:
    fields = field.record(("devices", "latency", "bandwidth"))
    return nvswitch_links(scope.distinct_devices(fields["devices"], set()), *_rates(fields))


def _read_nvlink(field: Field, scope: _Scope) -> Iterator[Link]:
    fields = field.record(("bricks", "latency", "bandwidth"))
    bricks: dict[tuple[str, str], int] = {}
    for row in fields["bricks"].sequence():
        cells = row.sequence()
        if len(cells) not in (2, 3):
            raise row.error("expected [device, device] or [device, device, bricks]")
        a, b = scope.distinct_devices(Field(row.value[:2], row.path), set())
        pair = (b, a) if (b, a) in bricks else (a, b)
        count = cells[2].whole_number(1, _MAX_BRICKS) if len(cells) == 3 else 1
        bricks[pair] = bricks.get(pair, 0) + count
    return nvlink_links(bricks, *_rates(fields))


def _read_network(field: Field, scope: _Scope) -> Iterator[Link]:
    fields = field.record(("name", "hosts", "latency", "bandwidth"), optional=(*WORK,))
    latency_ns, bytes_per_s = _rates(fields)
    taken: set[str] = set()
    hosts: dict[str, Host] = {}
    for item in fields["hosts"].sequence():
        parts = item.record(("name", "devices"), ("bandwidth",))
        name = parts["name"].text()
        if name in hosts:
            raise parts["name"].error(f"{shorten(name)} is there twice")
        hosts[name] = Host(
            name=name,
            devices=scope.distinct_devices(parts["devices"], taken),
            bytes_per_s=parts["bandwidth"].quantity(BYTE_RATE)
            if "bandwidth" in parts
            else bytes_per_s,
        )
    network = scope.new_name(fields["name"], "network")
    return network_links(network, [*hosts.values()], latency_ns, **_work(fields))


def _read_pcie(field: Field, scope: _Scope) -> Iterator[Link]:
    fields = field.record(("host", "children", "latency", "bandwidth"))
    latency_ns, bytes_per_s = _rates(fields)
    taken: set[str] = set()

    def nodes(children: Field) -> tuple[PcieNode, ...]:
        return tuple(node(child) for child in children.sequence())

    def node(child: Field) -> PcieNode:
        if isinstance(child.value, str):
            (device,) = scope.distinct_devices(Field([child.value], child.path), taken)
            return PcieNode(name=device, bytes_per_s=bytes_per_s, devices=(device,))
        parts = child.record(("switch", "children"), ("bandwidth",))
        own = parts["bandwidth"].quantity(BYTE_RATE) if "bandwidth" in parts else bytes_per_s
        name = scope.new_name(parts["switch"], "switch")
        return PcieNode(name=name, bytes_per_s=own, children=nodes(parts["children"]))

    root = PcieNode(
        name="host",
        bytes_per_s=bytes_per_s,
        devices=scope.distinct_devices(fields["host"], taken),
        children=nodes(fields["children"]),
    )
    return pcie_links(root, latency_ns)


def _rates(fields: dict[str, Field]) -> tuple[int, int]:
    return fields["latency"].quantity(DURATION), fields["bandwidth"].quantity(BYTE_RATE)


def _work(fields: dict[str, Field]) -> dict[str, int]:
    """What the fields say of a transfer's work at both ends, as keywords of `Link`."""
    return {
        keyword: fields[key].quantity(dimension)
        for key, (keyword, dimension) in WORK.items()
        if key in fields
    }


_READERS: dict[str, Callable[[Field, _Scope], Iterator[Link]]] = {
    "link": _read_link,
    "nvlink": _read_nvlink,
    "nvswitch": _read_nvswitch,
    "pcie": _read_pcie,
    "memory": _read_memory,
    "network": _read_network,
}
