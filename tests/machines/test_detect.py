"""Detection: the operating system, the GPU driver, and the command with the real TensorFlow."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

import hplacer_optimizer as hp
from hplacer_optimizer import cli, machines
from hplacer_optimizer.machines import describe, host, nvidia, shipped_kinds
from hplacer_optimizer.machines import emulated as emulated_machine
from hplacer_optimizer.machines.detect import detect, is_limit, match_model
from tests.commands import hplacer_process
from tests.processes import ROOT

CPU = "/device:CPU:0"
GPUS = GPU0, GPU1, GPU2, GPU3 = tuple(f"/device:GPU:{i}" for i in range(4))


def gb(figure: float) -> int:
    return round(figure * 10**9)


@dataclass(frozen=True)
class Listed:
    name: str
    type: str = "CPU"
    description: str = ""
    memory_bytes: int = 256 * 2**20


LOCAL = "/job:localhost/replica:0/task:0"


def cpus(count: int, task: str = LOCAL) -> list[Listed]:
    return [Listed(f"{task}/device:CPU:{index}") for index in range(count)]


@pytest.fixture
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = host.Processor(model="Test", hertz=2e9, hertz_known=True, flops_per_cycle=32)
    monkeypatch.setattr(host, "processor", lambda: processor)
    monkeypatch.setattr(host, "usable_cores", lambda: 16.0)
    monkeypatch.setattr(host, "memory_bytes", lambda: 64 * 2**30)
    monkeypatch.setattr(host, "network_bytes_per_s", lambda: None)


@pytest.mark.usefixtures("sixteen_cores")
@pytest.mark.parametrize(
    ("sharing", "inter_op", "intra_op", "slots", "slot_cores"),
    [
        (1, 0, 0, 1, 16),  # TensorFlow's default: every op gets all cores
        (1, 0, 1, 16, 1),
        (1, 4, 1, 4, 1),
        (1, 0, 4, 4, 4),
        (1, 2, 4, 2, 4),
        (1, 0, 6, 2, 6),
        (1, 0, 99, 1, 16),
        (2, 0, 0, 1, 8),
        (2, 0, 1, 8, 1),
        (2, 4, 1, 4, 1),
        (4, 2, 0, 1, 4),
    ],
)
def test_slots_and_rates_of_a_cpu(
    sharing: int, inter_op: int, intra_op: int, slots: int, slot_cores: int
) -> None:
    tasks = [f"/job:worker/replica:0/task:{index}" for index in range(sharing)]
    machine = detect(
        [device for task in tasks for device in cpus(1, task)],
        inter_op_threads=inter_op,
        intra_op_threads=intra_op,
        hosts=dict.fromkeys(tasks, "a"),
    )
    (kind,) = machine.kinds
    assert kind.slots == slots
    assert kind.flops_per_s["float32"] == slot_cores * 2e9 * 32 / 2
    assert kind.memory_bytes_per_s == slot_cores * gb(10)
    assert machine.memory_bytes == (64 * 2**30 // sharing,) * sharing
    assert len(machine.links) == sharing * (sharing - 1)
    assert any("a CPU (Test) reaches 50%" in text for text in machine.assumptions)


@pytest.mark.usefixtures("sixteen_cores")
@pytest.mark.parametrize(("inter_op", "threads"), [(0, 16), (4, 4), (99_999, 65_536)])
def test_as_many_threads_launch_as_there_are_between_ops(inter_op: int, threads: int) -> None:
    gpu = Listed(LOCAL + GPU0, "GPU", "name: Tesla K40c", 2**30)
    assert detect([*cpus(1), gpu], inter_op_threads=inter_op).inter_op_threads == threads


@pytest.mark.usefixtures("sixteen_cores")
def test_the_cpu_devices_of_one_task_share_all_that_it_has() -> None:
    alone = detect(cpus(1), inter_op_threads=4, intra_op_threads=2)
    machine = detect(cpus(3), inter_op_threads=4, intra_op_threads=2)
    assert machine.kinds == alone.kinds
    assert machine.kinds[0].slots == 4
    assert machine.memory_bytes == (64 * 2**30,) * 3
    assert {device.cores for device in machine.devices} == {f"cores of {LOCAL}"}
    assert [device.cores for device in alone.devices] == [None]
    shared = "CPU devices of one task share its cores and memory: two are no faster than one"
    assert shared in machine.assumptions
    assert shared not in alone.assumptions


@pytest.mark.usefixtures("sixteen_cores")
def test_the_tasks_of_a_host_have_equal_parts_of_it() -> None:
    tasks = [f"/job:worker/replica:0/task:{index}" for index in range(2)]
    devices = [*cpus(2, tasks[0]), *cpus(1, tasks[1])]
    machine = detect(devices, hosts=dict.fromkeys(tasks, "a"))
    (kind,) = machine.kinds
    assert kind.name == "CPU (1/2 of the cores)"
    assert machine.memory_bytes == (32 * 2**30,) * 3
    assert (machine.inter_op_threads, kind.turn_ns, kind.cold_ns) == (8, 1_200_000 / 8, 100_000)
    assert [device.cores for device in machine.devices] == [f"cores of {tasks[0]}"] * 2 + [None]


@pytest.mark.usefixtures("sixteen_cores")
@pytest.mark.parametrize(("all_cores", "slot_cores"), [(16, 8), (64, 16)])
def test_a_task_that_is_bound_to_some_cores_does_not_share_them(
    all_cores: float, slot_cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "all_cores", lambda: all_cores)
    tasks = [f"/job:worker/replica:0/task:{index}" for index in range(2)]
    devices = [device for task in tasks for device in cpus(1, task)]
    machine = detect(devices, hosts=dict.fromkeys(tasks, "a"), is_task=True)
    (kind,) = machine.kinds
    assert kind.name == "CPU (1/2 of the cores)"
    assert kind.flops_per_s["float32"] == slot_cores * 2e9 * 32 / 2
    assert (machine.inter_op_threads, kind.turn_ns) == (slot_cores, 1_200_000 / slot_cores)


@pytest.mark.usefixtures("sixteen_cores")
def test_tasks_and_hosts() -> None:
    tasks = [f"/job:worker/replica:0/task:{index}" for index in range(3)]
    devices = [device for task in tasks for device in cpus(1, task)]
    machine = detect(devices, hosts={tasks[0]: "a", tasks[1]: "a", tasks[2]: "b"})
    shared, alone = machine.kinds
    assert (shared.memory_bytes, alone.memory_bytes) == (32 * 2**30, 64 * 2**30)
    assert machine.device_kind == (0, 0, 1)
    channels = {(link.src, link.dst): link.channel for link in machine.links}
    a, b, c = machine.device_names
    assert channels == {
        (a, b): f"loopback {tasks[0]} egress",
        (b, a): f"loopback {tasks[1]} egress",
        (a, c): "network a egress",
        (b, c): "network a egress",
        (c, a): "network b egress",
        (c, b): "network b egress",
    }
    assert "all hosts are like this one" in machine.assumptions


@pytest.mark.usefixtures("sixteen_cores")
def test_gpus_are_known_by_model_and_their_own_memory() -> None:
    text = "device: {}, name: NVIDIA A100-SXM4-40GB, pci bus id: 0000:0{}:00.0"
    gpus = [
        Listed(f"{LOCAL}/device:GPU:{i}", "GPU", text.format(i, i), memory)
        for i, memory in enumerate([38 * 2**30, 39 * 2**30])
    ]
    strange = Listed(f"{LOCAL}/device:GPU:2", "GPU", "name: Voodoo 2", 12 * 2**20)
    machine = detect([*cpus(1), *gpus, strange])
    assert [kind.name for kind in machine.kinds] == [
        "CPU",
        "GPU NVIDIA A100-SXM4-40GB",
        "GPU Voodoo 2",
    ]
    assert machine.kinds[1].flops_per_s == machines.shipped_kinds()["a100"].flops_per_s
    assert machine.memory_bytes[1:] == (38 * 2**30, 39 * 2**30, 12 * 2**20)
    assert [is_limit(kind.name, kind.type) for kind in machine.kinds] == [False, True, True]
    assert not any(is_limit(name, kind.type) for name, kind in machines.shipped_kinds().items())
    assert any("rates of 'Voodoo 2' are not known" in text for text in machine.assumptions)
    assert any("links of GPUs: PCIe" in text for text in machine.assumptions)
    assert len(machine.links) == 4 * 3


def test_that_a_gpu_was_divided_is_told() -> None:
    text = "device: {}, name: NVIDIA H200, pci bus id: 0000:0{}:00.0"

    def assumed(*numbers: int) -> bool:
        gpus = [
            Listed(f"{LOCAL}/device:GPU:{i}", "GPU", text.format(number, number), 2**30)
            for i, number in enumerate(numbers)
        ]
        return any("divided" in text for text in detect([*cpus(1), *gpus]).assumptions)

    assert assumed(0, 0)
    assert not assumed(0, 1)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("Tesla K40m", "k40"),
        ("Tesla K40c", "k40"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10"),
        ("NVIDIA L4", "l4"),
        ("Tesla T4", "t4"),
        ("NVIDIA L40S", None),
        ("NVIDIA A1000", None),
        ("Quadro T400", None),
        ("", None),
    ],
)
def test_a_model_has_its_kind(model: str, kind: str | None) -> None:
    found = match_model(model, machines.shipped_kinds())
    assert (found.name if found else None) == kind


# As `nvidia-smi` prints them: two pairs behind switches, NVLink between 0 and 1 besides.
TABLE = """00000000:06:00.0, 3, 16
00000000:07:00.0, 3, 16
00000000:0A:00.0, 4, 8
00000000:0B:00.0, [N/A], [N/A]
"""
MATRIX = """\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV2\tSYS\tSYS\tPIX\t0-19\t0
GPU1\tNV2\t X \tSYS\tSYS\tPIX\t0-19\t0
GPU2\tSYS\tSYS\t X \tPIX\tSYS\t20-39\t1
GPU3\tSYS\tSYS\tPIX\t X \tSYS\t20-39\t1
mlx5_0\tPIX\tPIX\tSYS\tSYS\t X \t\t

Legend:

  X    = Self
"""


def described(bus: str) -> str:
    return f"device: 0, name: Tesla V100-SXM2-16GB, pci bus id: 0000:{bus}:00.0, compute"


def driver_links(
    monkeypatch: pytest.MonkeyPatch, buses: dict[str, str], table: str, matrix: str
) -> tuple[dict[tuple[str, str], tuple[str, int]], set[str]]:
    monkeypatch.setattr(
        nvidia, "_nvidia_smi", lambda first, _: matrix if first == "topo" else table
    )
    assumptions: set[str] = set()
    found: dict[tuple[str, str], tuple[str, int]] = {}
    texts = {name: described(bus) for name, bus in buses.items()}
    for link in nvidia.links([CPU], texts, True, assumptions):
        found.setdefault((link.src, link.dst), (link.channel, link.bytes_per_s))
    return found, assumptions


def test_the_driver_tells_the_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    # TensorFlow numbers them otherwise than the driver: CUDA_VISIBLE_DEVICES=3,2,1,0.
    buses = dict(zip(GPUS, ("0b", "0a", "07", "06"), strict=True))
    found, assumptions = driver_links(monkeypatch, buses, TABLE, MATRIX)
    assert not assumptions
    assert len(found) == 20
    assert found[GPU2, GPU3] == (f"nvlink {GPU2} -> {GPU3}", gb(50))
    assert found[GPU0, GPU1] == (f"pcie {GPU0} up", gb(12))  # 4.0 x8 is as fast as 3.0 x16
    assert found[GPU0, CPU][0] == found[GPU1, CPU][0] == f"pcie switch of {GPU0} up"
    assert found[CPU, GPU2] == (f"pcie {GPU2} down", gb(12))


def test_the_driver_is_asked_once_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    command = tmp_path / "nvidia-smi"
    command.write_text(f'#!/bin/sh\necho "$1" >> {asked}\nexit 9\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    nvidia._nvidia_smi.cache_clear()
    for _ in range(3):
        assumptions: set[str] = set()
        list(nvidia.links([CPU], {GPU0: described("06")}, True, assumptions))
        assert any(text.startswith("links of GPUs: PCIe") for text in assumptions)
    assert len(asked.read_text().split()) == 2  # for the GPUs, and for how they are linked
    nvidia._nvidia_smi.cache_clear()


def test_shared_bricks_are_an_nvswitch(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        "\t".join([f"GPU{i}", *("X" if i == j else "NV12" for j in range(4)), "0-63"])
        for i in range(4)
    ]
    buses = dict(zip(GPUS, ("06", "07", "0a", "0b"), strict=True))
    found, _ = driver_links(monkeypatch, buses, TABLE, "\n".join(rows))
    for src in GPUS:
        for dst in GPUS:
            if src != dst:
                assert found[src, dst] == (f"nvswitch {src} egress", gb(300))


@pytest.mark.parametrize(
    ("table", "matrix"),
    [("", MATRIX), (TABLE, ""), (TABLE, "GPU0\t X"), ("\x00", "\x00"), ("a,b\n" * 9, MATRIX)],
)
def test_a_driver_that_makes_no_sense(
    monkeypatch: pytest.MonkeyPatch, table: str, matrix: str
) -> None:
    found, assumptions = driver_links(monkeypatch, {GPU0: "06", GPU1: "07"}, table, matrix)
    assert len(found) == 6
    assert [text[:19] for text in assumptions] == ["links of GPUs: PCIe"]


# ---- emulated devices ----


@pytest.fixture
def emulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> machines.Machine:
    """The machine that this process seems to be."""
    machine = machines.load_machine("8xa100")
    machines.save_machine(machine, tmp_path / "machine.yaml")
    monkeypatch.setenv(emulated_machine.VARIABLE, str(tmp_path / "machine.yaml"))
    return machine


def seen(machine: machines.Machine, gpus: int) -> list[Listed]:
    """As TensorFlow lists the emulated devices: with a CPU of 256 MB."""
    rows = zip(machine.device_names[: gpus + 1], machine.memory_bytes, strict=False)
    return [
        Listed(
            LOCAL + name, "CPU" if "CPU" in name else "GPU", "", 2**28 if "CPU" in name else size
        )
        for name, size in rows
    ]


def test_emulated_devices_are_those_of_their_machine(emulated: machines.Machine) -> None:
    found = detect(seen(emulated, 8), inter_op_threads=24)
    assert found.inter_op_threads == 24
    assert detect(seen(emulated, 8)).inter_op_threads == emulated.inter_op_threads
    assert (found.name, found.kinds, found.memory_bytes) == (
        emulated.name,
        emulated.kinds,
        emulated.memory_bytes,
    )
    assert found.device_names == tuple(LOCAL + name for name in emulated.device_names)
    assert [
        replace(link, src=link.src[len(LOCAL) :], dst=link.dst[len(LOCAL) :])
        for link in found.links
    ] == list(emulated.links)
    assert detect(cpus(2)).name == "detected"  # the second is not one of the machine's
    assert detect(cpus(1, "/job:worker/replica:0/task:0")).name == "detected"


def test_a_session_may_have_a_part_of_them(emulated: machines.Machine) -> None:
    devices = seen(emulated, 2)
    devices[2] = replace(devices[2], memory_bytes=2**30)  # option memory_limit
    found = detect(devices[::-1])
    assert found.device_names == tuple(device.name for device in devices[::-1])
    assert found.memory_bytes == (2**30, emulated.memory_bytes[1], emulated.memory_bytes[0])
    assert len(found.links) == 6
    assert {link.bytes_per_s for link in found.links if "CPU" not in link.src + link.dst} == {
        gb(300)
    }


def numbered(gpu: Listed, number: int) -> Listed:
    """As TensorFlow describes the GPU of that number among all of the host."""
    return replace(gpu, description=f"device: {number}, name: NVIDIA A100, pci bus id: 0000:0a")


def test_a_session_may_see_other_gpus_than_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = machines.load_machine("2xa100")
    k40 = machines.shipped_kinds()["k40"]
    cpu, first, second = machine.devices
    unequal = replace(
        machine,
        kinds=(*machine.kinds, k40),
        devices=(cpu, first, replace(second, kind="k40", memory_bytes=None)),
    )
    machines.save_machine(unequal, tmp_path / "machine.yaml")
    monkeypatch.setenv(emulated_machine.VARIABLE, str(tmp_path / "machine.yaml"))
    host_cpu, gpu = seen(unequal, 1)
    found = detect([host_cpu, numbered(gpu, 1)])
    assert found.device_names == (LOCAL + CPU, LOCAL + GPU0)
    assert found.devices[1].kind == "k40"
    assert found.memory_bytes[1] == k40.memory_bytes
    assert detect([host_cpu, numbered(gpu, 2)]).name == "detected"  # there is no third one


def test_a_session_may_have_divided_a_gpu(emulated: machines.Machine) -> None:
    """The first into two of 1 and 2 GiB, so that the second is TensorFlow's third."""
    host_cpu, first, second, third = seen(emulated, 3)
    found = detect(
        [
            host_cpu,
            numbered(replace(first, memory_bytes=2**30), 0),
            numbered(replace(second, memory_bytes=2**31), 0),
            numbered(third, 1),
        ]
    )
    assert found.name == emulated.name
    assert found.memory_bytes[1:] == (2**30, 2**31, emulated.memory_bytes[2])
    between = {(link.src[-5:], link.dst[-5:]): link for link in found.links}
    assert len(found.links) == len(between) == 4 * 3
    within = between["GPU:0", "GPU:1"]
    kind = next(kind for kind in emulated.kinds if kind.type == "GPU")
    assert (within.latency_ns, within.bytes_per_s) == (0, kind.memory_bytes_per_s // 2)
    assert between["GPU:0", "GPU:2"].bytes_per_s == gb(300)
    assert between["GPU:0", "GPU:2"].channel == between["GPU:1", "GPU:2"].channel
    assert found.assumptions[-1].startswith("devices that a GPU was divided into run at the same")


def test_this_host() -> None:
    assert 0 < host.usable_cores() <= (os.cpu_count() or 1)
    assert 2**20 < host.free_memory_bytes() < host.memory_bytes()
    assert 2**28 < host.memory_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 1e8 < host.processor().hertz < 1e10
    assert host.processor().flops_per_cycle in (8, 16, 32, 64)
    assert host.numa_nodes() >= 1


@pytest.mark.parametrize(
    ("own", "files"),
    [
        (
            "0::/outer/inner\n",
            {
                "outer/cpu.max": "50000 100000",
                "outer/memory.max": "1073741824",
                "outer/memory.current": "1073740824",
                "outer/memory.stat": "file 99\ninactive_file 24",
                "outer/inner/cpu.max": "max 100000",
                "outer/inner/memory.max": "max",
            },
        ),
        (
            "4:memory:/outer/inner\n2:cpu,cpuacct:/outer/inner\n1:cpuset:/\n0::/\n",
            {
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "cpu/outer/cpu.cfs_quota_us": "50000",
                "cpu/outer/cpu.cfs_period_us": "100000",
                "memory/outer/inner/memory.limit_in_bytes": "1073741824",
                "memory/outer/inner/memory.usage_in_bytes": "1073740824",
                "memory/outer/inner/memory.stat": "inactive_file 24",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
        ),
        (  # in a container, whose own group is the root that it sees
            "4:memory:/docker/0123\n2:cpuacct,cpu:/docker/0123\n",
            {
                "cpu/cpu.cfs_quota_us": "25000",
                "cpu/cpu.cfs_period_us": "50000",
                "memory/memory.limit_in_bytes": "1073741824",
                "memory/memory.usage_in_bytes": "1073740800",
            },
        ),
    ],
    ids=["version 2", "version 1", "version 1 in a container"],
)
def test_a_control_group_limits_a_host(
    own: str, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(host, "_CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(host, "_OWN_GROUPS", tmp_path / "own")
    assert host.usable_cores() == host.all_cores() == 0.5
    assert host.whole_cores() == 1
    assert host.memory_bytes() == 2**30
    assert host.free_memory_bytes() == 1024


@pytest.mark.parametrize(
    ("own", "file"),
    [
        ("0::/jobs\n", "jobs/cpuset.cpus.effective"),
        ("1:cpuset:/jobs\n", "cpuset/jobs/cpuset.effective_cpus"),
    ],
    ids=["version 2", "version 1"],
)
@pytest.mark.parametrize(("cores", "count"), [("7", 1), ("0-3,8,10-11", 7), ("", 1000)])
def test_a_control_group_has_some_of_the_cores(
    own: str, file: str, cores: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(f"{cores}\n")
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(host, "_CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(host, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "cpu_count", lambda: 1000)
    assert host.all_cores() == count


# ---- the command, with the real TensorFlow ----


def test_list_and_show(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    assert cli.main(["machine", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [machine["name"] for machine in listed] == list(machines.shipped_machines())
    assert cli.main(["machine", "list"]) == 0
    assert "1 x haswell-18, 2 x k40" in capsys.readouterr().out
    assert cli.main(["machine", "show", "1cpu-2xk40", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["kinds"][1]["flops_per_s"] == {"float32": 4.29e12, "float64": 1.43e12}
    assert cli.main(["machine", "show", "8xv100"]) == 0
    text = capsys.readouterr().out
    for expected in ("float32 15.7 TFLOP/s", "pcie plx0 up", "50 GB/s", "assumes The link"):
        assert expected in text


def test_show_tells_of_work_where_there_is_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    plain = hp.load_machine("1cpu-2xk40")
    cpu, *others = plain.kinds
    first, *gpus = plain.devices
    link, *links = plain.links
    link = replace(link, send_ns=20_000, receive_ns=40_000, receive_bytes_per_s=4 * 10**9)
    machine = replace(
        plain,
        kinds=(replace(cpu, turn_ns=3_000_000, cold_ns=400_000), *others),
        devices=(replace(first, start_ns=140_000), *gpus),
        links=(link, *links),
    )
    hp.save_machine(machine, tmp_path / "m.yaml")
    assert cli.main(["machine", "show", str(tmp_path / "m.yaml")]) == 0
    text = capsys.readouterr().out
    for shown in (
        "turn",
        "3 ms",
        "cold",
        "400 us",
        "start",
        "140 us",
        "send",
        "20 us",
        "receive bandwidth",
    ):
        assert shown in text
    assert "send bandwidth" not in text
    assert cli.main(["machine", "show", "1cpu-2xk40"]) == 0
    text = capsys.readouterr().out
    assert not any(hidden in text for hidden in ("turn", "start", "send", "receive"))


def test_show_refuses_what_is_no_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["machine", "show", "8xv10"]) == 2
    assert "no machine '8xv10'; did you mean '8xv100'? give a YAML" in capsys.readouterr().err


def test_detect_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    path = tmp_path / "here.yaml"
    done = hplacer_process("machine", "detect", "-o", path, "--json")
    assert done.returncode == 0, done.stderr
    machine = hp.load_machine(path)
    assert json.loads(done.stdout)["name"] == machine.name
    assert machine.device_names == (CPU,)
    assert machine.memory_bytes == (host.memory_bytes(),)
    assert machine.kinds[0].type == "CPU"
    assert machine.assumptions
    assert "assumptions" in yaml.safe_load(path.read_text())


def test_detect_has_a_time_limit() -> None:
    done = hplacer_process("machine", "detect", "--timeout", "0.05")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "hplacer: error: TensorFlow does not answer within 0.05 seconds\n"


SERVER = """import tensorflow as tf
import sys
addresses, index = sys.argv[1].split(","), int(sys.argv[2])
cluster = tf.train.ClusterSpec({"worker": addresses})
server = tf.distribute.Server(cluster, job_name="worker", task_index=index)
print("up", flush=True)
server.join()
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def servers() -> Iterator[list[str]]:
    """Addresses of a cluster of three, the last of which never comes up."""
    pytest.importorskip("tensorflow")
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SERVER, ",".join(addresses), str(index)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        for index in range(2)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
        yield addresses
    finally:
        for process in running:
            process.kill()
            process.communicate()


def test_detect_a_cluster(servers: list[str], tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    done = hplacer_process("machine", "detect", "--cluster", ",".join(servers[:2]), "-o", path)
    assert done.returncode == 0, done.stderr
    machine = hp.load_machine(path)
    names = [f"/job:worker/replica:0/task:{index}/device:CPU:0" for index in range(2)]
    assert list(machine.device_names) == names
    assert len(machine.links) == 2
    # Both run here, so each gets half.
    assert machine.memory_bytes == (host.memory_bytes() // 2,) * 2
    assert "all hosts are like this one" not in machine.assumptions


@pytest.mark.parametrize(
    ("driver", "rate"),
    [
        ("Tesla K40m, 11441 MiB, 11000 MiB\n" * 2, "k40"),
        ("Tesla K40m, 11441 MiB, 11000 MiB\nTesla V100, 16160 MiB, 16000 MiB\n", None),
        (None, None),
    ],
)
def test_gpus_of_a_cluster_are_like_those_here(
    monkeypatch: pytest.MonkeyPatch, driver: str | None, rate: str | None
) -> None:
    """Servers tell no models: sessions list names, types and memory."""
    name = "/job:worker/replica:0/task:{}/device:{}:0"
    listed = {
        address: [
            describe._Listed(
                name=name.format(task, type_), type=type_, description="", memory_bytes=1 << 33
            )
            for type_ in ("CPU", "GPU")
        ]
        for task, address in enumerate(("127.0.0.1:1", "127.0.0.1:2"))
    }
    monkeypatch.setattr(describe, "_ask", lambda *_: listed)
    monkeypatch.setattr(describe, "_reach", lambda end: (end[0], ""))
    monkeypatch.setattr(nvidia, "_nvidia_smi", lambda *_: driver)
    machine = describe.describe_cluster([*listed], timeout_s=1)
    expected = 10e12 if rate is None else shipped_kinds()[rate].flops_per_s["float32"]
    gpus = [kind for kind in machine.kinds if kind.type == "GPU"]
    assert [kind.flops_per_s["float32"] for kind in gpus] == [expected]
    told = [text for text in machine.assumptions if "GPUs are like those of this host" in text]
    assert bool(told) is (rate is not None)


def test_an_unreachable_server_is_named(servers: list[str]) -> None:
    done = hplacer_process("machine", "detect", "--cluster", ",".join(servers))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"can be reached at {servers[2]} (Connection refused)" in done.stderr
    assert servers[0] not in done.stderr


def test_a_server_that_never_answers_is_named(servers: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        done = hplacer_process(
            "machine", "detect", "--cluster", f"{servers[0]},{address}", "--timeout", 60
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert address in done.stderr
    assert servers[0] not in done.stderr


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ("localhost", "'localhost' is no address; write host:port"),
        ("localhost:0", "'localhost:0' is no address; write host:port"),
        ("localhost:99999", "'localhost:99999' is no address; write host:port"),
        ("-c:1", "no TensorFlow server can be reached at -c:1"),
        ("a:1,a:1", "an address of the cluster is there twice"),
    ],
)
def test_a_wrong_address(cluster: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["machine", "detect", f"--cluster={cluster}"]) == 1
    assert message in capsys.readouterr().err


BRIDGED = """
mount -t sysfs sysfs /sys
ip link add v0 type veth peer name v1
ip link set v0 up
ip link set v1 up
cat /sys/class/net/v0/speed
exec {python} -c 'from hplacer_optimizer.machines import host; print(host.network_bytes_per_s())'
"""


def test_a_virtual_adapter_tells_no_speed() -> None:
    """As containers have them: 10 Gbit/s, whatever they lead to."""
    namespace = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    if subprocess.run([*namespace, "ip", "link"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be made here")
    shell = [*namespace, "sh", "-ec", BRIDGED.format(python=sys.executable)]
    done = subprocess.run(shell, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["10000", "None"]
