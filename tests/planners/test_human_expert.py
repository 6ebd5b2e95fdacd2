"""The `human_expert` planner: the rule of each workload, and rules from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import OptionError, PlannerUnavailableError
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.planners.expert_rules import EXPERTS, expert_for
from hplacer_optimizer.problem.problem_file import load_problem_file
from hplacer_optimizer.workloads.graphs import GRAPHS
from testbed.documents import problem_from_dict
from testbed.planted_problems import machine
from tests.processes import PRELUDE, run
from tests.workloads.test_workload_graphs import SMALL, with_large_ones_slow

CPU, GPU0, GPU1, GPU2 = range(4)


def problem(
    names: list[str], edges: list[tuple[int, int]], num_gpus: int = 2, **of_op: dict[str, Any]
) -> Problem:
    """Ops with one output each; `of_op`: further fields of op `opI`."""
    ops = [
        {"name": name, "type": "T", "cost_ns": {"cpu": 1, "gpu": 1}, "output_bytes": [1]}
        | of_op.get(f"op{i}", {})
        for i, name in enumerate(names)
    ]
    devices = ["/device:CPU:0", *(f"/device:GPU:{i}" for i in range(num_gpus))]
    document = machine(devices, 1, is_linked=False) | {"device_kinds": ["cpu", "gpu"]}
    return problem_from_dict(
        document | {"ops": ops, "edges": [[src, 0, dst] for src, dst in edges]}
    )


def place(names: list[str], edges: list[tuple[int, int]] = [], **options: Any) -> list[int]:  # noqa: B006
    placement: list[int] = (
        get_planner("human_expert").plan(problem(names, edges, **options)).placement.tolist()
    )
    return placement


NMT = [f"{side}/layer_{layer}/step_0/MatMul" for side in ("encoder", "decoder") for layer in (0, 1)]


def test_nmt_has_a_layer_per_gpu_and_the_ends_with_the_outer_layers() -> None:
    names = [
        *NMT,
        "gradients/decoder/layer_1/step_3/MatMul_grad/MatMul_1",
        "train_op/update_encoder/layer_1/kernel/ResourceApplyAdam",
        "embedding/target/step_2/embedding_lookup",
        "train_op/update_embedding/source/table/ResourceScatterAdd",
        "attention/step_1/Softmax",
        "gradients/softmax/step_1/BiasAdd_grad/BiasAddGrad",
    ]
    assert place(names) == [1, 2, 1, 2, 2, 2, 1, 1, 2, 2]
    assert place(names, num_gpus=1) == [1] * 10
    # On more GPUs than layers the rest stays empty.
    assert place(names, num_gpus=4) == [1, 2, 1, 2, 2, 2, 1, 1, 2, 2]


def test_layers_share_gpus_when_there_are_fewer() -> None:
    names = [f"encoder/layer_{layer}/step_0/MatMul" for layer in range(8)] + ["softmax/MatMul"]
    assert place(names) == [1, 1, 1, 1, 2, 2, 2, 2, 2]
    assert place(names, num_gpus=3) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_an_op_without_a_scope_goes_with_its_consumer_else_its_producer() -> None:
    names = [*NMT, "gradients/AddN", "gradients/AddN_1", "group", "alone"]
    # NMT[1] -> AddN -> AddN_1 -> NMT[2]: two steps from the consumer that decides.
    edges = [(1, 4), (4, 5), (5, 2), (3, 6)]
    assert place(names, edges) == [1, 2, 1, 2, 1, 1, 2, 1]


def test_units_stay_together_and_ops_without_a_kernel_go_to_the_cpu() -> None:
    group = {"colocation_group": "g"}
    only_cpu = {"cost_ns": {"cpu": 1}}
    # The group: one op of layer 0, two of layer 1.
    names = [*NMT, "encoder/layer_1/step_1/MatMul"]
    assert place(names, op0=group, op1=group, op4=group) == [2, 2, 1, 2, 2]
    assert place(names, op1=only_cpu) == [1, 0, 1, 2, 2]
    assert place(names, op1={"allowed_devices": [1]}) == [1, 1, 1, 2, 2]


def test_an_unknown_graph_says_what_to_do() -> None:
    with pytest.raises(PlannerUnavailableError, match=r"none of nmt, .* use 'human_expert:FILE'"):
        place(["model/dense/MatMul"])


def test_a_gpu_is_needed() -> None:
    with pytest.raises(PlannerUnavailableError, match="human_expert: there is no GPU"):
        place(NMT, num_gpus=0)


# ---- rules from a file ----


def with_rules(text: str, directory: Path, names: list[str], **options: Any) -> list[int]:
    path = directory / "rules.yaml"
    path.write_text(text)
    planner = get_planner(f"human_expert:{path}")
    placement: list[int] = planner.plan(problem(names, [], **options)).placement.tolist()
    return placement


def test_the_first_expression_decides(tmp_path: Path) -> None:
    rules = "tower_b/: GPU:1\nlookup: CPU\ntower_.: GPU:0\n"
    names = ["tower_b/lookup", "tower_a/lookup", "tower_a/MatMul", "loss"]
    assert with_rules(rules, tmp_path, names) == [GPU1, CPU, GPU0, GPU0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected lines of"),
        ("- a\n", "expected lines of"),
        ("a: GPU\n", "a: expected CPU or GPU:0 ..., got 'GPU'"),
        ("a: 1\n", "a: expected CPU or GPU:0 ..., got 1"),
        ("'(': CPU\n", r"\(: not a regular expression"),
        ("a: [\n", "cannot read the rules"),
        ("a: GPU:2\n", "a: there is no GPU:2, the machine has 2"),
    ],
)
def test_faulty_rules_are_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=message):
        with_rules(text, tmp_path, ["a"])


def test_missing_rules_are_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot read the rules '.*/none.yaml'"):
        get_planner(f"human_expert:{tmp_path}/none.yaml")


# ---- the graphs of the workloads ----

WRITE_PROBLEM = """
from hplacer_optimizer.workloads.graphs import build_graph

def write_problem(path, graph):
    "All ops cost the same; a resource's users are a unit with it, as TensorFlow wants it."
    ops = sorted(graph.get_operations(), key=lambda op: op.name)
    index = {op: i for i, op in enumerate(ops)}
    documents = []
    for op in ops:
        cost = {"cpu": 1, "gpu": 1}
        document = {"name": op.name, "type": op.type, "cost_ns": cost,
                    "output_bytes": [1] * len(op.outputs)}
        for tensor in [*op.inputs, *op.outputs]:
            if tensor.dtype == tf.resource:
                document["colocation_group"] = tensor.op.name
        documents.append(document)
    devices = [{"name": "/device:CPU:0", "kind": "cpu", "memory_bytes": 1}] + [
        {"name": f"/device:GPU:{i}", "kind": "gpu", "memory_bytes": 1} for i in range(2)]
    edges = {(index[t.op], t.value_index, index[op]) for op in ops for t in op.inputs}
    document = {"format": "hplacer-problem/2", "name": "graph", "device_kinds": ["cpu", "gpu"],
                "devices": devices, "links": [], "ops": documents, "edges": sorted(edges)}
    with open(path, "w") as stream:
        json.dump(document, stream)
"""


def expert_placement(name: str, directory: Path) -> dict[str, int]:
    path = directory / "graph.hplacer.json"
    code = f"write_problem({str(path)!r}, build_graph({name!r}, **{SMALL[name]!r}).graph)"
    run(code, directory, prelude=PRELUDE + WRITE_PROBLEM, timeout_s=280, HPLACER_DISABLE="1")
    graph = load_problem_file(path)
    placement = get_planner("human_expert").plan(graph).placement
    return dict(zip(graph.op_names, placement.tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        ("InceptionV3/Conv2d_1a_3x3/weights", "inception_v3"),
        ("resnet_v1_152/block1/unit_1/bottleneck_v1/add", "resnet"),
        ("rnnlm/layer_0/step_0/MatMul", "rnnlm"),
        ("encoder/layer_0/step_0/MatMul", "nmt"),
        ("transformer/encoder/layer_0/self/query/MatMul", "transformer"),
        ("bert/encoder/layer_0/self/query/MatMul", "bert_base"),
        ("train_step/efficientnet_b0_1/stem_conv_1/convolution", "efficientnet_b0"),
        ("mobilenet_v2_1/Conv1_1/convolution", "mobilenet_v2"),
        ("two_tower/user/dense_0/MatMul", "two_tower"),
    ],
)
def test_scopes_tell_the_workload(name: str, workload: str) -> None:
    assert expert_for(["images", name]) is EXPERTS[workload].rule
    assert expert_for([f"my/{name}"]) is None


@pytest.mark.parametrize("name", with_large_ones_slow(set(GRAPHS) - {"nmt", "two_tower"}))
def test_what_fits_on_one_gpu_stays_there(name: str, tmp_path: Path) -> None:
    assert set(expert_placement(name, tmp_path).values()) == {GPU0}


def test_the_nmt_graph_is_cut_between_its_layers(tmp_path: Path) -> None:
    placement = expert_placement("nmt", tmp_path)
    assert set(placement.values()) == {GPU0, GPU1}
    for name, device in placement.items():
        first = any(scope in name for scope in ("layer_0/", "embedding/"))
        last = any(scope in name for scope in ("layer_1/", "attention/", "softmax/"))
        # The updates share Adam's two powers of beta, whose reads stay with them.
        shared = name.startswith("train_op/") and "ReadVariableOp" in name
        if (first or last) and not shared:
            assert device == (GPU0 if first else GPU1), name
    # The kernel's gradient is summed where the kernel is.
    assert placement["decoder/layer_1/kernel"] == GPU1
    assert any("AddN" in name and device == GPU1 for name, device in placement.items())


def test_the_recommender_keeps_its_tables_on_the_cpu(tmp_path: Path) -> None:
    placement = expert_placement("two_tower", tmp_path)
    tables = {name: device for name, device in placement.items() if "tables/" in name}
    assert set(tables.values()) == {CPU}
    assert set(placement.values()) == {CPU, GPU0}
    assert placement["gradients/two_tower/item/dense_1/MatMul_grad/MatMul"] == GPU0


def test_every_workload_has_an_expert() -> None:
    assert set(EXPERTS) == set(GRAPHS)
