"""The fields of a plan: the check of each, and how a plan file holds them.

    summary        JSON of all fields but these
    node_names     joined by newlines
    node_hashes    u64[N]
    node_ranks     u64 structure, u32[N]; only where nodes are alike
    node_devices   u16[N]
    verdict        JSON; only where the plan was measured

docs/reference/plan-format.md describes it, with the sections of the problem, which are
`planned_problem.py`'s. A damaged, foreign or newer file is a `PlanError` that names the file, the
reason and the remedy, never a wrong placement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.plans.baseline import Baseline, as_json
from hplacer_optimizer.plans.fields import (
    NodeNames,
    boolean,
    column,
    count,
    integer,
    interval,
    json_object,
    list_of,
    matching,
    node_names,
    number,
    optional,
    record,
    share,
    text,
    text_map,
    word,
)
from hplacer_optimizer.plans.plan_file import (
    NewerFormatError,
    PlanFile,
    Section,
    canonical_json,
    compress,
    parse_object,
)
from hplacer_optimizer.plans.verdict import CREATED, Verdict

FINGERPRINT_HEX_DIGITS = 32
_STRUCTURE_BYTES = 8

_REPLACE = "if it is a plan store's, delete the file: the next run plans again"
_UPGRADE = "made by a newer version: upgrade hplacer-optimizer"

# Of a point of a learning curve; the keys are some of `planners.Progress`.
CURVE_POINT: dict[str, Callable[[Any], Any]] = {
    "steps": count,
    "best_ns": optional(count),
    "placements": count,
    "mean_ns": optional(number),
    "infeasible": share,
}

# One check for each field of the summary.
SUMMARY: dict[str, Callable[[Any], Any]] = {
    "fingerprint": matching(
        rf"([0-9a-f]{{{FINGERPRINT_HEX_DIGITS}}})?",
        f"{FINGERPRINT_HEX_DIGITS} lower-case hex digits, or empty",
    ),
    "fingerprint_parts": text_map,
    "label": text,
    "planner": text,
    "planner_notes": list_of(text),
    "planner_options": json_object,
    "seed": integer,
    "budget": json_object,
    "step_time_ns": optional(count),
    "step_spread_ns": optional(interval),
    "simulator_version": optional(count),
    "lower_bound_ns": optional(count),
    "lower_bound_term": optional(text),
    "feasible": boolean,
    "peak_bytes": list_of(count),
    "device_names": list_of(text),
    "device_kinds": list_of(text),
    "machine": optional(text),
    "num_ops": count,
    "num_units": count,
    "planning_s": number,
    "learning_curve": list_of(record(CURVE_POINT)),
    "cost_source": text,
    "assumptions": list_of(text),
    "baseline": Baseline.checked,
    "prediction_error": optional(number),
    "versions": text_map,
    "created": matching(CREATED, "a UTC time such as 2024-05-01T12:00:00Z"),
    "host": text,
}

# One check for each field about the nodes, which are sections of their own.
_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "node_names": node_names,
    "node_hashes": column(np.uint64),
    "node_ranks": column(np.uint32),
    "structure": word,
    "node_devices": column(np.int32),
}

CHECKS = {**SUMMARY, **_COLUMNS, "verdict": Verdict.checked}


def summary(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Every field that JSON can hold: all but the columns and the problem."""
    found = {name: fields[name] for name in SUMMARY}
    return found | {"baseline": as_json(fields["baseline"])}


def pack(fields: Mapping[str, Any]) -> dict[str, Section]:
    """What applying the plan needs, in the order of the file."""
    parts = list(fields["fingerprint_parts"].items())
    verdict = fields["verdict"] and compress(canonical_json(fields["verdict"].as_json()))
    structure = fields["structure"].to_bytes(_STRUCTURE_BYTES, "little")
    ranks = {"node_ranks": compress(structure + fields["node_ranks"].astype("<u4").tobytes())}
    return {
        "summary": compress(canonical_json(summary(fields) | {"fingerprint_parts": parts})),
        "node_names": compress(fields["node_names"].blob.encode()),
        "node_hashes": compress(fields["node_hashes"].astype("<u8").tobytes(), level=0),
        **(ranks if len(fields["node_ranks"]) else {}),
        "node_devices": compress(fields["node_devices"].astype("<u2").tobytes()),
        **({"verdict": verdict} if verdict else {}),
    }


def unpack(file: PlanFile) -> dict[str, Any]:
    """The fields that the sections hold, not yet checked."""
    fields = _read_sections(file)
    try:
        return {**fields, "fingerprint_parts": _parts(fields["fingerprint_parts"])}
    except ValueError as error:
        raise PlanError(f"plan.fingerprint_parts {error}") from None


def _read_sections(file: PlanFile) -> dict[str, Any]:
    fields = parse_object(file.read("summary"))
    for name in sorted(SUMMARY.keys() - fields.keys()):
        raise PlanError(f"has no field {name!r}")
    for name in sorted(fields.keys() - SUMMARY.keys()):
        raise PlanError(f"has the unknown field {name!r}")
    try:
        fields["node_names"] = NodeNames(file.read("node_names").decode())
        for name, dtype in (("node_hashes", "<u8"), ("node_devices", "<u2")):
            fields[name] = np.frombuffer(file.read(name), dtype)
        if "node_ranks" in file.names:
            raw = file.read("node_ranks")
            if len(raw) <= _STRUCTURE_BYTES:
                raise ValueError(f"the section 'node_ranks' has {len(raw)} bytes")
            fields["structure"] = int.from_bytes(raw[:_STRUCTURE_BYTES], "little")
            fields["node_ranks"] = np.frombuffer(raw[_STRUCTURE_BYTES:], "<u4")
        if "verdict" in file.names:
            fields["verdict"] = parse_object(file.read("verdict"))
    except PlanError:
        raise
    except ValueError as error:
        raise PlanError(f"holds columns that cannot be read: {error}") from None
    return fields


def _parts(value: Any) -> dict[str, str]:
    """JSON objects have no order and parts do, so the file holds a list of [name, value] pairs."""
    pairs = list_of(list_of(text))(value)
    if any(len(pair) != 2 for pair in pairs) or len({pair[0] for pair in pairs}) != len(pairs):
        raise ValueError("must be a list of [name, value] pairs with distinct names")
    return dict(pairs)


@contextmanager
def naming(source: object) -> Iterator[None]:
    """Adds the file and the remedy to what is wrong."""
    try:
        yield
    except NewerFormatError as error:
        raise NewerFormatError(f"{source}: {error}; {_UPGRADE}") from None
    except PlanError as error:
        raise PlanError(f"{source}: {error}; {_REPLACE}") from None
