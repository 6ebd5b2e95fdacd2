"""Links by topology, expanded by hand, and the shipped machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hplacer_optimizer as hp
from hplacer_optimizer import machines
from hplacer_optimizer.errors import MachineError
from hplacer_optimizer.support.quantities import BYTE_RATE, DURATION
from tests.processes import ROOT

CPU, GPU0, GPU1, GPU2 = "/device:CPU:0", *(f"/device:GPU:{i}" for i in range(3))


def links_of(tmp_path: Path, devices: tuple[str, ...], links: str) -> dict[tuple[str, str], Any]:
    kinds = {"CPU": "haswell-18", "GPU": "k40"}
    rows = "".join(
        f"  - {{name: {name}, kind: {kinds[name.split(':')[-2]]}}}\n" for name in devices
    )
    head = f"format: hplacer-machine/1\nname: m\ndevices:\n{rows}"
    path = tmp_path / "machine.yaml"
    path.write_text(f"{head}links:\n{links}")
    machine = hp.load_machine(path)
    return {
        (link.src, link.dst): (link.channel, link.latency_ns, link.bytes_per_s)
        for link in machine.links
    }


def gb(figure: float) -> int:
    return round(figure * 10**9)


def test_a_pcie_tree(tmp_path: Path) -> None:
    links = f"""
  - pcie:
      latency: 10 us
      bandwidth: 12 GB/s
      host: [{CPU}]
      children:
        - switch: plx0
          bandwidth: 6 GB/s
          children: [{GPU0}, {GPU1}]
        - {GPU2}
"""
    up0, down0 = ("pcie plx0 up", 10_000, gb(6)), ("pcie plx0 down", 10_000, gb(6))
    up2, down2 = (f"pcie {GPU2} up", 10_000, gb(12)), (f"pcie {GPU2} down", 10_000, gb(12))
    assert links_of(tmp_path, (CPU, GPU0, GPU1, GPU2), links) == {
        (CPU, GPU0): down0,
        (CPU, GPU1): down0,
        (CPU, GPU2): down2,
        (GPU0, CPU): up0,
        (GPU0, GPU1): (f"pcie {GPU0} up", 10_000, gb(12)),  # through the switch only
        (GPU0, GPU2): up0,
        (GPU1, CPU): up0,
        (GPU1, GPU0): (f"pcie {GPU1} up", 10_000, gb(12)),
        (GPU1, GPU2): up0,
        (GPU2, CPU): up2,
        (GPU2, GPU0): (f"pcie {GPU2} up", 10_000, gb(6)),
        (GPU2, GPU1): (f"pcie {GPU2} up", 10_000, gb(6)),
    }


def test_nested_switches_are_left_through_the_highest(tmp_path: Path) -> None:
    links = f"""
  - pcie:
      latency: 1 us
      bandwidth: 12 GB/s
      host: []
      children:
        - switch: a
          children:
            - switch: b
              bandwidth: 3 GB/s
              children: [{GPU0}]
            - {GPU1}
        - {GPU2}
"""
    assert links_of(tmp_path, (GPU0, GPU1, GPU2), links) == {
        (GPU0, GPU1): ("pcie b up", 1_000, gb(3)),
        (GPU0, GPU2): ("pcie a up", 1_000, gb(3)),
        (GPU1, GPU0): (f"pcie {GPU1} up", 1_000, gb(3)),
        (GPU1, GPU2): ("pcie a up", 1_000, gb(12)),
        (GPU2, GPU0): (f"pcie {GPU2} up", 1_000, gb(3)),
        (GPU2, GPU1): (f"pcie {GPU2} up", 1_000, gb(12)),
    }


def test_nvlink_bricks_add_up_and_come_before_pcie(tmp_path: Path) -> None:
    links = f"""
  - nvlink:
      latency: 9 us
      bandwidth: 25 GB/s
      bricks:
        - [{GPU0}, {GPU1}, 2]
        - [{GPU1}, {GPU0}]
  - pcie:
      latency: 10 us
      bandwidth: 12 GB/s
      host: []
      children: [{GPU0}, {GPU1}, {GPU2}]
"""
    found = links_of(tmp_path, (GPU0, GPU1, GPU2), links)
    assert found[GPU0, GPU1] == (f"nvlink {GPU0} -> {GPU1}", 9_000, gb(75))
    assert found[GPU1, GPU0] == (f"nvlink {GPU1} -> {GPU0}", 9_000, gb(75))
    assert found[GPU0, GPU2] == (f"pcie {GPU0} up", 10_000, gb(12))
    assert len(found) == 6


def test_an_nvswitch_is_left_through_the_port_of_the_source(tmp_path: Path) -> None:
    links = f"""
  - nvswitch: {{latency: 8 us, bandwidth: 300 GB/s, devices: [{GPU0}, {GPU1}, {GPU2}]}}
"""
    assert links_of(tmp_path, (GPU0, GPU1, GPU2), links) == {
        (src, dst): (f"nvswitch {src} egress", 8_000, gb(300))
        for src in (GPU0, GPU1, GPU2)
        for dst in (GPU0, GPU1, GPU2)
        if src != dst
    }


def test_hosts_of_a_network_share_their_adapter(tmp_path: Path) -> None:
    a, b, c = (f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(3))
    d = "/job:worker/replica:0/task:1/device:CPU:1"
    links = f"""
  - memory: {{latency: 2 us, bandwidth: 20 GB/s, devices: [{b}, {d}]}}
  - network:
      name: ib
      latency: 5 us
      bandwidth: 100 Gbit/s
      hosts:
        - {{name: x, devices: [{a}]}}
        - {{name: y, devices: [{b}, {d}]}}
        - {{name: z, devices: [{c}], bandwidth: 1 GB/s}}
"""
    fast, slow = gb(12.5), gb(1)
    assert links_of(tmp_path, (a, b, d, c), links) == {
        (a, b): ("ib x egress", 5_000, fast),
        (a, d): ("ib x egress", 5_000, fast),
        (a, c): ("ib x egress", 5_000, slow),
        (b, a): ("ib y egress", 5_000, fast),
        (b, c): ("ib y egress", 5_000, slow),
        (b, d): (f"memory {b} -> {d}", 2_000, gb(20)),
        (d, a): ("ib y egress", 5_000, fast),
        (d, c): ("ib y egress", 5_000, slow),
        (d, b): (f"memory {d} -> {b}", 2_000, gb(20)),
        (c, a): ("ib z egress", 5_000, slow),
        (c, b): ("ib z egress", 5_000, slow),
        (c, d): ("ib z egress", 5_000, slow),
    }


def test_the_work_of_a_networks_transfers_is_that_of_all_its_links() -> None:
    a, b, c = (f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(3))
    rows = "".join(f"  - {{name: {name}, kind: haswell-18}}\n" for name in (a, b, c))
    machine = machines.machine_from_yaml(f"""
format: hplacer-machine/1
name: m
devices:
{rows}
links:
  - link: {{src: {a}, dst: {b}, channel: x, latency: 1 us, bandwidth: 1 GB/s, receive: 1 us}}
  - network:
      name: ib
      latency: 5 us
      bandwidth: 100 Gbit/s
      send: 20 us
      send_bandwidth: 5 GB/s
      receive_bandwidth: 4 GB/s
      hosts:
        - {{name: x, devices: [{a}]}}
        - {{name: y, devices: [{b}, {c}]}}
""")
    work = {
        (link.src, link.dst): (
            link.send_ns,
            link.send_bytes_per_s,
            link.receive_ns,
            link.receive_bytes_per_s,
        )
        for link in machine.links
    }
    of_network = (20_000, gb(5), 0, gb(4))
    assert work == {
        (a, b): (0, 0, 1_000, 0),
        (a, c): of_network,
        (b, a): of_network,
        (c, a): of_network,
    }


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (
            f"pcie: {{latency: 1 us, bandwidth: 1 GB/s, host: [{CPU}], children: [{CPU}]}}",
            f"pcie.children[0][0]: '{CPU}' is there twice",
        ),
        (
            "pcie: {latency: 1 us, bandwidth: 1 GB/s, host: [], children: "
            "[{switch: a, children: []}, {switch: a, children: []}]}",
            "pcie.children[1].switch: 'a' is there twice",
        ),
        (
            f"nvlink: {{latency: 1 us, bandwidth: 1 GB/s, bricks: [[{GPU0}, {GPU0}]]}}",
            f"nvlink.bricks[0][1]: '{GPU0}' is there twice",
        ),
        (
            f"nvlink: {{latency: 1 us, bandwidth: 1 GB/s, bricks: [[{GPU0}, {CPU}, 65]]}}",
            "nvlink.bricks[0][2]: 65 is outside 1 to 64",
        ),
        (
            f"nvlink: {{latency: 1 us, bandwidth: 1 GB/s, bricks: [[{GPU0}]]}}",
            "nvlink.bricks[0]: expected [device, device] or [device, device, bricks]",
        ),
        (
            f"network: {{name: n, latency: 1 us, bandwidth: 1 GB/s, hosts: [{{name: a, devices: "
            f"[{CPU}]}}, {{name: b, devices: [{CPU}]}}]}}",
            f"network.hosts[1].devices[0]: '{CPU}' is there twice",
        ),
        (
            "network: {name: n, latency: 1 us, bandwidth: 1 GB/s, hosts: [{name: a, devices: []}, "
            "{name: a, devices: []}]}",
            "network.hosts[1].name: 'a' is there twice",
        ),
        (
            f"link: {{src: {CPU}, dst: {GPU0}, channel: c, latency: 1 us, bandwidth: 0 GB/s}}",
            "link.bandwidth: is outside 1 B/s to 1000000 TB/s",
        ),
        (
            "network: {name: n, latency: 1 us, bandwidth: 1 GB/s, send_bandwidth: 1 s, hosts: []}",
            "network.send_bandwidth: '1 s' is no bandwidth; write a number and a unit",
        ),
        (
            f"memory: {{latency: 1 us, bandwidth: 1 GB/s, send: 1 us, devices: [{CPU}]}}",
            "memory: unknown key 'send'; keys here: devices, latency, bandwidth",
        ),
    ],
)
def test_a_fault_in_a_topology_is_named(tmp_path: Path, links: str, message: str) -> None:
    with pytest.raises(MachineError) as caught:
        links_of(tmp_path, (CPU, GPU0), f"  - {links}\n")
    assert str(caught.value).startswith(f"links[0].{message}")


# ---- shipped machines ----


@pytest.mark.parametrize("name", machines.shipped_machines())
def test_a_shipped_machine_is_sane(name: str) -> None:
    machine = hp.load_machine(name)
    assert machine.name == name
    count = len(machine.devices)
    assert len(machine.links) == count * (count - 1)
    assert all(memory >= 12 * 2**30 for memory in machine.memory_bytes)
    # What the papers' devices reached under the TensorFlow of 2018 is no data sheet's.
    most_ns = 100_000 if name.startswith("papers-") else 20_000
    for kind in machine.kinds:
        assert 100 <= kind.launch_overhead_ns <= most_ns
        assert 1e11 <= kind.flops_per_s["float32"] <= 1e14
        # Between the ridge points of a slow CPU and a fast GPU, in FLOPs per byte.
        assert 5 <= kind.flops_per_s["float32"] / kind.memory_bytes_per_s <= 60
        assert kind.flops_per_s["float64"] < kind.flops_per_s["float32"]
    slowest_memory = min(kind.memory_bytes_per_s for kind in machine.kinds)
    assert all(1_000 <= link.latency_ns <= 100_000 for link in machine.links)
    assert all(link.bytes_per_s < slowest_memory * 2 for link in machine.links)


def test_a_dgx_1_is_a_hybrid_cube_mesh() -> None:
    machine = hp.load_machine("8xv100")
    bricks = {
        (link.src, link.dst): link.bytes_per_s // gb(25)
        for link in machine.links
        if link.channel.startswith("nvlink")
    }
    for index in range(8):
        gpu = f"/device:GPU:{index}"
        own = {dst: count for (src, dst), count in bricks.items() if src == gpu}
        assert sorted(own.values()) == [1, 1, 2, 2]  # six bricks, four neighbours
        across = {int(dst[-1]) for dst in own if int(dst[-1]) // 4 != index // 4}
        assert len(across) == 1  # one neighbour in the other half


def test_two_k40_do_not_share_a_channel_but_eight_do() -> None:
    two, eight = hp.load_machine("1cpu-2xk40"), hp.load_machine("1cpu-8xk40")
    assert len({link.channel for link in two.links if link.src == CPU}) == 2
    assert len({link.channel for link in eight.links if link.src == CPU}) == 2
    (k40,) = (kind for kind in two.kinds if kind.name == "k40")
    assert k40.memory_bytes == 12 * 2**30
    assert k40 in eight.kinds


def test_the_worked_example_of_the_documentation(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "reference" / "machines.md").read_text()
    path = tmp_path / "machine.yaml"
    path.write_text(text.split("```yaml\n")[1].split("```")[0])
    machine = hp.load_machine(path)
    rows = text.split("| from | to |")[1].split("\n\n")[0].splitlines()[2:]
    assert [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows] == [
        (
            link.src,
            link.dst,
            link.channel,
            DURATION.format(link.latency_ns),
            BYTE_RATE.format(link.bytes_per_s),
        )
        for link in machine.links
    ]
