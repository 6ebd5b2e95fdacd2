"""Mutated plan files, and what has to hold of those that are read.

Some are damaged as a disk or a network does it, where a checksum has to notice. In the others the
checksums are right again afterwards, so that the checks behind them are what is tested.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import re
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.plans.file import PlanFile
from hplacer_optimizer.plans.plan import Plan
from tests.fuzz.mutations import INTEGERS, mutate_bytes, mutate_problem, mutate_text, mutate_tree
from tests.plans.test_plan import frame, make_plan, pack, sections_of, with_problem

__all__ = ["plan_bytes", "use_plan"]


@functools.cache
def _originals() -> list[bytes]:
    """Valid files, with and without a problem, one longer than a first read."""
    rng = np.random.default_rng(0)
    many = make_plan(
        node_names=[f"scope_{i % 7}/node_{i}" for i in range(9000)],
        node_hashes=rng.integers(0, 2**64, 9000, dtype=np.uint64),
        node_ranks=rng.integers(0, 9, 9000),
        node_devices=rng.integers(0, 2, 9000),
    )
    plans = [with_problem(make_plan()), with_problem(make_plan(seed=8)), make_plan(), many]
    return [plan.to_bytes() for plan in plans]


@functools.cache
def _plans_by_digest() -> dict[str, Plan]:
    return {
        PlanFile(io.BytesIO(data)).digest: Plan.from_bytes(data, "original")
        for data in _originals()
    }


def plan_bytes(random: Random) -> bytes:
    """One mutated file."""
    data = random.choice(_originals())
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        match random.randrange(8):
            case 0 | 1:
                data = mutate_bytes(random, data, random.choice(_originals()))
            case 2:
                data = _other_version(random, data)
            case 3:
                cut = random.randrange(len(data) + 1)
                data = data[:cut] + random.choice(_originals())[cut:]
            case _:
                data = _resealed(random, random.choice(_originals()))
    return data


def _other_version(random: Random, data: bytes) -> bytes:
    version = random.choice(
        [b"0", b"1", b"2", b"3", b"4", b"10", b"99999999999", b"-1", b"2.0", b""]
    )
    return re.sub(rb"hplacer-plan/\d+", b"hplacer-plan/" + version, data, count=1)


def _resealed(random: Random, data: bytes) -> bytes:
    sections = sections_of(data)
    if random.random() < 0.2:
        return _with_other_header(random, sections)
    for name in random.sample(list(sections), random.choice([1, 1, 2])):
        if name == "summary":
            sections[name] = _json(random, json.loads(sections[name]))
        elif name == "problem":
            document = json.loads(sections[name])
            mutate_problem(random, document)
            sections[name] = json.dumps(document).encode()
        elif random.random() < 0.8:
            sections[name] = _column(random, sections[name])
        else:
            del sections[name]
            sections |= random.choice([{}, {"unknown": b"x"}])
    return pack({name: _compressed(random, content) for name, content in sections.items()})


def _json(random: Random, document: Any) -> bytes:
    for _ in range(random.choice([1, 1, 2])):
        mutate_tree(random, document)
    text = json.dumps(document, ensure_ascii=random.random() < 0.5)
    if random.random() < 0.2:
        text = mutate_text(random, text)
    return text.encode("utf-8", "surrogatepass")


def _column(random: Random, content: bytes) -> bytes:
    if random.random() < 0.5:
        return mutate_bytes(random, content, content)
    value = random.choice(INTEGERS) & 0xFFFFFFFF
    at = random.randrange(len(content) + 1) & ~3
    return content[:at] + value.to_bytes(4, "little") + content[at + 4 :]


def _compressed(random: Random, content: bytes) -> bytes:
    packed = zlib.compress(content, random.choice([0, 1, 9]))
    match random.randrange(30):
        case 0:
            return mutate_bytes(random, packed, packed)
        case 1:
            return zlib.compress(b" " * 2**22)
        case 2:
            return packed + packed
    return packed


def _with_other_header(random: Random, sections: dict[str, bytes]) -> bytes:
    packed = {name: zlib.compress(content) for name, content in sections.items()}
    rows = [[name, len(data), hashlib.sha256(data).hexdigest()] for name, data in packed.items()]
    header = {"sections": rows}
    mutate_tree(random, header)
    return frame(json.dumps(header).encode(), b"".join(packed.values()))


def use_plan(path: Path, random: Random) -> None:
    """Reads the file as a lookup does and as a verification does.

    A file with the checksum of a known plan is that plan or an error; PlanError is the only one.
    """
    data = path.read_bytes()

    def opened() -> io.BufferedReader:
        return open(path, "rb")

    with opened() as file:
        plan = Plan.from_file(file, path, opened)
    with opened() as file:
        original = _plans_by_digest().get(PlanFile(file).digest)
    if original is not None:
        assert plan == original
    assert plan.node_devices.size == 0 or plan.node_devices.max() < len(plan.device_names)
    whole = Plan.from_bytes(data, path)  # a damaged problem is noticed here only
    assert whole == plan
    try:
        plan.verify()
    except PlanError:
        assert original is None
        raise
    if plan.problem() is not None:
        assert plan.placement is not None
        assert plan.node_op is not None
        np.testing.assert_array_equal(plan.placement[plan.node_op], plan.node_devices)
    assert Plan.from_bytes(plan.to_bytes()) == plan
