"""Machines named NxKIND, against the shipped files and by hand."""

from __future__ import annotations

import re

import pytest

import hplacer_optimizer as hp
from hplacer_optimizer import cli, machines
from hplacer_optimizer.errors import MachineError
from hplacer_optimizer.machines.family import MAX_GPUS, family_document, family_kinds
from hplacer_optimizer.machines.machine import Machine
from hplacer_optimizer.support.document import Field

GPU_KINDS = {name for name, kind in machines.shipped_kinds().items() if kind.type == "GPU"}


def by_rule(name: str) -> Machine:
    """The machine by the table, also where a file of that name is shipped."""
    document = {"format": machines.machine_file.FORMAT, **family_document(name)}
    return machines.machine_file._read_machine(Field(document, ""))


def rates(machine: Machine) -> dict[tuple[str, str], tuple[str, int, int]]:
    """The channel, latency and bandwidth of each pair; what a switch is called does not matter."""
    return {
        (link.src, link.dst): (
            re.sub(r"\b(plx|pex)", "switch", link.channel),
            link.latency_ns,
            link.bytes_per_s,
        )
        for link in machine.links
    }


def bandwidth(machine: Machine, src: str, dst: str) -> int:
    """In GB/s, of links between devices as `GPU:0`."""
    names = (f"/device:{src}", f"/device:{dst}")
    (found,) = (link for link in machine.links if (link.src, link.dst) == names)
    return found.bytes_per_s // 10**9


def ways_to_the_host(name: str) -> list[int]:
    """How many GPUs share each PCIe link to the host, in the order of GPUs."""
    links = [link for link in hp.load_machine(name).links if link.dst == "/device:CPU:0"]
    channels = [link.channel for link in links]
    return [channels.count(channel) for channel in dict.fromkeys(channels)]


@pytest.mark.parametrize(
    ("name", "shipped"),
    [
        *((name, name) for name in ("8xv100", "8xa100", "8xh100", "8xh200")),
        *((f"{count}xk40", f"1cpu-{count}xk40") for count in (2, 4, 8)),
        *((f"{count}xk40-2018", f"papers-{count}xk40") for count in (2, 4, 8)),
    ],
)
def test_the_table_agrees_with_the_shipped_files(name: str, shipped: str) -> None:
    machine, file = by_rule(name), hp.load_machine(shipped)
    assert (machine.kinds, machine.devices) == (file.kinds, file.devices)
    assert rates(machine) == rates(file)


def test_a_shipped_file_is_read_where_there_is_one() -> None:
    text = "Two GPUs share each of four PCIe switches and its link to the host."
    assert hp.load_machine("8xa100").assumptions == (text,)


def test_every_kind_of_gpu_has_machines() -> None:
    assert set(family_kinds()) == GPU_KINDS
    for kind in family_kinds():
        for count in (1, 3, MAX_GPUS):
            machine = hp.load_machine(f"{count}x{kind}")
            assert machine.name == f"{count}x{kind}"
            assert [device.kind for device in machine.devices[1:]] == [kind] * count
            assert len(machine.links) == count * (count + 1)
            assert machine.assumptions


def test_what_a_generated_machine_is_like() -> None:
    machine = hp.load_machine("4xa100")
    assert [kind.name for kind in machine.kinds] == ["rome-128", "a100"]
    assert machine.memory_bytes == (2**40, *[40 * 2**30] * 4)
    assert bandwidth(machine, "GPU:0", "GPU:3") == 300
    assert bandwidth(machine, "GPU:0", "CPU:0") == bandwidth(machine, "CPU:0", "GPU:0") == 25
    assert machine.assumptions == (
        "The machine is a DGX A100, but has 4 instead of 8 GPUs.",
        "Each GPU has a PCIe link of its own to the host.",
    )
    assert hp.load_machine("4xa100-80gb").memory_bytes == (2**41, *[80 * 2**30] * 4)


def test_a_part_of_the_cube_mesh_and_more_than_it() -> None:
    four, nine = hp.load_machine("4xv100"), hp.load_machine("9xv100")
    to_others = [bandwidth(four, "GPU:0", f"GPU:{index}") for index in (1, 2, 3)]
    assert to_others == [25, 25, 50]
    assert {bandwidth(nine, "GPU:8", f"GPU:{index}") for index in range(8)} == {150}
    assert nine.assumptions[0] == "The machine is a DGX-2, but has 9 instead of 16 GPUs."


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1xt4", [1]),
        ("4xt4", [1, 1, 1, 1]),
        ("6xt4", [2, 1, 2, 1]),
        ("16xt4", [4, 4, 4, 4]),
        ("3xk40", [2, 1]),
        ("8xl4", [1] * 8),
    ],
)
def test_gpus_are_spread_over_the_links_to_the_host(name: str, expected: list[int]) -> None:
    assert ways_to_the_host(name) == expected


def test_gpus_without_nvlink_talk_over_pcie() -> None:
    for kind, rate in {"t4": 12, "p100": 12, "a10": 25, "l4": 25, "k40": 10}.items():
        assert bandwidth(hp.load_machine(f"2x{kind}"), "GPU:0", "GPU:1") == rate


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("4xa1000", "4xa100"),
        ("40xa100", "4xa100"),
        ("0xa100", "10xa100"),
        ("04xa100", "4xa100"),
        ("4XA100", "4xa100"),
        ("17xl4", "7xl4"),
    ],
)
def test_a_wrong_name(name: str, meant: str) -> None:
    message = (
        f"^no machine '{name}'; did you mean '{meant}'\\? .* or NxKIND with N from 1 to 16 and"
    )
    with pytest.raises(MachineError, match=message):
        hp.load_machine(name)


def test_the_commands_know_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["machine", "list"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("others: NxKIND with N from 1 to 16 and KIND one of k40, ")
    assert set(last.rpartition(" one of ")[2].split(", ")) == GPU_KINDS
    assert cli.main(["machine", "show", "4xa100"]) == 0
    assert "4xa100: 5 devices, 20 links\nassumes The machine is a DGX" in capsys.readouterr().out
