from __future__ import annotations

import gzip
import json
import tempfile
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

import hplacer_optimizer as hp
from hplacer_optimizer.errors import InfeasibleError, ProblemError
from hplacer_optimizer.inspection.chrome_trace import write_chrome_trace
from hplacer_optimizer.inspection.tracks import assign_slots
from testbed.documents import problem_from_dict
from testbed.planted_problems import machine
from testbed.random_problems import placed_problems

Event = dict[str, Any]


def read_events(path: Path) -> list[Event]:
    """The events with exact times in ns, after a check of the format's rules for each phase."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    document = json.loads(text, parse_float=Decimal)
    assert document.keys() == {"displayTimeUnit", "traceEvents"}
    events: list[Event] = document["traceEvents"]
    keys = {
        "M": {"args"},
        "X": {"ts", "dur", "cat", "args"},
        "C": {"ts", "args"},
        "s": {"ts", "id", "cat", "bp"},
        "t": {"ts", "id", "cat", "bp"},
        "f": {"ts", "id", "cat", "bp"},
    }
    for event in events:
        assert event.keys() == {"ph", "pid", "tid", "name"} | keys[event["ph"]]
        for key in {"ts", "dur"} & event.keys():
            nanoseconds = event[key] * 1000
            assert nanoseconds == int(nanoseconds)
            event[f"{key}_ns"] = int(nanoseconds)
    return events


def trace_events(document: dict[str, Any], placement: list[int]) -> tuple[Any, ...]:
    problem = problem_from_dict(document)
    trace = hp.simulate(problem, placement)
    assume(trace.has_trace)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        write_chrome_trace(problem, placement, trace, path)
        assert [entry.name for entry in Path(directory).iterdir()] == ["trace.json"]
        return problem, trace, read_events(path)


def slices(events: list[Event], problem: hp.Problem, *, channels: bool) -> list[Event]:
    last = problem.num_devices + 1
    return [e for e in events if e["ph"] == "X" and (e["pid"] == last) == channels]


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_ops_and_transfers_are_those_of_the_trace(
    case: tuple[dict[str, Any], list[int]],
) -> None:
    document, placement = case
    problem, trace, events = trace_events(document, placement)
    ops = {
        e["name"]: (e["pid"] - 1, e["ts_ns"], e["ts_ns"] + e["dur_ns"])
        for e in slices(events, problem, channels=False)
    }
    times = zip(placement, trace.start_ns.tolist(), trace.finish_ns.tolist(), strict=True)
    assert ops == dict(zip(problem.op_names, times, strict=True))
    sends = [
        (e["name"], e["tid"] - 1, e["ts_ns"], e["dur_ns"], e["args"]["bytes"], e["args"]["to"])
        for e in slices(events, problem, channels=True)
    ]
    assert sends == [
        (
            f"{problem.op_names[x['src_op']]}:{x['output']}"
            if x["output"] >= 0
            else f"^{problem.op_names[x['src_op']]}",
            x["channel"],
            x["start_ns"],
            x["carried_ns"] - x["start_ns"],
            x["bytes"],
            problem.device_names[x["dst_device"]],
        )
        for x in trace.transfers
    ]


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_no_track_has_two_things_at_once(case: tuple[dict[str, Any], list[int]]) -> None:
    problem, _, events = trace_events(*case)
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] != "X":
            continue
        # What has no bytes needs no channel.
        if event["pid"] <= problem.num_devices or event["dur_ns"] > 0:
            track = tracks[event["pid"], event["tid"]]
            track.append((event["ts_ns"], event["ts_ns"] + event["dur_ns"]))
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    for (pid, tid), spans in tracks.items():
        assert (pid, tid) in named
        if pid <= problem.num_devices:
            assert tid <= problem.device_slots[pid - 1]
            # Where all slots are busy, what takes no time lies within something else.
            all_slots = [span for (of, _), track in tracks.items() if of == pid for span in track]
            slots = problem.device_slots[pid - 1]
            spans = [
                (begin, end)
                for begin, end in spans
                if begin < end or sum(s < begin < f for s, f in all_slots) < slots
            ]
        for (_, end), (begin, _) in pairwise(sorted(spans)):
            assert begin >= end


def test_an_op_of_no_time_opens_no_track() -> None:
    start_ns, finish_ns = np.array([0, 1, 2, 3]), np.array([2, 1, 4, 5])
    placement = np.zeros(4, np.int32)
    for slots, expected in ((2, [0, 1, 0, 1]), (1, [0, 0])):
        of = slice(len(expected))
        found = assign_slots(placement[of], start_ns[of], finish_ns[of], np.array([slots]))
        assert found.tolist() == expected


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_an_op_waits_from_its_last_input_on(case: tuple[dict[str, Any], list[int]]) -> None:
    document, placement = case
    problem, trace, events = trace_events(document, placement)
    ready = [0] * len(placement)
    arrival = {(x["src_op"], x["output"], x["dst_device"]): x["finish_ns"] for x in trace.transfers}
    for src, output, dst in document["edges"]:
        key = (src, output, placement[dst])
        time_ns = trace.finish_ns[src] if placement[src] == placement[dst] else arrival[key]
        ready[dst] = max(ready[dst], time_ns)
    successors: dict[int, set[int]] = defaultdict(set)
    for src, dst in document["control_edges"]:
        successors[src].add(dst)
    for src, dst in document["control_edges"]:
        if placement[src] == placement[dst]:
            time_ns = trace.finish_ns[src]
        else:  # the last of those that the same ops wait for signals
            alike = [op for op, waiting in successors.items() if waiting == successors[src]]
            group = [op for op in alike if placement[op] == placement[src]]
            latest_ns = max(trace.finish_ns[op] for op in group)
            sent = [
                (output < 0, op)  # a signal is the last one's; of equal ones it is the highest
                for op, output, device in arrival
                if op in group and device == placement[dst] and trace.finish_ns[op] == latest_ns
            ]
            _, last = max(sent)
            time_ns = max(t for (s, _, d), t in arrival.items() if (s, d) == (last, placement[dst]))
        ready[dst] = max(ready[dst], time_ns)
    waits = {e["name"]: e["args"]["wait_ns"] for e in slices(events, problem, channels=False)}
    expected = (trace.start_ns - np.array(ready, np.int64)).tolist()
    assert waits == dict(zip(problem.op_names, expected, strict=True))


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_arrows_lead_from_producer_over_transfer_to_consumer(
    case: tuple[dict[str, Any], list[int]],
) -> None:
    _, trace, events = trace_events(*case)
    arrows: dict[int, dict[str, Event]] = defaultdict(dict)
    for event in events:
        if event["ph"] in "stf":
            arrows[event["id"]][event["ph"]] = event
    assert sorted(arrows) == list(range(1, len(trace.transfers) + 1))
    for flow, send in zip(sorted(arrows), trace.transfers, strict=True):
        source, middle, sink = (arrows[flow][phase] for phase in "stf")
        assert source["pid"] == send["src_device"] + 1
        assert source["ts_ns"] <= trace.finish_ns[send["src_op"]]
        assert (middle["tid"], middle["ts_ns"]) == (send["channel"] + 1, send["start_ns"])
        assert sink["pid"] == send["dst_device"] + 1
        assert sink["ts_ns"] >= send["finish_ns"]


def two_devices() -> dict[str, Any]:
    """`a/"x"` on the left takes 1234567 ns, then its output goes to `b` on the right."""
    ops = [
        {"name": 'a/"x"', "type": "A", "cost_ns": {"gpu": 1234567}, "output_bytes": [5]},
        {"name": "b", "type": "B", "cost_ns": {"gpu": 50}},
    ]
    document = machine(["left", "right"], 99, 2) | {"ops": ops, "edges": [[0, 0, 1]]}
    return document | {"links": document["links"][:1]}


def test_by_hand(tmp_path: Path) -> None:
    problem = problem_from_dict(two_devices())
    path = tmp_path / "trace.json.gz"
    write_chrome_trace(problem, [0, 1], hp.simulate(problem, [0, 1]), path)
    events = read_events(path)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {(1, 1): "slot 0", (2, 1): "slot 0", (3, 1): "0-1"}
    a, b, sent = (e for e in events if e["ph"] == "X")
    assert (a["name"], a["ts"], a["dur"]) == ('a/"x"', 0, Decimal("1234.567"))
    assert (b["name"], b["ts"], b["dur"]) == ("b", Decimal("1234.574"), Decimal("0.050"))
    assert sent["args"] == {"bytes": 5, "from": "left", "to": "right", "wait_ns": 0}
    assert (sent["ts"], sent["dur"]) == (Decimal("1234.567"), Decimal("0.007"))
    first = path.read_bytes()
    write_chrome_trace(problem, [0, 1], hp.simulate(problem, [0, 1]), path)
    assert path.read_bytes() == first


def test_refusals(tmp_path: Path) -> None:
    problem = problem_from_dict(two_devices())
    path = tmp_path / "trace.json"
    with pytest.raises(InfeasibleError, match=r"there is no trace: .* no link leads there"):
        write_chrome_trace(problem, [1, 0], hp.simulate(problem, [1, 0]), path)
    with pytest.raises(ProblemError, match="has 1 devices for 2 ops"):
        write_chrome_trace(problem, [0], hp.simulate(problem, [0, 0]), path)
    with pytest.raises(FileNotFoundError):
        write_chrome_trace(problem, [0, 0], hp.simulate(problem, [0, 0]), tmp_path / "no" / "x")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_counters_show_every_peak_and_what_is_held_after_each_instant(
    case: tuple[dict[str, Any], list[int]],
) -> None:
    problem, trace, events = trace_events(*case)
    for device in range(problem.num_devices):
        counters = [e for e in events if e["ph"] == "C" and e["pid"] == device + 1]
        shown = [(e["ts_ns"], e["args"]["bytes"]) for e in counters]
        assert max((size for _, size in shown), default=0) == trace.peak_bytes[device]
        assert [time_ns for time_ns, _ in shown] == sorted(time_ns for time_ns, _ in shown)
        timeline = trace.memory_timeline()
        held = timeline[timeline["device"] == device]
        assert dict(shown) == dict(
            zip(held["time_ns"].tolist(), held["bytes"].tolist(), strict=True)
        )
