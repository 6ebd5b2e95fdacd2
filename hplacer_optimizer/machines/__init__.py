"""Machines: described in YAML, shipped with this package, or detected."""

from __future__ import annotations

from hplacer_optimizer.machines.detect import detect
from hplacer_optimizer.machines.family import family_rule
from hplacer_optimizer.machines.machine import Device, DeviceKind, Link, Machine, full_device_name
from hplacer_optimizer.machines.machine_file import (
    check_machine_name,
    load_machine,
    machine_from_yaml,
    machine_names,
    machine_to_yaml,
    save_machine,
    shipped_kinds,
    shipped_machines,
)

__all__ = [
    "Device",
    "DeviceKind",
    "Link",
    "Machine",
    "check_machine_name",
    "detect",
    "family_rule",
    "full_device_name",
    "load_machine",
    "machine_from_yaml",
    "machine_names",
    "machine_to_yaml",
    "save_machine",
    "shipped_kinds",
    "shipped_machines",
]
