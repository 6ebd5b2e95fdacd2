"""Which way of using devices suits a model: data parallelism by hand, memory, verdicts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hplacer_optimizer as hp
from hplacer_optimizer import cli
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.small_graphs import BATCHED, write, write_replicas
from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.errors import GraphError, InfeasibleError, OptionError
from hplacer_optimizer.inspection.advice import picture
from hplacer_optimizer.inspection.advice.advising import MachineAdvice, compare
from hplacer_optimizer.inspection.advice.allreduce import (
    DIRECT,
    HIERARCHICAL,
    all_gather,
    all_reduce,
    direct,
    ring,
)
from hplacer_optimizer.inspection.advice.changes import Tried, best, changed_ways, with_memory
from hplacer_optimizer.inspection.advice.gradients import find_gradients
from hplacer_optimizer.inspection.advice.replicas import equal_devices
from hplacer_optimizer.inspection.advice.scaling import scaled
from hplacer_optimizer.inspection.advice.subjects import (
    CAPTURED,
    INTERPOLATED,
    SCALED,
    GraphSubject,
    Step,
    between,
    scaled_step,
)
from hplacer_optimizer.inspection.advice.verdicts import change_sentence, verdict
from hplacer_optimizer.inspection.advice.ways import BOTH, ONE, PLAN, REPLICAS, Way, Ways
from hplacer_optimizer.planners import Budget
from hplacer_optimizer.planners.devices import on_device
from hplacer_optimizer.problem.memory import memory_range
from testbed.documents import problem_from_dict
from testbed.environment import ROOT
from testbed.planted_problems import machine

MIB = 1 << 20
SMALL = "two_tower:batch_size=16,features=1,rows=100,width=8,hidden=16,layers=1"


def document(
    devices: int = 2, *, batch: int = 8, weight: int = 400, ns: int = 1000
) -> dict[str, Any]:
    """A step of one layer, x -> y -> gradient -> update; y and the gradient take ns a sample."""
    rows: list[tuple[str, str, int, list[int]]] = [
        ("w", "VarHandleOp", 0, [8]),
        ("read", "ReadVariableOp", 1, [weight]),
        ("x", "Placeholder", 1, [100 * batch]),
        ("y", "MatMul", ns * batch, [200 * batch]),
        ("g", "MatMul", ns * batch, [weight]),
        ("step", "ResourceApplyGradientDescent", 10, []),
    ]
    ops = [
        {"name": name, "type": kind, "cost_ns": {"gpu": cost_ns}, "output_bytes": sizes}
        for name, kind, cost_ns, sizes in rows
    ]
    ops[0]["persistent_bytes"] = weight
    edges = [[0, 0, 1], [1, 0, 3], [2, 0, 3], [3, 0, 4], [0, 0, 5], [4, 0, 5]]
    return machine(devices) | {"ops": ops, "edges": edges}


def training(devices: int = 2, **sizes: int) -> Problem:
    return problem_from_dict(document(devices, **sizes))


def step_of(problem: Problem, batch_size: int | None = 8) -> Step:
    return Step(
        problem=problem,
        batch_size=batch_size,
        origin=CAPTURED,
        cost_source="analytic",
        machine=None,
        assumptions=(),
    )


class Small:
    """Captured at every batch size, without TensorFlow."""

    name = "small"

    def __init__(self, devices: int = 2, **sizes: int) -> None:
        self._devices, self._sizes = devices, sizes

    def step(self, machine: Any, batch_size: int | None) -> Step:
        size = batch_size or 8
        return step_of(training(self._devices, batch=size, **self._sizes), size)


def advised(subject: Any, *sizes: int | None) -> list[MachineAdvice]:
    budget = Budget(seconds=0.2, steps=50)
    return compare(subject, [None], sizes or (None,), budget=budget).machines


def with_replicas(problem: Problem, replica: Problem, devices: list[int]) -> Ways:
    ways = Ways(step=step_of(problem), singles={"gpu": on_device(problem, 0)})
    ways.replica, ways.replicas = step_of(replica, 8 // len(devices)), devices
    return ways


# ---- exchanges by hand: links of 1 byte/ns with 10 ns latency ----


@pytest.mark.parametrize(("devices", "ns"), [(2, 1220), (3, 1640), (4, 1860)])
def test_a_ring_by_hand(devices: int, ns: int) -> None:
    """2 (n - 1) steps of 10 ns and a part of 1200 / n bytes."""
    found = ring(training(devices), range(devices), 1200)
    assert (found.wire_ns, found.work_ns) == (ns, 0)
    assert found.added_bytes == 1200 * (devices - 1) // devices


def test_the_ring_goes_over_fast_links() -> None:
    """0 - 2 - 1 - 3 - 0 has fast links, 0 - 1 and 2 - 3 are 100 times as slow."""
    problem = training(4)
    pairs = zip(problem.link_src.tolist(), problem.link_dst.tolist(), strict=True)
    slow = np.array([{*pair} in ({0, 1}, {2, 3}) for pair in pairs])
    mesh = problem.replace(link_bytes_per_s=np.where(slow, 10**7, 10**9))
    assert ring(mesh, range(4), 1200).wire_ns == 6 * (10 + 300)


def test_a_direct_exchange_by_hand() -> None:
    found = direct(training(3), range(3), 1200)
    assert (found.wire_ns, found.added_bytes) == (2 * (10 + 1200), 2400)
    assert all_reduce(training(2), [0, 1], 1200).kind == DIRECT  # 1210 ns instead of 1220


def test_pieces_have_a_latency_each_and_links_share_a_channel() -> None:
    problem = training(2)
    assert ring(problem, [0, 1], 1200, messages=5).wire_ns == 2 * (5 * 10 + 600)
    one_wire = problem.replace(link_channel=["wire"] * len(problem.link_src))
    assert ring(one_wire, [0, 1], 1200).wire_ns == 2 * (10 + 2 * 600)


def test_sending_and_receiving_are_work_of_a_device() -> None:
    problem = training(2)
    count = len(problem.link_src)
    working = problem.replace(
        link_send_ns=np.full(count, 3),
        link_send_bytes_per_s=np.full(count, 2 * 10**9),
        link_receive_ns=np.full(count, 4),
    )
    assert ring(working, [0, 1], 1200).work_ns == 2 * (3 + 300 + 4)


def test_rows_of_tables_go_to_every_other_device() -> None:
    assert all_gather(training(4), range(4), 90).wire_ns == 3 * (10 + 90)


def test_nothing_to_exchange_takes_no_time() -> None:
    for found in (ring(training(2), [0, 1], 0), direct(training(2), [0, 1], 0)):
        assert found.total_ns == 0
    assert ring(training(2), [0], 1200).total_ns == 0


def test_hosts_are_added_up_one_by_one_where_their_network_is_slow() -> None:
    """Two hosts of two: within 1 byte/ns, between them 0.01 byte/ns on one channel a host."""
    problem = training(4)
    names = [f"/job:w/replica:0/task:{d // 2}/device:GPU:{d % 2}" for d in range(4)]
    far = problem.link_src // 2 != problem.link_dst // 2
    channels = [
        f"nic{src // 2}" if is_far else name
        for name, src, is_far in zip(problem.link_channel, problem.link_src, far, strict=True)
    ]
    two_hosts = problem.replace(
        device_names=names,
        link_channel=channels,
        link_bytes_per_s=np.where(far, 10**7, 10**9),
    )
    found = all_reduce(two_hosts, range(4), 1200)
    within, across = 2 * (10 + 600), 2 * (10 + 2 * 300 * 100)
    assert (found.kind, found.wire_ns) == (HIERARCHICAL, within + across)


def test_a_missing_link_is_named() -> None:
    problem = training(2)
    kept = problem.link_src == 0
    alone = problem.replace(
        **{name: getattr(problem, name)[kept] for name in vars_of_links(problem)},
        link_channel=[name for name, keep in zip(problem.link_channel, kept, strict=True) if keep],
    )
    with pytest.raises(InfeasibleError, match="no link from /device:GPU:1 to /device:GPU:0"):
        ring(alone, [0, 1], 10)
    ways = with_replicas(alone, alone, [0, 1])
    assert "no link" in ways.rows()[1].infeasible_because


def vars_of_links(problem: Problem) -> list[str]:
    return [n for n in dir(problem) if n.startswith("link_") and n != "link_channel"]


# ---- gradients ----


def test_gradients_are_what_updates_read() -> None:
    found = find_gradients(training(2, weight=1200))
    assert (found.dense_bytes, found.sparse_bytes) == (1200, 0)
    assert found.producers.tolist() == [4]


def test_gradients_of_tables_are_the_rows() -> None:
    problem = training(2)
    types = [*problem.op_types[:-1], "ResourceSparseApplyAdagrad"]
    found = find_gradients(problem.replace(op_types=types))
    assert (found.dense_bytes, found.sparse_bytes) == (0, 400)


def test_optimizers_without_an_op_of_their_own_subtract() -> None:
    problem = training(2)
    found = find_gradients(
        problem.replace(op_types=[*problem.op_types[:-1], "AssignSubVariableOp"])
    )
    assert found.size_bytes == 400
    assert "subtracted" in found.note
    assert not find_gradients(hp.load_problem("example")).size_bytes


# ---- other batch sizes ----


def test_scaling_keeps_weights_and_launches() -> None:
    problem = scaled(training(2, batch=8), 0.5, np.array([200]))
    sizes = dict(zip(problem.op_names, problem.output_bytes.tolist(), strict=False))
    assert (sizes["read"], sizes["x"], sizes["y"], sizes["g"]) == (400, 400, 800, 400)
    costs = dict(zip(problem.op_names, problem.cost_ns[:, 0].tolist(), strict=True))
    assert costs["y"] == 200 + 7800 // 2
    assert (costs["w"], costs["step"]) == (0, 10)


def test_a_step_between_two_is_exact_where_costs_grow_evenly() -> None:
    small, large = (step_of(training(2, batch=size), size) for size in (2, 8))
    found = between(small, large, 4)
    assert found is not None
    assert found.origin == INTERPOLATED
    expected = training(2, batch=4)
    assert (found.problem.cost_ns == expected.cost_ns).all()
    assert (found.problem.output_bytes == expected.output_bytes).all()
    assert between(small, large, 8) is large
    half = scaled_step(large, 0.5)
    assert half.origin == SCALED


# ---- the ways ----


def test_one_device_is_the_simulated_placement() -> None:
    problem = training(2)
    way = Ways(step=step_of(problem), singles={"gpu": on_device(problem, 0)}).rows()[0]
    trace = hp.simulate(problem, [0] * problem.num_ops)
    assert (way.kind, way.step_time_ns) == (ONE, trace.makespan_ns)
    assert way.memory is not None
    assert way.memory.least_bytes == trace.peak_bytes[0]
    assert way.samples_per_s == pytest.approx(8e9 / (trace.makespan_ns or 1))


def test_data_parallelism_is_the_replica_and_the_exchange() -> None:
    """The only gradient is ready at the end of the backward pass: nothing is beside it."""
    whole, replica = training(2, batch=8, weight=1200), training(2, batch=4, weight=1200)
    way = with_replicas(whole, replica, [0, 1]).rows()[1]
    own = hp.simulate(replica, [0] * replica.num_ops).makespan_ns
    assert own is not None
    assert (way.kind, way.step_time_ns) == (REPLICAS, own + 10 + 1200)
    assert way.least_ns == way.most_ns
    assert (way.batch_size, way.replica_batch_size, way.exchange) == (8, 4, DIRECT)


@pytest.mark.parametrize("cold_ns", [3, 10**6])
def test_a_gradient_that_follows_ops_takes_longer(cold_ns: int) -> None:
    whole, replica = training(2, batch=8, weight=1200), training(2, batch=4, weight=1200)
    own = hp.simulate(replica, [0] * replica.num_ops).makespan_ns
    assert own is not None
    cold = [problem.replace(device_cold_ns=np.full(2, cold_ns)) for problem in (whole, replica)]
    way = with_replicas(*cold, [0, 1]).rows()[1]
    assert way.most_ns == own + 10 + 1200 + 2 * min(cold_ns, own // 4)


def test_gradients_go_while_the_backward_pass_goes_on() -> None:
    """A CPU sends each gradient as soon as it is there: all but the last one are hidden."""
    ops = [
        {"name": "w", "type": "VarHandleOp", "cost_ns": {"gpu": 0}, "output_bytes": [8]},
        {"name": "g0", "type": "MatMul", "cost_ns": {"gpu": 1000}, "output_bytes": [600]},
        {"name": "g1", "type": "MatMul", "cost_ns": {"gpu": 1000}, "output_bytes": [600]},
    ]
    updates = [
        {"name": f"u{i}", "type": "ApplyAdam", "cost_ns": {"gpu": 0}, "output_bytes": []}
        for i in range(2)
    ]
    edges = [[0, 0, 1], [1, 0, 2], [1, 0, 3], [2, 0, 4]]
    found = machine(2) | {"ops": [*ops, *updates], "edges": edges}
    accelerators = problem_from_dict(found)
    names = [f"/job:w/replica:0/task:{d}/device:CPU:0" for d in range(2)]
    hosts = accelerators.replace(device_names=names)
    for problem, messages, least_ns in ((accelerators, 1, 1210), (hosts, 2, 610)):
        way = with_replicas(problem, problem, [0, 1]).rows()[1]
        assert way.most_ns == 2000 + messages * 10 + 1200
        assert way.least_ns == 2000 + least_ns
        figure_ns = way.least_ns if messages == 2 else (way.least_ns + way.most_ns) // 2
        assert way.step_time_ns == figure_ns


def test_devices_that_share_their_cores_are_one() -> None:
    problem = training(3)
    assert equal_devices(problem) == [0, 1, 2]
    assert equal_devices(problem.replace(device_cores=["host"] * 3)) == []


def test_advice_has_every_way() -> None:
    (found,) = advised(Small(4))
    assert [way.kind for way in found.ways] == [ONE, PLAN, REPLICAS, BOTH]
    assert found.ways[-1].origin == INTERPOLATED
    assert found.ways[-1].replica_batch_size == 4
    assert found.best is not None
    assert found.best.kind == REPLICAS
    assert found.verdict.startswith("Use data parallelism over 4 gpu; this optimizer is not")
    (large,) = advised(Small(4, weight=400_000))
    assert large.best.kind != REPLICAS
    assert "exchange of gradients" in large.ways[2].bound_by


def test_no_replica_is_without_a_sample() -> None:
    (found,) = advised(Small(4), 2)
    assert found.ways[-1].devices == 2


# ---- memory ----


def test_memory_is_an_ordered_range() -> None:
    for kind in ("GPU", "CPU", "TPU"):
        found = memory_range("d", kind, peak_bytes=100 * MIB, memory_bytes=200 * MIB)
        assert found.least_bytes == 100 * MIB < found.most_bytes
        assert found.fits
        assert found.is_tight
        more = memory_range("d", kind, peak_bytes=100 * MIB, memory_bytes=0, buffer_bytes=MIB)
        assert more.most_bytes > found.most_bytes
        assert not more.fits


@pytest.mark.parametrize(
    ("device_type", "is_limit", "most_mib"),
    [  # 1.15 * 1000 + 512 + 500, or without the process; 1.1 * 1000 + 64 + 400
        ("GPU", False, 2162),
        ("GPU", True, 1662),
        ("TPU", False, 2162),
        ("CPU", False, 1564),
    ],
)
@pytest.mark.parametrize(("spare_bytes", "is_tight"), [(0, False), (-1, True)])
def test_what_frameworks_add(
    device_type: str, is_limit: bool, most_mib: int, spare_bytes: int, is_tight: bool
) -> None:
    memory_bytes = most_mib * MIB + spare_bytes
    found = memory_range(
        "d", device_type, peak_bytes=1000 * MIB, memory_bytes=memory_bytes, is_limit=is_limit
    )
    assert found.most_bytes == most_mib * MIB
    assert found.is_tight is is_tight


def test_what_is_added_covers_what_allocators_took() -> None:
    """Of emulated GPUs with TensorFlow's own allocator; docs/how-to/advise.md counts them, too."""
    tasks = json.loads((ROOT / "docs" / "results" / "emulation" / "agreement.json").read_text())
    covered = []
    for run in (run for runs in tasks.values() for run in runs if "peak_bytes" in run):
        for peak, took in zip(run["simulated_peak_bytes"], run["peak_bytes"], strict=True):
            if peak > 100 * MIB:
                found = memory_range("d", "GPU", peak_bytes=peak, memory_bytes=0, is_limit=True)
                covered.append(took <= found.most_bytes)
    assert sum(covered) / len(covered) > 0.95


def test_what_a_detected_device_holds_back_is_not_added_again() -> None:
    """Where TensorFlow told a GPU's memory, its kind is named as `detect` names it."""
    needs = []
    for kind in ("k40", "GPU Tesla K40c"):
        text = json.dumps(document()).replace('"gpu"', f'"{kind}"')
        problem = problem_from_dict(json.loads(text))
        ways = Ways(step=step_of(problem), singles={kind: on_device(problem, 0)})
        memory = ways.rows()[0].memory
        assert memory is not None
        needs.append(memory.most_bytes)
    assert needs[0] - needs[1] == 500 * MIB


# ---- verdicts ----


def way(kind: str, ns: int, *, memory: int = 1000, devices: int = 2) -> Way:
    return Way(
        kind=kind,
        name=f"a {kind}",
        devices=devices,
        batch_size=8,
        replica_batch_size=8,
        step_time_ns=ns,
        least_ns=ns,
        most_ns=ns,
        memory=replace(
            memory_range("d", "GPU", peak_bytes=100, memory_bytes=10**12), least_bytes=memory
        ),
        infeasible_because="",
        bound_by="",
        origin=CAPTURED,
    )


@pytest.mark.parametrize(
    ("ways", "error", "expected"),
    [
        ([way(ONE, 100), way(PLAN, 100)], 0.4, "is enough, and nothing else is faster"),
        ([way(ONE, 100), way(PLAN, 80)], 0.4, "within the error of the prediction. Measure"),
        ([way(ONE, 100), way(PLAN, 40)], 0.4, "Use a plan, by this optimizer: 2.5 times as fast"),
        (
            [way(ONE, 100), way(REPLICAS, 40)],
            0.4,
            "this optimizer is not the answer: 2.5 times as fast",
        ),
        ([way(ONE, 100), way(PLAN, 40), way(REPLICAS, 45)], 0.4, "which is simpler, or measure"),
        ([way(PLAN, 40)], 0.4, "No single device has enough memory; Use a plan"),
    ],
)
def test_verdicts(ways: list[Way], error: float, expected: str) -> None:
    assert expected in verdict(ways, error)


def test_a_gain_that_is_left_where_estimates_are_wrong_is_sure() -> None:
    ways = [way(ONE, 100), way(PLAN, 80), way(REPLICAS, 90)]
    assert "within the error" in verdict(ways, 0.4)
    assert "within the error" in verdict(
        ways, 0.4, [way(ONE, 10), way(PLAN, 11), way(REPLICAS, 12)]
    )
    close = verdict(ways, 0.4, [way(ONE, 10), way(PLAN, 8), way(REPLICAS, 8)])
    assert "which is simpler, or measure a plan" in close
    sure = verdict(ways, 0.4, [way(ONE, 10), way(PLAN, 8), way(REPLICAS, 9)])
    assert sure.startswith("Use a plan, by this optimizer: "), sure


def test_what_would_change_it_is_computed() -> None:
    problem = training(2, weight=12_000)
    ways = with_replicas(problem, training(2, batch=4, weight=12_000), [0, 1])
    rows = ways.rows()
    now = best(rows)
    assert now is not None
    assert now.kind == ONE
    tried = changed_ways(ways, now)
    assert tried[1].best == REPLICAS
    assert tried[1].change == "4 times the bandwidth of every link (the slowest: 4 GB/s)"
    assert "4 times the bandwidth" in change_sentence(rows, tried)
    assert "would be the best way" in change_sentence(rows, tried)


def test_what_is_advised_already_is_no_change() -> None:
    """A plan is predicted best; where that is not certain, one device is advised."""
    ways = [way(ONE, 100), way(PLAN, 80)]
    slower = Tried(change="half the bandwidth", best=ONE, best_name="one GPU", step_time_ns=100)
    assert "one GPU would be the best way" in change_sentence(ways, [slower], 0.1)
    assert "None of these would change that" in change_sentence(ways, [slower], 0.4)


def test_less_memory_is_a_change() -> None:
    problem = training(1, weight=4 * 10**11)
    ways = Ways(step=step_of(problem), singles={"gpu": on_device(problem, 0)})
    assert ways.rows()[0].feasible
    assert not ways.rows(with_memory(0.5))[0].feasible
    rows = ways.rows()
    assert "nothing would fit" in change_sentence(rows, changed_ways(ways, best(rows)))


# ---- from a file, the command ----


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "small.hplacer.json"
    hp.save_problem(training(2), path)
    return str(path)


def test_a_problem_file_is_scaled(file: str) -> None:
    found = hp.advise(file, batch_size=[8, 16], budget_s=0.2)
    first, second = found.machines
    assert [way.origin for way in first.ways] == [CAPTURED, CAPTURED, SCALED]
    assert [way.origin for way in second.ways] == [SCALED, SCALED, CAPTURED]
    assert any("scaled, not captured" in one for one in first.assumptions)
    assert "small" in repr(found)
    (unknown,) = hp.advise(file, budget_s=0.2).machines
    assert unknown.ways[0].samples_per_s is None


def test_the_command_prints_and_has_json(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["advise", file, "--budget", "1", "--batch-size", "8"]
    assert cli.main([*command, "--all"]) == 0
    printed = capsys.readouterr().out
    assert "data parallelism over 2 gpu" in printed
    assert "assumed: every way has the same number of samples" in printed
    assert cli.main([*command, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["machines"]
    shown = {"machine", "batch_size", "error", "verdict", "change", "changes", "best"}
    assert shown <= found.keys()
    assert [one["kind"] for one in found["ways"]] == [ONE, PLAN, REPLICAS]
    for one in found["ways"]:
        assert one["step_time_ns"] > 0
        assert one["least_ns"] <= one["step_time_ns"] <= one["most_ns"]
        assert one["memory"]["least_bytes"] <= one["memory"]["most_bytes"]
        assert one["samples_per_s"] > 0
        assert one["feasible"] is True


def test_the_command_fails_where_nothing_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "large.hplacer.json"
    hp.save_problem(training(2, weight=2 * 10**12), path)
    assert cli.main(["advise", str(path), "--budget", "1", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["machines"]
    assert found["best"] is None
    assert found["verdict"].startswith("Nothing fits: even ")
    assert "smaller batch" in found["verdict"]


def test_a_picture_has_a_bar_of_every_way(file: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (ways,) = hp.advise(file, budget_s=0.2).picture(tmp_path / "advice.svg").axes
    assert len(ways.patches) == 3
    assert (tmp_path / "advice.svg").read_text().startswith("<?xml")


def test_a_picture_names_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(OptionError, match=r"hplacer-optimizer\[bench\]"):
        picture.draw([], None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "example", "batch_size": 0}, "whole number of at least 1, got 0"),
        ({"source": "example", "batch_size": []}, "name at least one"),
        ({"source": "example", "machine": []}, "name at least one"),
        ({"workload": "nmt:batch_size=many"}, "batch_size: must be a whole number"),
    ],
)
def test_wrong_arguments_name_the_fix(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as error:
        hp.advise(**arguments)
    assert message in str(error.value)


# ---- with TensorFlow ----

SCRIPT = """
import tensorflow as tf
inputs = tf.random.normal((24, 8))
weight = tf.Variable(tf.random.normal((8, 8)))

@tf.function
def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.tanh(x @ weight) ** 2)
    weight.assign_sub(0.1 * tape.gradient(loss, weight))

open("log.txt", "w").write("overwritten")
open("new.txt", "w").close()
for _ in range({steps}):
    train(inputs)
open({after!r}, "w").close()
"""


@pytest.mark.slow
def test_a_workload_is_captured_at_each_batch_size(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorflow")
    command = ["advise", "--workload", SMALL]
    command += ["--machine", "2hosts-2xcpu", "--machine", "1cpu-2xk40"]
    assert cli.main([*command, "--budget", "1", "--json"]) == 0
    clusters, host = json.loads(capsys.readouterr().out)["machines"]
    assert (clusters["machine"], host["machine"]) == ("2hosts-2xcpu", "1cpu-2xk40")
    for found in (clusters, host):
        replicas = found["ways"][-1]
        assert (found["batch_size"], replicas["replica_batch_size"]) == (16, 8)
        assert {one["origin"] for one in found["ways"]} == {CAPTURED}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wide embeddings", "two unequal towers"])
def test_data_parallelism_is_what_the_simulator_says_of_replicas(name: str, tmp_path: Path) -> None:
    """The same by hand, as one graph on two workers: the figures agree within 10%."""
    pytest.importorskip("tensorflow")
    workers = hp.load_machine("2hosts-2xcpu")
    size = BATCHED[name].args[-1]
    for share in (1, 2):
        write(name, tmp_path / f"{share}.meta", size // share)
    write_replicas(name, tmp_path / "replicas.meta", size, workers.device_names)
    whole, half, replicas = (
        load_graph(tmp_path / f"{file}.meta", machine=workers, logs=False)
        for file in ("1", "2", "replicas")
    )
    default = replicas.problem.default_device
    assert default is not None
    simulated_ns = hp.simulate(replicas.problem, default).makespan_ns
    assert simulated_ns is not None
    ways = with_replicas(whole.problem, half.problem, [0, 1])
    assert ways.replica is not None
    ways.replica = replace(ways.replica, machine=workers)
    way = ways.rows()[1]
    assert way.step_time_ns == pytest.approx(simulated_ns, rel=0.1)


@pytest.mark.slow
def test_a_graph_with_an_open_batch_is_captured_anew(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 32], "x")
        weight = tf.compat.v1.get_variable("w", [32, 32])
        loss = tf.reduce_mean(tf.tanh(x @ weight))
        train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    subject = GraphSubject(graph, {"targets": [train.name]})
    small, large = (subject.step("2hosts-2xcpu", size) for size in (16, 4096))
    assert (small.origin, small.batch_size, large.batch_size) == (CAPTURED, 16, 4096)
    assert large.problem.cost_ns.sum() > 4 * small.problem.cost_ns.sum()
    assert find_gradients(small.problem).dense_bytes == 32 * 32 * 4


@pytest.mark.slow
def test_a_script_runs_until_its_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorflow")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    after = str(tmp_path / "after")
    Path("train.py").write_text(SCRIPT.format(steps=3, after=after))
    Path("log.txt").write_text("kept")
    found = hp.advise("train.py", machine="1cpu-2xk40", budget_s=1).machines[0]
    assert not Path(after).exists()
    assert Path("log.txt").read_text() == "kept"
    assert sorted(path.name for path in Path().iterdir()) == ["log.txt", "train.py"]
    assert found.batch_size == 24
    assert {way.kind for way in found.ways} == {ONE, PLAN, REPLICAS}
    Path("idle.py").write_text(SCRIPT.format(steps=0, after=after))
    with pytest.raises(GraphError, match="without a training step"):
        hp.advise("idle.py")
    Path("wrong.py").write_text("raise SystemExit(3)")
    with pytest.raises(GraphError, match="exit code 3"):
        hp.advise("wrong.py")
