"""Tables of measured costs, our estimates against sums worked out by hand, and TensorFlow's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hplacer_optimizer as hp
from hplacer_optimizer.costs import table as costs
from hplacer_optimizer.costs.table import CostTable, MeasuredCost
from tests.processes import run

# ---- tables ----

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
ENTRIES = st.dictionaries(
    st.tuples(TEXT, TEXT),
    st.builds(MeasuredCost, st.integers(0, costs.MAX_TIME_NS), st.integers(1, 2**63 - 1)),
    max_size=5,
)


def table_of(entries: dict[tuple[str, str], MeasuredCost]) -> CostTable:
    table = CostTable()
    for (op, kind), cost in entries.items():
        table.set(op, kind, cost)
    return table


@given(entries=ENTRIES)
def test_a_table_survives_its_file(
    entries: dict[tuple[str, str], MeasuredCost], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("costs") / "t.json"
    table = table_of(entries)
    table.save(path)
    assert CostTable.load(path) == table
    assert {(op, kind): cost for op, kind, cost in CostTable.load(path)} == entries
    assert len(table) == len(entries)
    assert [file.name for file in path.parent.iterdir()] == ["t.json"]


ENTRY = {"op": "A{} ->", "kind": "cpu", "time_ns": 5, "samples": 2}


def document(**changes: Any) -> dict[str, Any]:
    return {"format": "hplacer-costs/1", "costs": [ENTRY | changes]}


def without(key: str) -> dict[str, Any]:
    entry = {name: value for name, value in ENTRY.items() if name != key}
    return {"format": "hplacer-costs/1", "costs": [entry]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (document(time_ns=-1), r"costs\[0\]\.time_ns: must be from 0 to"),
        (document(time_ns=2**51), r"costs\[0\]\.time_ns: must be from 0 to"),
        (document(time_ns=1.0), r"costs\[0\]\.time_ns: expected an integer, got float"),
        (document(time_ns=True), r"costs\[0\]\.time_ns: expected an integer, got bool"),
        (document(samples=0), r"costs\[0\]\.samples: must be from 1 to"),
        (document(op=""), r"costs\[0\]\.op: expected a non-empty string"),
        (document(op="\ud800"), r"costs\[0\]\.op: .* is not valid Unicode"),
        (document(kind=3), r"costs\[0\]\.kind: expected a non-empty string, got 3"),
        (document(times_ns=3), r"costs\[0\]\.times_ns: unknown key"),
        (without("time_ns"), r"costs\[0\]\.time_ns: is missing"),
        (without("op"), r"costs\[0\]\.op: is missing"),
        (
            {"format": "hplacer-costs/1", "costs": [ENTRY, ENTRY]},
            r"costs\[1\]\.op: has a cost on kind 'cpu' already",
        ),
        ({"format": "hplacer-costs/1", "costs": [3]}, r"costs\[0\]: expected an object, got int"),
        ({"format": "hplacer-costs/1", "costs": {}}, r"costs: expected a list, got dict"),
        ({"format": "hplacer-costs/1"}, r"costs: expected a list, got null"),
        ({"format": "hplacer-costs/2", "costs": []}, r"format: .*; upgrade hplacer-optimizer"),
        ({"format": "hplacer-problem/1"}, r"format: 'hplacer-problem/1' is not supported"),
        ({"format": "hplacer-costs/1", "costs": [], "x": 1}, r"x: unknown key"),
        ([], r"expected an object, got list"),
    ],
)
def test_malformed_tables_are_refused(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(content))
    with pytest.raises(hp.CostTableError, match=message) as caught:
        CostTable.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"format": NaN}', "the number NaN"),
        (b'{"format": 1, "format": 2}', "the key 'format' is given twice"),
        (b'{"format": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_what_is_no_json_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(data)
    with pytest.raises(hp.CostTableError, match=message):
        CostTable.load(path)


VALID = json.dumps(document()).encode()


@given(at=st.integers(0, len(VALID) - 1), cut=st.integers(0, 9), bytes_=st.binary(max_size=3))
def test_damaged_tables_raise_nothing_else(
    at: int, cut: int, bytes_: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("costs") / "t.json"
    path.write_bytes(VALID[:at] + bytes_ + VALID[at + cut :])
    try:
        table = CostTable.load(path)
    except hp.CostTableError:
        return
    assert all(cost.time_ns >= 0 for _, _, cost in table)


def test_a_missing_table_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        CostTable.load(tmp_path / "none.json")


def test_measured_costs_replace_estimates() -> None:
    table = CostTable("t.json")
    table.set("A", "cpu", MeasuredCost(70))
    table.set("A", "gpu", MeasuredCost(7, 3))
    table.set("B", "gpu", MeasuredCost(9))
    arrays = {"cost_ns": np.array([[1, 2], [3, -1], [5, 6], [7, 8]]), "other": object()}
    removed = np.zeros(4, np.bool_)
    changed, summary = costs.apply(table, arrays, ["A", "B", "C", ""], ["cpu", "gpu"], removed)
    # B has no kernel on the GPU, C is not in the table, the last op has no signature.
    assert changed["cost_ns"].tolist() == [[70, 7], [3, -1], [5, 6], [7, 8]]
    assert changed["other"] is arrays["other"]
    assert arrays["cost_ns"].tolist()[0] == [1, 2]
    assert summary.sentence == "cost table t.json: 2 of 7 op costs measured, 5 estimated"
    assert summary.cost_source == "measured and analytic"
    assert (
        costs.apply(CostTable(), arrays, list("ABCD"), ["cpu", "gpu"], removed)[1].cost_source
        == "analytic"
    )
    assert costs.apply(table, arrays, list("AACC"), ["cpu", "tpu"], removed)[1].measured == 2


def test_what_does_not_run_needs_no_measurement() -> None:
    table = CostTable("t.json")
    table.set("A", "cpu", MeasuredCost(70))
    arrays = {"cost_ns": np.array([[1, 2], [0, -1], [0, 0]])}
    removed = np.array([False, True, True])
    changed, summary = costs.apply(table, arrays, ["A", "A", "B"], ["cpu", "gpu"], removed)
    assert changed["cost_ns"].tolist() == [[70, 2], [0, -1], [0, 0]]
    assert summary.is_measured.tolist() == [[True, False], [True, False], [True, True]]


# ---- the table of estimates ----


@pytest.fixture(scope="module")
def tf_module() -> Any:
    pytest.importorskip("tensorflow")
    from hplacer_optimizer.capture import native

    if native.is_missing():
        pytest.skip("the native module is not built")
    return native.load()


def test_the_estimates_are_of_known_ops(tf_module: Any) -> None:
    from tensorflow.python.framework import op_def_registry

    unknown = [op for op in tf_module.op_estimates() if op_def_registry.get(op) is None]
    assert unknown == []


def test_only_ops_without_a_kernel_overrule_tensorflow(tf_module: Any) -> None:
    estimates = tf_module.op_estimates()
    functions = set(tf_module.tensorflow_cost_functions())
    both = functions & set(estimates)
    assert "Identity" in both
    assert {estimates[op] for op in both} == {"no kernel"}
    like = "TensorFlow's function for "
    borrowed = {text.removeprefix(like) for text in estimates.values() if text.startswith(like)}
    assert "FusedBatchNorm" in borrowed
    assert borrowed <= functions


def test_kinds_need_a_float32_peak(tf_module: Any) -> None:
    with pytest.raises(ValueError, match="kind 'k40': float32 is missing"):
        tf_module.MachineRates().add_kind("k40", "GPU", {"float16": 1e9}, 1e9, 5000)


# ---- captured steps ----

HELPERS = """
from testbed import virtual_cluster
from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.machines import Device, DeviceKind, Machine

raw = tf.raw_ops
rates = {"memory_bytes_per_s": 34 * 10**9, "memory_bytes": 2**40}
MACHINE = Machine(
    name="by hand",
    kinds=(
        DeviceKind(name="cpu", type="CPU", flops_per_s={"float32": 36.8e9},
                   launch_overhead_ns=0, executor_overhead_ns=0, **rates),
        DeviceKind(name="gpu", type="GPU", flops_per_s={"float32": 36.8e9, "float16": 368e9},
                   launch_overhead_ns=5000, executor_overhead_ns=1000, **rates),
    ),
    devices=(Device(name="/device:CPU:0", kind="cpu"), Device(name="/device:GPU:0", kind="gpu")),
    links=(),
)

def captured(build, **options):
    "Op name -> (cost by kind, persistent bytes, signature, output bytes), and assumptions."
    with tf.Graph().as_default() as graph:
        target = tf.group(*build(), name="target")
    loaded = load_graph(graph, machine=MACHINE, targets=[target], **options)
    arrays = loaded.captured.arrays
    outputs = np.split(arrays["output_bytes"], arrays["output_ptr"][1:-1])
    rows = zip(arrays["cost_ns"].tolist(), arrays["persistent_bytes"].tolist(),
               loaded.captured.op_signatures, (sizes.tolist() for sizes in outputs))
    assumptions = [text for text in loaded.assumptions if "GPU kernels" not in text]
    return {"ops": dict(zip(arrays["op_names"], rows)), "assumptions": assumptions}

def zeros(shape, dtype=tf.float32):
    return v1.placeholder(dtype, shape)
"""


def test_costs_worked_out_by_hand(tmp_path: Path) -> None:
    """Rates: 36.8 flops and 34 bytes per ns; launches 0 on the CPU, 5,000 ns on the GPU."""
    outcome = run(
        HELPERS
        + """
def build():
    adam = [v1.Variable(zeros([1000]), use_resource=True, shape=[1000]) for _ in range(3)]
    one = zeros([])
    embedding = v1.get_variable("embedding", [100, 10], use_resource=True)
    half = zeros([64, 64], tf.float16)
    whole, rows = (
        v1.get_variable(name, [100, 10], use_resource=True) for name in ("whole", "rows"))
    return [
        raw.Neg(x=raw.ReadVariableOp(resource=whole.handle, dtype=tf.float32, name="read_whole")),
        raw.Neg(x=raw.ReadVariableOp(resource=rows.handle, dtype=tf.float32, name="read_rows")),
        raw.AssignAddVariableOp(resource=whole.handle, value=zeros([100, 10]), name="add"),
        raw.ResourceScatterAdd(
            resource=raw.Identity(input=rows.handle, name="same_rows"),
            indices=zeros([1], tf.int32), updates=zeros([1, 10]), name="add_row"),
        raw.TanhGrad(y=zeros([3400]), dy=zeros([3400]), name="tanh_grad"),
        raw.ResourceApplyAdam(
            var=adam[0].handle, m=adam[1].handle, v=adam[2].handle, beta1_power=one,
            beta2_power=one, lr=one, beta1=one, beta2=one, epsilon=one, grad=zeros([1000]),
            name="adam"),
        raw.ResourceGather(
            resource=embedding.handle, indices=zeros([17], tf.int32), dtype=tf.float32,
            name="gather"),
        raw.Conv3D(input=zeros([1, 4, 4, 4, 2]), filter=zeros([3, 3, 3, 2, 5]),
                   strides=[1] * 5, padding="SAME", name="conv3d"),
        raw.MatMul(a=half, b=half, name="half"),
        raw.AddV2(x=zeros([2], tf.int32), y=zeros([2], tf.int32), name="int32"),
        raw.Identity(input=zeros([1000]), name="identity"),
        raw.Einsum(inputs=[zeros([3, 5, 7]), zeros([7, 2])], equation="...i,ij->...j",
                   name="einsum"),
    ]
report(**captured(build))
""",
        tmp_path,
    )
    cost = {name: row[0] for name, row in outcome.report["ops"].items()}
    output_bytes = {name: row[3] for name, row in outcome.report["ops"].items()}
    assert output_bytes["conv3d"] == [4 * 320]
    assert output_bytes["half"] == [2 * 64 * 64]
    assert output_bytes["adam"] == []
    assert output_bytes["embedding"] == [8]
    # 3 flops per element: 10,200 / 36.8; three tensors of 13,600 bytes: 40,800 / 34
    assert cost["tanh_grad"] == [278 + 1200, 5000 + 278 + 1200]
    # 24 flops per element: 24,000 / 36.8; 7 x 4,000 bytes: 28,000 / 34
    assert cost["adam"][0] == 653 + 824
    # 17 rows of 40 bytes, read and written, and 17 indices: (1,360 + 68) / 34
    assert cost["gather"] == [42, 5042]
    # 2 x 320 outputs x 27 x 2: 34,560 / 36.8; (512 + 1,080 + 1,280) / 34
    assert cost["conv3d"][0] == 940 + 85
    # 2 x 64^3 flops, on the GPU at the rate of float16; 3 x 8,192 bytes
    assert cost["half"] == [14_247 + 723, 5000 + 1425 + 723]
    # On a GPU, TensorFlow adds int32 tensors on the host.
    assert cost["int32"] == [2, 1000 + 2]
    assert cost["identity"] == [0, 1000]
    # A variable whose rows are updated is copied: 2 x 4,000 / 34
    assert cost["read_whole"] == [0, 1000]
    assert cost["read_rows"] == [236, 5236]
    # 2 x (3 x 5) x 7 x 2 = 420 flops; (105 + 14 + 30) x 4 = 596 bytes
    assert cost["einsum"][0] == 12 + 18


def test_products_of_float32_run_in_tf32_unless_switched_off(tmp_path: Path) -> None:
    outcome = run(
        HELPERS
        + """
import os
from dataclasses import replace
cpu, gpu = MACHINE.kinds
MACHINE = replace(
    MACHINE, kinds=(cpu, replace(gpu, flops_per_s={**gpu.flops_per_s, "tf32": 147.2e9})))
def build():
    single, double = (zeros([64, 64], dtype) for dtype in (tf.float32, tf.float64))
    return [raw.MatMul(a=single, b=single, name="single"),
            raw.MatMul(a=double, b=double, name="double")]
def costs():
    return {name: row[0] for name, row in captured(build)["ops"].items()}
default = costs()
tf.config.experimental.enable_tensor_float_32_execution(False)
off = costs()
tf.config.experimental.enable_tensor_float_32_execution(True)
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
report(default=default, off=off, overridden=costs())
""",
        tmp_path,
    )
    default, off = outcome.report["default"], outcome.report["off"]
    # 2 x 64^3 flops, at 147.2 or 36.8 a ns; 3 x 16,384 bytes at 34
    assert default["single"] == [14_247 + 1446, 5000 + 3562 + 1446]
    assert off["single"] == [14_247 + 1446, 5000 + 14_247 + 1446]
    assert default["double"] == off["double"]
    assert outcome.report["overridden"] == off


def test_a_loop_launches_its_kernels_in_each_trip(tmp_path: Path) -> None:
    """Where ops are launched ahead, it lasts as long as launches or kernels, whichever is longer.

    Its counter is on the host and launches nothing, nor does a product with ones. Ops of the CPU do
    not take all of it there.
    """
    outcome = run(
        HELPERS
        + """
from dataclasses import replace
cpu, gpu = MACHINE.kinds
MACHINE = replace(MACHINE, kinds=(cpu, replace(gpu, launches_ahead=True)))
def loop(name, size, prints):
    def body(i, y):
        stride = tf.strings.length(tf.strings.as_string(i)) if prints else 1
        return i + stride, tf.tanh(y @ y) * 1.0
    return tf.while_loop(lambda i, y: i < 7, body, [tf.constant(0), zeros([size, size])],
                         name=name)[1]
with tf.Graph().as_default() as graph:
    target = tf.group(loop("small", 4, False), loop("large", 256, False), loop("prints", 4, True))
arrays = load_graph(graph, machine=MACHINE, targets=[target]).captured.arrays
allowed = np.split(arrays["allowed_device"], arrays["allowed_ptr"][1:-1])
report(loops={name.partition("/")[0].partition(" ")[0]: [*cost.tolist(), devices.tolist()]
              for name, op_type, cost, devices in zip(
                  arrays["op_names"], arrays["op_types"], arrays["cost_ns"], allowed)
              if op_type == "WhileLoop"})
""",
        tmp_path,
    )
    loops = outcome.report["loops"]
    # 7 trips with two kernels each, of which the simulator has the first launch.
    assert loops["small"][1:] == [13 * 5000, [0, 1]]
    # More than 2 x 256^3 flops at 36.8 a ns, and as long as on the CPU, which has the same rates.
    on_cpu, on_gpu, _ = loops["large"]
    assert 7 * 911_806 < on_gpu == pytest.approx(on_cpu, rel=1e-4)
    # What it prints decides how often it runs: 10 trips are assumed.
    assert loops["prints"][1:] == [19 * 5000, [0, 1]]


def test_persistent_bytes_and_unknown_shapes(tmp_path: Path) -> None:
    outcome = run(
        HELPERS
        + """
def build():
    static = v1.get_variable("static", [100, 10], use_resource=True)
    late = v1.Variable(tf.ones(tf.constant([7, 3])), validate_shape=False, use_resource=False,
                       name="late")
    keys = tf.constant([1, 2, 3, 4, 5], tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, keys), 0,
                                      name="table")
    return [static.read_value(), raw.Identity(input=late), table.lookup(keys)]
def build_unknown():
    x = v1.placeholder(tf.float32, [None, 4], name="x")
    found = raw.Where(condition=x > 0.0, name="found")
    return [tf.cast(found, tf.float32, name="later")]
def build_computed():
    sizes = v1.placeholder(tf.int32, [6], name="sizes")
    reshaped = raw.Reshape(tensor=zeros([64, 32]), shape=sizes, name="reshaped")
    tiled = raw.Tile(input=reshaped, multiples=sizes, name="tiled")
    back = raw.Transpose(x=zeros([2, 3, 5]), perm=raw.InvertPermutation(x=[2, 0, 1]))
    return [raw.Neg(x=reshaped, name="negative"), raw.Neg(x=tiled, name="negative_tiled"),
            raw.Neg(x=back, name="negative_back")]
report(computed=captured(build_computed),known=captured(build), chosen=captured(build_unknown),
       named=captured(build_unknown, batch_size=77),
       shaped=captured(build_unknown, shapes={"x": [5, -1]}),
       half_shaped=captured(build_unknown, shapes={"x:0": [-1, 4]}, batch_size=9))
""",
        tmp_path,
    )
    chosen, named = outcome.report["chosen"], outcome.report["named"]
    persistent = {name: row[1] for name, row in outcome.report["known"]["ops"].items() if row[1]}
    assert persistent == {"static": 4000, "late": 84, "table": 80}
    # "later" is unknown because "found" is.
    assert chosen["assumptions"] == [
        "unknown dimensions of 1 fed tensors taken as 32 (option batch_size)",
        "2 tensors have no known shape (found and 1 more): two unknown dimensions of each taken as "
        "32, others as 1, unknown ranks as scalars",
    ]
    assert "77" in named["assumptions"][0]
    assert " bool[77,4] -> int64[77,2]" in named["ops"]["found"][2]
    shaped, half_shaped = outcome.report["shaped"], outcome.report["half_shaped"]
    assert " bool[5,4] -> int64[32,2]" in shaped["ops"]["found"][2]
    assert not any("fed tensors" in text for text in shaped["assumptions"])
    assert " bool[9,4] -> int64[9,2]" in half_shaped["ops"]["found"][2]
    # As many elements as before, also in what follows; not 64^6.
    computed = outcome.report["computed"]["ops"]
    assert " float[2048,1,1,1,1,1] -> float[2048,1,1,1,1,1]" in computed["negative"][2]
    assert " float[64,64,1,1,1,1] -> float[64,64,1,1,1,1]" in computed["negative_tiled"][2]
    assert " float[3,5,2] -> float[3,5,2]" in computed["negative_back"][2]


def test_shapes_that_do_not_fit_the_graph(tmp_path: Path) -> None:
    outcome = run(
        HELPERS
        + """
def build():
    return [v1.placeholder(tf.float32, [None, 4], name=name) + 1.0
            for name in ("images", "labels", "weights", "a", "b", "c")]
def refused(**shapes):
    try:
        captured(build, shapes=shapes)
    except hp.GraphError as error:
        return str(error)
report(unknown=refused(image=[1, 4]), output=refused(**{"images:1": [1, 4]}),
       rank=refused(labels=[3]), size=refused(labels=[3, 5]))
""",
        tmp_path,
    )
    texts = outcome.report
    assert (
        "'image', which is not fed; the most similar fed tensors are 'images'" in texts["unknown"]
    )
    assert "'images:1', which is not fed" in texts["output"]
    assert "[3] given for 'labels' contradicts the graph, which declares [?,4]" in texts["rank"]
    assert "[3,5] given for 'labels' contradicts the graph" in texts["size"]


def test_signatures_name_what_decides_the_time(tmp_path: Path) -> None:
    outcome = run(
        HELPERS
        + """
def build(seed=1, stride=1):
    x = zeros([1, 8, 8, 2])
    return [
        raw.Conv2D(input=x, filter=zeros([3, 3, 2, 4]), strides=[1, stride, stride, 1],
                   padding="VALID", name="conv"),
        raw.RandomUniform(shape=[3, 4], dtype=tf.float32, seed=seed, name="random"),
        raw.LeakyRelu(features=x, alpha=0.1, name="leaky"),
    ]
report(first=captured(build), seeded=captured(lambda: build(seed=2)),
       strided=captured(lambda: build(stride=2)))
""",
        tmp_path,
    )
    first, seeded, strided = (
        {name: row[2] for name, row in outcome.report[key]["ops"].items()}
        for key in ("first", "seeded", "strided")
    )
    assert first["conv"] == (
        'Conv2D{T=float,data_format="NHWC",dilations=[1,1,1,1],explicit_paddings=[],'
        'padding="VALID",strides=[1,1,1,1],use_cudnn_on_gpu=true} '
        "float[1,8,8,2] float[3,3,2,4] -> float[1,6,6,4]"
    )
    assert first["random"] == "RandomUniform{T=int32,dtype=float} int32[2] -> float[3,4]"
    assert "alpha=0.100000001" in first["leaky"]
    assert seeded == first
    assert strided["conv"] != first["conv"]


@pytest.mark.parametrize(
    "build",
    [
        pytest.param("inception_v3.build(batch_size=2, pixels=107)", marks=pytest.mark.slow),
        "rnnlm.build(steps=4, hidden=64, vocabulary=100)",
    ],
)
def test_costs_agree_with_tensorflows_virtual_cluster(build: str, tmp_path: Path) -> None:
    outcome = run(
        HELPERS
        + f"""
from hplacer_optimizer.workloads import inception_v3, rnnlm
report(result=virtual_cluster.compare({build}))
""",
        tmp_path,
    )
    result = outcome.report["result"]
    assert result["compared"] > 50
    assert result["share_within"] >= 0.99, result["outside"]
    assert {"AddN", "BiasAdd", "Mul"} <= set(result["compared_op_types"])


# ---- plans ----


def test_a_plan_is_made_with_measured_costs(tmp_path: Path) -> None:
    outcome = run(
        """
table = hp.CostTable()
from hplacer_optimizer.costs import table as costs
table.save(CACHE + "empty.json")
on(cost_table=CACHE + "empty.json")
losses(trainer())
on(cost_table=CACHE + "none.json", seed=1)
with Recorder() as recorder:
    losses(trainer(width=32))
    log = recorder.lines(1)
first = plugin.history()[0]
plan = hp.PlanStore(CACHE).get(first.fingerprint)
report(source=plan.cost_source, assumptions=plan.assumptions, log=log)
""",
        tmp_path,
    )
    assert outcome.report["source"] == "analytic"
    assert any("empty.json: 0 of" in text for text in outcome.report["assumptions"])
    (line,) = outcome.report["log"]
    assert "none.json" in line
    assert "keeps TensorFlow's own placement" in line


def test_gradients_of_transposes_are_as_large_as_these(tmp_path: Path) -> None:
    """They read an inverted permutation, whose value TensorFlow's inference does not know."""
    seen = run(
        HELPERS
        + """
def build():
    x = zeros([24, 64])
    def heads(name):
        weights = v1.get_variable(name, [64, 64], use_resource=True)
        return tf.transpose(tf.reshape(x @ weights, [4, 6, 8, 8]), [0, 2, 1, 3])
    scores = tf.nn.softmax(tf.matmul(heads("query"), heads("key"), transpose_b=True))
    mixed = tf.transpose(tf.matmul(scores, heads("value")), [0, 2, 1, 3])
    loss = tf.reduce_sum(tf.square(tf.reshape(mixed, [24, 64])))
    return [v1.train.GradientDescentOptimizer(0.1).minimize(loss)]

found = captured(build)
report(sizes=[op[3] for name, op in found["ops"].items() if name.endswith("/transpose")],
       assumptions=found["assumptions"])
""",
        tmp_path,
    ).report
    assert seen == {"sizes": [[24 * 64 * 4]] * 4, "assumptions": []}
