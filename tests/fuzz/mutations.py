"""Mutations of documents at three levels: tree, tokens of the text, bytes of the file.

Every function takes the random generator first and changes its argument as that decides.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

__all__ = ["mutate_bytes", "mutate_gzip", "mutate_problem", "mutate_text", "mutate_tree"]

Tree = Any

INTEGERS = [-1, 0, 1, 2, 3, 7, 100, 4096, 4097, -2, -(2**31), 2**31 - 1, 2**31, 2**32, 2**53 + 1]
HUGE_INTEGERS = [2**62, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30, 10**400]
STRINGS = [
    "",
    "a",
    "\u00e9\U0001f600",
    "\x00",
    '\n\t"\\/',
    "\x7f\u2028",
    "persistent",
    "cpu",
    "x" * 300,
]
OTHERS = [None, True, False, 0.5, -0.0, 1e300, [], {}, [[]], {"": {}}, [0, 0], [None]]


def _values(random: Random) -> Any:
    pool = random.choice([INTEGERS, INTEGERS, HUGE_INTEGERS, STRINGS, OTHERS])
    return json.loads(json.dumps(random.choice(pool)))  # a copy


def _places(tree: Tree) -> Iterator[tuple[Any, Any]]:
    """(container, key or index) of all values, in document order."""
    keys: Any = ()
    if isinstance(tree, dict):
        keys = list(tree)
    elif isinstance(tree, list):
        keys = range(len(tree))
    for key in keys:
        yield tree, key
        yield from _places(tree[key])


def mutate_tree(random: Random, tree: Tree) -> None:
    """Replaces, drops, doubles, renames, swaps or nudges one value of a JSON-like tree."""
    places = list(_places(tree))
    if not places:
        return
    container, key = random.choice(places)
    value = container[key]
    match random.randrange(8):
        case 0:
            container[key] = _values(random)
        case 1:
            del container[key]
        case 2 if isinstance(container, list):
            container.insert(random.randint(0, len(container)), value)
        case 2 | 3 if isinstance(container, dict):
            # Renames the key, and puts it last.
            other_names = [k for c, k in places if isinstance(c, dict)]
            container[random.choice([*other_names, *STRINGS])] = container.pop(key)
        case 4:
            other, other_key = random.choice(places)
            container[key] = json.loads(json.dumps(other[other_key]))
        case 5 if isinstance(container, dict):
            items = list(container.items())
            random.shuffle(items)
            container.clear()
            container.update(items)
        case 5 if isinstance(container, list):
            random.shuffle(container)
        case 6 if type(value) is int:
            container[key] = value + random.choice([-1, 1, 10, 1 << random.randrange(62)])
        case 6 if isinstance(value, list) and value:
            value.extend(value[: random.randrange(40)])
        case _:
            container[key] = [value] if random.random() < 0.5 else {"a": value}


# ---- what relates the fields of a problem ----


def _index(random: Random, items: Sequence[Any]) -> int:
    """Mostly an index of the list, sometimes one just outside."""
    return random.randrange(len(items) + (random.random() < 0.1)) if items else 0


def _ops(document: Tree) -> list[dict[str, Any]]:
    ops = document.get("ops")
    return [op for op in ops if isinstance(op, dict)] if isinstance(ops, list) else []


def _redirect_edge(random: Random, document: Tree) -> None:
    rows = document.get(random.choice(["edges", "control_edges"]))
    if rows and isinstance(rows[row := random.randrange(len(rows))], list) and rows[row]:
        rows[row][random.randrange(len(rows[row]))] = _index(random, document.get("ops", ()))


def _add_edge(random: Random, document: Tree) -> None:
    ops = document.get("ops", ())
    src, dst = _index(random, ops), _index(random, ops)
    if random.random() < 0.8:
        src, dst = min(src, dst), max(src, dst)
    if random.random() < 0.5:
        document.setdefault("control_edges", []).append([src, dst])
    else:
        document.setdefault("edges", []).append([src, random.choice([0, 0, 0, 1, 2]), dst])


def _alias(random: Random, document: Tree) -> None:
    edges = [e for e in document.get("edges", ()) if isinstance(e, list) and len(e) == 3]
    for edge in random.sample(edges, min(3, len(edges))):
        src, output, dst = edge
        if not (type(dst) is int and 0 <= dst < len(document["ops"])):
            continue
        op = document["ops"][dst]
        outputs = op.get("output_bytes") if isinstance(op, dict) else None
        if isinstance(outputs, list):
            forms = [[src, output], [src, output], "persistent", None, [src, output + 1], [dst, 0]]
            op["output_alias"] = [random.choice(forms) for _ in outputs]


def _change_op(random: Random, document: Tree) -> None:
    ops, devices = _ops(document), document.get("devices", ())
    for op in random.choices(ops or [{}], k=random.randint(1, 4)):
        few = range(random.randrange(4))
        match random.randrange(7):
            case 0:
                op["colocation_group"] = random.choice(["g", "h", ""])
            case 1:
                op["allowed_devices"] = [_index(random, devices) for _ in few]
            case 2:
                op["output_bytes"] = [random.choice([0, 1, 5, 10**9]) for _ in few]
                op.pop("output_alias", None)
            case 3:
                op["name"] = random.choice(ops).get("name", "a") if ops else ""
            case 4 if isinstance(op.get("cost_ns"), dict):
                for kind in list(op["cost_ns"]):
                    op["cost_ns"][kind] = random.choice([0, 1, 10**6, 2**40])
            case 5 if isinstance(op.get("cost_ns"), dict) and op["cost_ns"]:
                op["cost_ns"].pop(random.choice(list(op["cost_ns"])))
            case _:
                op[random.choice(["temp_bytes", "persistent_bytes"])] = random.choice([0, 1, 2**40])


def _change_machine(random: Random, document: Tree) -> None:
    links, devices = document.get("links", []), document.get("devices", [])
    match random.randrange(4):
        case 0 if links:
            links.pop(random.randrange(len(links)))
        case 1 if links and isinstance(link := random.choice(links), dict):
            link["channel"] = random.choice(["x", "y", ""])
            link["latency_ns"] = random.choice([0, 1, 2**50])
            link["bytes_per_s"] = random.choice([1, 10**9, 2**63 - 1])
            end = random.choice(["send", "receive"])
            link[f"{end}_ns"] = random.choice([0, 1, 2**50, 2**62])
            link[f"{end}_bytes_per_s"] = random.choice([0, 1, 10**9, 2**63 - 1])
        case 2 if devices and isinstance(device := random.choice(devices), dict):
            device["slots"] = random.choice([1, 2, 2**31 - 1])
            device["memory_bytes"] = random.choice([0, 100, 2**63 - 1])
            device["start_ns"] = random.choice([0, 1, 2**62])
            device["turn_ns"] = random.choice([0, 1, 2**63 - 1])
            device["cold_ns"] = random.choice([0, 1, 2**62])
            device["launch_ns"] = random.choice([0, 1, 2**63 - 1])
        case _:
            name = f"extra{random.randrange(3)}"
            kinds = [k for k in document.get("device_kinds", ()) if isinstance(k, str)] or ["cpu"]
            devices.append({"name": name, "kind": random.choice(kinds), "memory_bytes": 2**40})


def mutate_problem(random: Random, document: Tree) -> None:
    """Changes a problem document so that it often remains one."""
    changes: list[Callable[[Random, Tree], None]]
    changes = [_redirect_edge, _add_edge, _alias, _change_op, _change_op, _change_machine]
    try:
        random.choice(changes)(random, document)
    except (TypeError, AttributeError, KeyError, IndexError):
        mutate_tree(random, document)  # an earlier mutation left nothing to relate


# ---- text ----

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[-+.\w]+|\s+|[^\w\s]', re.DOTALL)
_JSON = r"""
{ } [ ] , : null true false NaN Infinity -Infinity -1 0 -0 01 1.0 1e3 1e999 -1e999 0x10 1_000
9223372036854775807 9223372036854775808 -9223372036854775809 18446744073709551616 "" "a" # '
"\ud800" "\udc00\ud800" "\u0000" "\ud83d\ude00" "\x" "\u12" "format" "name" "ops" "edges"
"cost_ns" "cpu" "output_alias" "persistent" "slots" "turn_ns" "cold_ns" "send_bytes_per_s" // /**/
"""


def mutate_text(random: Random, text: str) -> str:
    """Replaces, drops, doubles, moves or inserts one token, or inserts a run of one."""
    tokens: list[str] = _TOKEN.findall(text)
    foreign = random.choice(_JSON.split())
    i, j = (random.randrange(len(tokens)) if tokens else 0 for _ in range(2))
    match random.randrange(7):
        case 0:
            tokens[i : i + 1] = [foreign]
        case 1:
            tokens[i : i + random.choice([1, 1, 2, 8])] = []
        case 2:
            tokens[i:i] = tokens[i : i + random.choice([1, 4, 16])]
        case 3:
            tokens[i : i + 1], tokens[j : j + 1] = tokens[j : j + 1], tokens[i : i + 1]
        case 4:
            tokens[i:i] = [foreign]
        case 5:
            run = random.choice([foreign, "[", "{", '{"a":', " ", "\n", "1", '"', "- ", "[*a, *a]"])
            tokens[i:i] = [run * random.choice([2, 50, 2000])]
        case _:
            tokens[i : i + 1] = tokens[j : j + 1]
    return "".join(tokens)


# ---- bytes ----


def mutate_bytes(random: Random, data: bytes, other: bytes) -> bytes:
    """Flips, sets, inserts, deletes, doubles, truncates, or splices with another file."""
    if not data:
        return other
    i = random.randrange(len(data))
    length = random.choice([1, 1, 2, 4, 16, 256])
    match random.randrange(8):
        case 0 | 1:
            return data[:i] + bytes([data[i] ^ 1 << random.randrange(8)]) + data[i + 1 :]
        case 2:
            return (
                data[:i]
                + random.choice([b"\x00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80"])
                + data[i + 1 :]
            )
        case 3:
            return data[:i] + random.randbytes(length) + data[i:]
        case 4:
            return data[:i] + data[i + length :]
        case 5:
            return data[:i] + data[i : i + length] * random.choice([2, 3, 100]) + data[i + length :]
        case 6:
            return data[:i]
        case _:
            return data[:i] + other[random.randrange(len(other) + 1) :]


def mutate_gzip(random: Random, data: bytes) -> bytes:
    """Compresses the file, in members at times, and mostly damages the result."""
    half = random.randrange(len(data) + 1)
    packed = gzip.compress(data[:half], mtime=0) + gzip.compress(data[half:], mtime=0)
    match random.randrange(5):
        case 0:
            return packed
        case 1:
            return packed + random.choice([b"\0" * 100, b"garbage", packed[:9]])
        case 2:
            return gzip.compress(data[:half] + b" " * 2**22 + data[half:], 1, mtime=0)
        case _:
            return mutate_bytes(random, packed, packed)
