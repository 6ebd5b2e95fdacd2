"""Machine files, their topologies, and detection with the real TensorFlow."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hplacer_optimizer as hp
from hplacer_optimizer import machines
from hplacer_optimizer.errors import MachineError
from hplacer_optimizer.machines.machine import Device, DeviceKind, Link, Machine
from hplacer_optimizer.support.document import MAX_BYTES

CPU, GPU0, GPU1, GPU2, GPU3 = "/device:CPU:0", *(f"/device:GPU:{i}" for i in range(4))

SMALL = f"""
format: hplacer-machine/1
name: small
kinds:
  cpu:
    type: CPU
    flops: {{float32: 100 GFLOP/s}}
    memory: 64 GiB
    memory_bandwidth: 50 GB/s
    launch_overhead: 1 us
    slots: 4
devices:
  - {{name: {CPU}, kind: cpu}}
  - {{name: {GPU0}, kind: k40}}
  - {{name: {GPU1}, kind: k40, memory: 8 GiB}}
links:
  - link: {{src: {CPU}, dst: [{GPU0}, {GPU1}], channel: down, latency: 10 us, bandwidth: 12 GB/s}}
"""


def load(tmp_path: Path, text: str | bytes) -> Machine:
    path = tmp_path / "machine.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return hp.load_machine(path)


def error_of(tmp_path: Path, text: str | bytes) -> str:
    """The message of a refused file, without the file's name, which it must have."""
    with pytest.raises(MachineError) as caught:
        load(tmp_path, text)
    message, _, name = str(caught.value).rpartition(" (in file ")
    assert name == f"'{tmp_path / 'machine.yaml'}')"
    return message


# ---- files ----


def test_a_file_becomes_a_machine(tmp_path: Path) -> None:
    machine = load(tmp_path, SMALL)
    k40, cpu = machine.kinds  # borrowed ones first
    assert k40 == machines.shipped_kinds()["k40"]
    assert cpu == DeviceKind(
        name="cpu",
        type="CPU",
        flops_per_s={"float32": 100e9},
        memory_bytes_per_s=50 * 10**9,
        memory_bytes=64 * 2**30,
        launch_overhead_ns=1_000,
        executor_overhead_ns=1_000,
        slots=4,
    )
    assert machine.device_names == (CPU, GPU0, GPU1)
    assert machine.device_kind == (1, 0, 0)
    assert machine.memory_bytes == (64 * 2**30, 12 * 2**30, 8 * 2**30)
    assert [(link.src, link.dst, link.channel) for link in machine.links] == [
        (CPU, GPU0, "down"),
        (CPU, GPU1, "down"),
    ]


def test_a_machine_becomes_a_problem(tmp_path: Path) -> None:
    arrays = load(tmp_path, SMALL).problem_arrays()
    assert arrays.pop("inter_op_threads") == 16 == hp.load_problem("example").inter_op_threads
    assert {name: list(column) for name, column in arrays.items()} == {
        "device_kinds": ["k40", "cpu"],
        "device_names": [CPU, GPU0, GPU1],
        "device_kind": [1, 0, 0],
        "device_memory_bytes": [64 * 2**30, 12 * 2**30, 8 * 2**30],
        "device_slots": [4, 1, 1],
        "device_cores": ["", "", ""],
        "device_start_ns": [0, 0, 0],
        "device_turn_ns": [0, 0, 0],
        "device_cold_ns": [0, 0, 0],
        "device_launch_ns": [0, 10_000, 10_000],
        "link_src": [0, 0],
        "link_dst": [1, 2],
        "link_channel": ["down", "down"],
        "link_latency_ns": [10_000, 10_000],
        "link_bytes_per_s": [12 * 10**9, 12 * 10**9],
        "link_send_ns": [0, 0],
        "link_send_bytes_per_s": [0, 0],
        "link_receive_ns": [0, 0],
        "link_receive_bytes_per_s": [0, 0],
    }


AHEAD = """  ahead:
    type: GPU
    flops: {float32: 1 TFLOP/s}
    memory: 8 GiB
    memory_bandwidth: 100 GB/s
    launch_overhead: 1 us
    launches_ahead: true
"""


def with_work() -> str:
    """The small machine, with a GPU that starts late and transfers that are work."""
    text = SMALL.replace("slots: 4", "slots: 4\n    turn: 3 ms\n    cold: 400 us")
    text = text.replace("devices:", AHEAD + "devices:")
    text = text.replace("k40, memory: 8 GiB", "ahead, start: 140 us")
    work = "send: 20 us, send_bandwidth: 5 GB/s, receive: 40 us, receive_bandwidth: 4 GB/s"
    return text.replace("12 GB/s", f"12 GB/s, {work}")


def test_work_of_transfers_and_devices_that_start_late(tmp_path: Path) -> None:
    machine = load(tmp_path, with_work())
    assert [(kind.name, kind.turn_ns, kind.cold_ns) for kind in machine.kinds] == [
        ("k40", 0, 0),
        ("cpu", 3_000_000, 400_000),
        ("ahead", 0, 0),
    ]
    assert [device.start_ns for device in machine.devices] == [0, 0, 140_000]
    work = [
        (link.send_ns, link.send_bytes_per_s, link.receive_ns, link.receive_bytes_per_s)
        for link in machine.links
    ]
    assert work == [(20_000, 5 * 10**9, 40_000, 4 * 10**9)] * 2
    arrays = machine.problem_arrays()
    assert arrays["device_start_ns"].tolist() == [0, 0, 140_000]
    assert arrays["device_turn_ns"].tolist() == [3_000_000, 0, 0]
    assert arrays["device_cold_ns"].tolist() == [400_000, 0, 0]
    assert arrays["device_launch_ns"].tolist() == [0, 10_000, 1_000]
    assert arrays["link_send_ns"].tolist() == [20_000, 20_000]
    assert arrays["link_send_bytes_per_s"].tolist() == [5 * 10**9, 5 * 10**9]
    assert arrays["link_receive_ns"].tolist() == [40_000, 40_000]
    assert arrays["link_receive_bytes_per_s"].tolist() == [4 * 10**9, 4 * 10**9]
    text = machines.machine_to_yaml(machine)
    assert machines.machine_from_yaml(text) == machine
    assert machine != load(tmp_path, SMALL)
    for written in ("turn: 3 ms", "start: 140 us", "send: 20 us", "receive_bandwidth: 4 GB/s"):
        assert text.count(written) == 1


def test_what_nobody_set_is_not_written(tmp_path: Path) -> None:
    text = machines.machine_to_yaml(load(tmp_path, SMALL))
    hidden = ("turn", "cold", "start", "send", "receive", "inter_op_threads")
    assert not any(key in text for key in hidden)


@pytest.mark.parametrize("key", ["turn", "cold"])
def test_devices_that_share_their_cores_have_one_turn_and_one_cache(
    tmp_path: Path, key: str
) -> None:
    text = SMALL.replace("slots: 4", f"slots: 1\n    {key}: 2 us")
    text = text.replace("kind: cpu}", "kind: cpu, cores: x}")
    text = text.replace(f"name: {GPU0}", f"cores: x, name: {GPU0}")
    message = f"devices[1].cores: 'k40' has a {key} of 0 ns, but '/device:CPU:0', which has the"
    assert error_of(tmp_path, text) == f"{message} same cores, has one of 2 us"


def test_devices_that_share_their_cores(tmp_path: Path) -> None:
    text = SMALL.replace(f"name: {GPU0}", f"cores: x, name: {GPU0}")
    machine = load(tmp_path, text.replace(f"name: {GPU1}", f"cores: x, name: {GPU1}"))
    assert [device.cores for device in machine.devices] == [None, "x", "x"]
    assert machine.problem_arrays()["device_cores"] == ["", "x", "x"]
    text = SMALL.replace("kind: cpu}", "kind: cpu, cores: x}")
    message = "devices[1].cores: 'k40' has 1 slots, but '/device:CPU:0', which has the same cores, "
    text = text.replace(f"name: {GPU0}", f"cores: x, name: {GPU0}")
    assert error_of(tmp_path, text).startswith(message + "has 4")


@pytest.mark.parametrize(
    ("launch", "executor_ns"),
    [("5 us", 1_000), ("600 ns", 600), ("5 us\n    executor_overhead: 2 us", 2_000)],
)
def test_the_executor_has_a_part_in_the_launch(
    tmp_path: Path, launch: str, executor_ns: int
) -> None:
    text = SMALL.replace("launch_overhead: 1 us", f"launch_overhead: {launch}")
    assert load(tmp_path, text).kinds[1].executor_overhead_ns == executor_ns


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: cpu}", "kind: k80}", "devices[0].kind: unknown kind 'k80'; kinds here: cpu; "),
        ("kind: cpu}", "kind: k40}", "devices[0].kind: 'k40' is of type GPU, but the device's nam"),
        ("kind: cpu}", "kind: cpu, slot: 1}", "devices[0]: unknown key 'slot'; keys here: name, k"),
        (", kind: cpu}", "}", "devices[0]: the key 'kind' is missing"),
        (f"name: {GPU1}", f"name: {GPU0}", f"devices[2].name: '{GPU0}' is there twice"),
        (f"name: {GPU1}", "name: gpu1", "devices[2].name: 'gpu1' is no device name; write '/devi"),
        ("8 GiB", "8", "devices[2].memory: '8' is no size; write a number and a unit, such as"),
        ("8 GiB", "8 GiB, cores: ''", "devices[2].cores: expected text, found nothing"),
        ("8 GiB", "1e30 GiB", "devices[2].memory: is outside 0 B to 8192 TiB"),
        ("8 GiB", "0.3 B", "devices[2].memory: '0.3 B' is no whole number of B"),
        ("8 GiB", "[8 GiB]", "devices[2].memory: expected text, found a list"),
        ("100 GFLOP/s", "0 FLOP/s", "kinds.cpu.flops.float32: is outside 1 FLOP/s to 1000000 E"),
        ("100 GFLOP/s", "", "kinds.cpu.flops.float32: expected text, found nothing"),
        ("float32: 100", "float8: 100", "kinds.cpu.flops.float8: unknown dtype; dtypes: float64, "),
        ("float32: 100", "int8: 100", "kinds.cpu.flops.float32: is missing; dtypes without a rate"),
        ("slots: 4", "slots: 0", "kinds.cpu.slots: 0 is outside 1 to 65536"),
        ("slots: 4", "slots: 1.5", "kinds.cpu.slots: expected a whole number, found '1.5'"),
        ("slots: 4", "slots: 4\n    turn: 3", "kinds.cpu.turn: '3' is no time; write a number and"),
        ("8 GiB", "8 GiB, start: 2000 s", "devices[2].start: is outside 0 ns to 1000 s"),
        ("12 GB/s", "12 GB/s, send: 1 GB", "links[0].link.send: '1 GB' is no time; write a number"),
        ("12 GB/s", "12 GB/s, send_bandwidth: 0 B/s", "links[0].link.send_bandwidth: is outside 1"),
        ("12 GB/s", "12 GB/s, receive: 0.5 ns", "links[0].link.receive: '0.5 ns' is no whole numb"),
        ("12 GB/s", "12 GB/s, receive_bandwidth: []", "links[0].link.receive_bandwidth: expected"),
        ("12 GB/s", "12 GB/s, sent: 1 us", "links[0].link: unknown key 'sent'; keys here: src, ds"),
        ("type: CPU", "type: C P U", "kinds.cpu.type: 'C P U' is no device type; write CPU or GPU"),
        ("1 us", "1.5 ns", "kinds.cpu.launch_overhead: '1.5 ns' is no whole number of ns"),
        ("    slots: 4", "    slots: 4\n    slots: 4", "line 12: the key 'slots' is there twice"),
        ("name: small", "name: ''", "name: expected text, found nothing"),
        ("name: small", "name: a\ninter_op_threads: 0", "inter_op_threads: 0 is outside 1 to"),
        ("name: small", "name: [a", "line 4: is not YAML: did not find expected ',' or ']'"),
        ("name: small", "name: &a small", "line 3: anchors and aliases (& and *) are not"),
        ("name: small", "name: !!str small", "line 3: the tag 'tag:yaml.org,2002:str' is not used"),
        ("name: small", "? [a]\n: b", "line 3: a key must be text"),
        ("name: small", "name: small\n---\na: b", "line 4: a second document; one is allowed"),
        ("machine/1", "machine/2", "format: must be 'hplacer-machine/1', the format that this ver"),
        (f"src: {CPU}", f"src: {GPU2}", f"links[0].link.src: unknown device '{GPU2}'; it is not"),
        (f"dst: [{GPU0}, ", f"dst: [{CPU}, ", f"links[0].link.dst[0]: '{CPU}' is the source, too"),
        (f"dst: [{GPU0}, ", f"dst: [{GPU1}, ", f"links[0].link: a second link from {CPU} to"),
        ("channel: down", "channel: []", "links[0].link.channel: expected text, found a list"),
        ('channel: down', 'channel: "\\n"', "links[0].link.channel: must be 1 to 1000 printable"),
        ("latency: 10 us", "latency: 10", "links[0].link.latency: '10' is no time; write a number"),
        ("12 GB/s", "12 GB", "links[0].link.bandwidth: '12 GB' is no bandwidth; write a number a"),
        ("  - link:", "  - links:", "links[0]: expected one key, one of link, nvlink, nvswitch"),
        ("  - link:", "  - - link:", "links[0]: expected a mapping (`key: value` lines), found"),
    ],
)  # fmt: skip
def test_a_fault_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert SMALL.count(old) == 1
    assert error_of(tmp_path, SMALL.replace(old, new)).startswith(message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a mapping (`key: value` lines), found nothing"),
        (b"- a", "expected a mapping (`key: value` lines), found a list"),
        (b"a: \xff", "line 1: is not UTF-8 text"),
        (SMALL.encode("utf-16"), "line 1: is not UTF-8 text"),
        (b"a: 1\nb: \0", "line 2: is not YAML: control characters are not allowed"),
        (b"a: 1\n\tb: 2", "line 2: is not YAML: "),
        (b"[" * 1_000_000, "line 1: is nested more than 30 deep"),
        (b"a: " + b"{b: " * 100, "line 1: is nested more than 30 deep"),
        (b"- " * 1_000_000, "line 1: is nested more than 30 deep"),
        (b"#" * (MAX_BYTES + 1), f"has {MAX_BYTES + 1} bytes; at most {MAX_BYTES} are read"),
        (
            b"a: &a [x,x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\nd: [*c,*c,*c]",
            "line 1: anchors and aliases (& and *) are not used here",
        ),
    ],
)  # fmt: skip
def test_what_is_no_machine_file_at_all(tmp_path: Path, data: bytes, message: str) -> None:
    start_s = time.process_time()
    assert error_of(tmp_path, data).startswith(message)
    assert time.process_time() - start_s < 10


def test_too_many_devices(tmp_path: Path) -> None:
    rows = "".join(f"  - {{name: /device:CPU:{i}, kind: cpu}}\n" for i in range(257))
    text = SMALL[: SMALL.index("devices:")] + f"devices:\n{rows}links: []\n"
    assert error_of(tmp_path, text) == "devices: 257, but 1 to 256 are possible"


@pytest.mark.parametrize(
    ("name", "hint"), [("laptop", ""), ("8XV100", r"did you mean '8xv100'\? ")]
)
def test_an_unknown_machine_tells_the_known_ones(name: str, hint: str) -> None:
    said = f"no machine '{name}'; {hint}give a YAML file or one of 1cpu"
    with pytest.raises(MachineError, match=said):
        hp.load_machine(name)


def test_a_file_named_as_a_shipped_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "8xv100").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    assert hp.load_machine("8xv100").name == hp.load_machine(Path("8xv100")).name == "8xv100"
    assert hp.load_machine("./8xv100").name == "small"


@pytest.mark.parametrize("name", ["no/such/file", "missing.yaml", "."])
def test_a_file_that_cannot_be_opened_is_an_os_error(name: str) -> None:
    with pytest.raises(OSError, match=name):
        hp.load_machine(name)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_mutated_file_is_read_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = bytearray((machines.machine_file._DATA / "1cpu-4xk40.yaml").read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, len(text) - 1))
        end = start + data.draw(st.integers(0, 8))
        text[start:end] = data.draw(
            st.binary(max_size=6)
            | st.sampled_from([b"[", b"{", b"*a", b"&a ", b"\n", b"1e999", b"- "])
        )
    path = tmp_path_factory.mktemp("mutated") / "m.yaml"
    path.write_bytes(bytes(text))
    try:
        machine = hp.load_machine(path)
    except MachineError as error:
        message = str(error)
    else:
        message = f"read {path}"
        assert machine.problem_arrays()["device_names"] == list(machine.device_names)
    assert str(path) in message


# ---- round trip ----


def launching(kind: DeviceKind) -> st.SearchStrategy[DeviceKind]:
    """The kind, or one like it that launches ahead."""
    return st.sampled_from([kind, replace(kind, type="GPU", slots=1, launches_ahead=True)])


# What `str.isprintable` allows.
PRINTABLE = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
TEXTS = st.text(PRINTABLE, min_size=1, max_size=12)
WORK_NS = st.sampled_from([0, 20_000])
WORK_RATES = st.just(0) | st.integers(1, 10**18)


@st.composite
def any_machine(draw: st.DrawFn) -> Machine:
    kinds = draw(
        st.lists(
            st.builds(
                DeviceKind,
                name=TEXTS,
                type=st.sampled_from(["CPU", "GPU"]),
                flops_per_s=st.fixed_dictionaries(
                    {"float32": st.floats(1, 1e24)},
                    optional={"int8": st.floats(1, 1e24), "float64": st.floats(1, 1e24)},
                ),
                memory_bytes_per_s=st.integers(1, 10**18),
                memory_bytes=st.integers(0, 2**53),
                launch_overhead_ns=st.integers(10**6, 10**12),
                executor_overhead_ns=st.integers(0, 10**6),
                slots=st.integers(1, 65536),
                turn_ns=WORK_NS,
                cold_ns=WORK_NS,
            ).flatmap(launching),
            min_size=1,
            max_size=3,
            unique_by=lambda kind: kind.name,
        )
    )
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5))
    memory = st.none() | st.integers(0, 2**53)
    devices = [
        Device(
            name=f"/device:{kind.type}:{i}",
            kind=kind.name,
            memory_bytes=draw(memory),
            cores=draw(
                st.none()
                | st.sampled_from(
                    [f"of {kind.name}", f"{kind.slots} {kind.turn_ns} {kind.cold_ns}"]
                )
            ),
            start_ns=draw(WORK_NS),
        )
        for i, kind in enumerate(chosen)
    ]
    pairs = [(a.name, b.name) for a in devices for b in devices if a is not b]
    channels = draw(st.lists(TEXTS, min_size=1, max_size=3))
    links = [
        Link(
            src=src,
            dst=dst,
            channel=draw(st.sampled_from(channels)),
            latency_ns=draw(st.sampled_from([0, 10_000])),
            bytes_per_s=draw(st.integers(1, 10**18)),
            send_ns=draw(WORK_NS),
            send_bytes_per_s=draw(WORK_RATES),
            receive_ns=draw(WORK_NS),
            receive_bytes_per_s=draw(WORK_RATES),
        )
        for src, dst in (draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else [])
    ]
    return Machine(
        name=draw(TEXTS),
        kinds=tuple(kinds),
        devices=tuple(devices),
        links=tuple(links),
        assumptions=tuple(draw(st.lists(TEXTS, max_size=2))),
        inter_op_threads=draw(st.sampled_from([16, 1, 65_536])),
    )


@settings(max_examples=80, deadline=None)
@given(machine=any_machine())
@example(machine=replace(hp.load_machine("8xv100"), name="null", assumptions=("a: # {b", " ")))
def test_what_is_saved_is_read_again(
    machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("saved") / "m.yaml"
    hp.save_machine(machine, path)
    again = hp.load_machine(path)
    assert again == machine
    assert machines.machine_to_yaml(again).encode() == path.read_bytes()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("flops_per_s", {"float32": float("nan")}, "flops_per_s.float32: is outside"),
        ("flops_per_s", {"float32": True}, "flops_per_s.float32: must be a number"),
        ("memory_bytes_per_s", 1.5, "memory_bytes_per_s: must be a whole number"),
        ("memory_bytes", -1, "memory_bytes: is outside 0 B to 8192 TiB"),
        ("executor_overhead_ns", 10_001, "executor_overhead_ns: is a part of launch_overhead_ns"),
        ("launch_overhead_ns", "5", "launch_overhead_ns: must be a whole number"),
        ("slots", 0, "slots: 0 is outside 1 to 65536"),
        ("turn_ns", -1, "turn_ns: is outside 0 ns to 1000 s"),
        ("cold_ns", -1, "cold_ns: is outside 0 ns to 1000 s"),
        ("launches_ahead", True, "launches_ahead: is of accelerators, which run one op at a time"),
        ("name", "", "name: must be 1 to 1000 printable characters"),
    ],
)
def test_a_kind_checks_itself(field: str, value: Any, message: str) -> None:
    kind = replace(machines.shipped_kinds()["k40"], slots=2, launches_ahead=False)
    with pytest.raises(MachineError, match=f"^{message}"):
        replace(kind, **{field: value})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("send_ns", 0.5, "send_ns: must be a whole number"),
        ("send_bytes_per_s", -1, "send_bytes_per_s: is outside 0 B/s to 1000000 TB/s"),
        ("receive_ns", 10**12 + 1, "receive_ns: is outside 0 ns to 1000 s"),
        ("receive_bytes_per_s", True, "receive_bytes_per_s: must be a whole number"),
    ],
)
def test_a_link_checks_itself(field: str, value: Any, message: str) -> None:
    link = hp.load_machine("1cpu-2xk40").links[0]
    with pytest.raises(MachineError, match=f"^{message}"):
        replace(link, **{field: value})


def test_a_device_checks_when_it_starts() -> None:
    with pytest.raises(MachineError, match=r"^start_ns: is outside 0 ns to 1000 s"):
        Device(name=CPU, kind="cpu", start_ns=-1)
