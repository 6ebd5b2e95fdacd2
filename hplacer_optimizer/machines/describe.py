"""Describes this host or a cluster of TensorFlow servers, from a process without TensorFlow.

A child process lists the devices (list_devices.py) under a time limit: TensorFlow takes seconds to
load, takes GPUs, and may hang where a server does.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from hplacer_optimizer.errors import MachineError
from hplacer_optimizer.machines import host, nvidia
from hplacer_optimizer.machines.detect import DETECTED, LIKE_THIS_HOST, detect
from hplacer_optimizer.machines.emulated import emulated_machine
from hplacer_optimizer.machines.list_devices import MARK
from hplacer_optimizer.machines.machine import Device, Machine
from hplacer_optimizer.support import child_process

_CONNECT_TIMEOUT_S = 5.0
_SERVER_TIMEOUT_S = 10.0
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(\d{1,5})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class _Listed:
    """A device as the child tells it."""

    name: str
    type: str
    description: str
    memory_bytes: int


def describe_host(*, timeout_s: float) -> Machine:
    """This host with the devices that TensorFlow finds on it.

    Raises MachineError if TensorFlow does not answer within the time limit.
    """
    devices = _ask([""], timeout_s)[""]
    inter_op, intra_op = host.tensorflow_threads()
    machine = detect(devices, inter_op_threads=inter_op, intra_op_threads=intra_op, ask_driver=True)
    if machine.name != DETECTED:  # emulated
        return machine
    nodes = host.numa_nodes()
    extra = [f"the {nodes} memory nodes of this host are one CPU device"] if nodes > 1 else []
    name = socket.gethostname() or "host"
    return replace(machine, name=name, assumptions=(*machine.assumptions, *extra))


def gpus_here() -> Machine | None:
    """The GPUs of this host without asking TensorFlow, which takes seconds and memory of GPUs.

    They have all of their memory here, of which TensorFlow leaves some to the driver, and links are
    not asked for. None: no driver tells of one, and none is emulated.
    """
    machine = emulated_machine()
    if machine is not None or not (found := nvidia.gpus()):
        return machine
    listed = [
        _Listed(
            name=f"/device:GPU:{number}",
            type="GPU",
            description=f"device: {number}, name: {gpu.model}",
            memory_bytes=gpu.memory_mib << 20,
        )
        for number, gpu in enumerate(found)
    ]
    return detect(listed)


def describe_cluster(addresses: Sequence[str], *, timeout_s: float) -> Machine:
    """The TensorFlow servers (`tf.distribute.Server`) at these addresses, "host:port" each.

    Servers at one address share its processor; hosts other than this one are taken to be like it.
    So are their GPUs, whose models no server tells.
    Raises MachineError, which names the servers that cannot be reached or do not answer.
    """
    ends = {address: _parse_address(address) for address in addresses}
    if len(ends) != len(addresses):
        raise MachineError("an address of the cluster is there twice")
    with ThreadPoolExecutor(len(addresses)) as pool:
        reached = dict(zip(addresses, pool.map(_reach, ends.values()), strict=True))
    dead = [f"{address} ({found})" for address, (_, found) in reached.items() if found]
    if dead:
        raise MachineError(f"no TensorFlow server can be reached at {', '.join(dead)}")
    answers = _ask(addresses, timeout_s)
    hosts: dict[str, str] = {}
    devices: list[_Listed] = []
    for address in addresses:
        for device in answers[address]:
            task = Device(name=device.name, kind="unused").task
            ip = reached[address][0]
            if device.name in {other.name for other in devices}:
                raise MachineError(
                    f"{address}: another server has {device.name}, too; all addresses must be "
                    "tasks of one cluster"
                )
            hosts[task] = ip
            devices.append(device)
    assumptions = set()
    model = _model_here() if any(device.type == "GPU" for device in devices) else ""
    if model:
        assumptions.add(f"all GPUs are like those of this host: {model}")
        devices = [
            replace(device, description=f"name: {model}") if device.type == "GPU" else device
            for device in devices
        ]
    machine = detect(devices, hosts=hosts)
    assumptions.update(machine.assumptions)
    if not all(_is_here(ip) for ip in hosts.values()):
        assumptions.add(LIKE_THIS_HOST)
    return replace(machine, name="cluster", assumptions=tuple(sorted(assumptions)))


def _model_here() -> str:
    """Of the GPUs of this host; "": it has none, or several models."""
    models = {gpu.model for gpu in nvidia.gpus()}
    return models.pop() if len(models) == 1 else ""


# ---- addresses ----


def _parse_address(address: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(address)
    if match is None or not 1 <= int(match[2]) <= 65535:
        raise MachineError(f"{address!r} is no address; write host:port, as 10.0.0.1:2222")
    return match[1].strip("[]"), int(match[2])


def _reach(end: tuple[str, int]) -> tuple[str, str]:
    """The IP address behind a host's name, and why no connection to it was possible or ""."""
    try:
        with socket.create_connection(end, timeout=_CONNECT_TIMEOUT_S) as connection:
            return str(connection.getpeername()[0]), ""
    except OSError as error:
        return "", error.strerror or str(error)


def _is_here(ip: str) -> bool:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((ip, 0))  # only an address of this host can be bound
            return True
    except OSError:
        return False


# ---- the child ----


def _ask(addresses: Sequence[str], timeout_s: float) -> dict[str, list[_Listed]]:
    """The devices at each address ("": of a new process here)."""
    environment = child_process.environment(
        PYTHONPATH=os.pathsep.join(filter(None, sys.path)),
        PYTHONSAFEPATH="1",
        HPLACER_DISABLE="1",
        TF_CPP_MIN_LOG_LEVEL="3",
        TF_FORCE_GPU_ALLOW_GROWTH="true",
    )
    # A server answers within milliseconds; TensorFlow takes the other half to load.
    server_timeout_s = min(_SERVER_TIMEOUT_S, timeout_s / 2 / len(addresses))
    command = [sys.executable, "-m", "hplacer_optimizer.machines.list_devices"]
    child = subprocess.Popen(
        [*command, str(server_timeout_s), *filter(None, addresses)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
    )
    late = False
    with child:
        try:
            output, log = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            late = True
            child.kill()
            output, log = child.communicate()
        except BaseException:
            child.kill()
            raise
    answers: dict[str, list[_Listed]] = {}
    for line in output.splitlines():
        if line.startswith(MARK):
            answer = json.loads(line.removeprefix(MARK))
            if "error" in answer:
                raise MachineError(f"{answer['address'] or 'TensorFlow'}: {answer['error']}")
            answers[answer["address"]] = [_Listed(**device) for device in answer["devices"]]
    missing = [address for address in addresses if address not in answers]
    if missing:
        raise MachineError(_explain(missing, child.returncode, late, timeout_s, log))
    return answers


def _explain(
    missing: Sequence[str], returncode: int, late: bool, timeout_s: float, log: str
) -> str:
    who = ", ".join(filter(None, missing))
    if late:
        what = f"no TensorFlow server answers at {who}" if who else "TensorFlow does not answer"
        return f"{what} within {timeout_s:g} seconds"
    last = (log.strip().splitlines() or ["it printed nothing"])[-1]
    how = f"crashed with {signal.Signals(-returncode).name}" if returncode < 0 else "failed"
    return f"listing TensorFlow's devices {how}: {last}"
