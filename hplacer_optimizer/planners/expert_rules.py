"""Where an expert puts the ops of a known workload: rules that read op names.

The experts of Mirhoseini et al., "A Hierarchical Model for Device Placement", ICLR 2018: everything
on one GPU where it fits; of NMT each LSTM layer on a GPU of its own, the embedding with the first
layer, attention and softmax with the last. The rules of the other workloads are ours.

An op of the backward pass or of the update carries the name of its forward op or variable, as in
`gradients/encoder/layer_0/step_7/mul_grad/Mul`: a rule looks for a scope anywhere in the name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from hplacer_optimizer.errors import OptionError

CPU = -1

# From op names and the number of GPUs to a GPU's index or CPU for each op; None: with its consumer.
Rule = Callable[[Sequence[str], int], "list[int | None]"]


class Expert(NamedTuple):
    """A workload has an op whose name begins with `scope`, a regular expression."""

    scope: str
    rule: Rule


def one_gpu(names: Sequence[str], num_gpus: int) -> list[int | None]:
    """Everything on the first GPU."""
    return [0] * len(names)


def layer_per_gpu(names: Sequence[str], num_gpus: int) -> list[int | None]:
    """NMT; with fewer GPUs than layers, neighbouring layers share one."""
    layer_scope = re.compile(r"(?:encoder|decoder)/layer_(\d+)/")
    layers = 1 + max(
        (int(found[1]) for found in map(layer_scope.search, names) if found), default=0
    )

    def gpu_of_layer(layer: int) -> int:
        return layer if layers <= num_gpus else layer * num_gpus // layers

    def place(name: str) -> int | None:
        if found := layer_scope.search(name):
            return gpu_of_layer(int(found[1]))
        if "embedding/" in name:
            return gpu_of_layer(0)
        if "attention/" in name or "softmax/" in name:
            return gpu_of_layer(layers - 1)
        return None

    return [place(name) for name in names]


def tables_on_the_cpu(names: Sequence[str], num_gpus: int) -> list[int | None]:
    """A recommender: the embedding tables in the CPU's memory, the dense layers on one GPU."""
    return [CPU if "tables/" in name else 0 for name in names]


EXPERTS: dict[str, Expert] = {
    "nmt": Expert(r"(?:encoder|decoder)/layer_0/step_0/", layer_per_gpu),
    "rnnlm": Expert(r"rnnlm/layer_0/", one_gpu),
    "inception_v3": Expert(r"InceptionV3/", one_gpu),
    "resnet": Expert(r"resnet_v1_\d+/", one_gpu),
    "transformer": Expert(r"transformer/", one_gpu),
    "bert_base": Expert(r"bert/", one_gpu),
    "efficientnet_b0": Expert(r"(?:train_step/)?efficientnet_b0(?:_\d+)?/", one_gpu),
    "mobilenet_v2": Expert(r"(?:train_step/)?mobilenet_v2(?:_\d+)?/", one_gpu),
    "two_tower": Expert(r"two_tower/", tables_on_the_cpu),
}


def expert_for(names: Iterable[str]) -> Rule | None:
    """The rule of the workload that the names belong to; None: no known one."""
    scopes = {name: re.compile(expert.scope) for name, expert in EXPERTS.items()}
    for op in names:
        for workload, scope in scopes.items():
            if scope.match(op):
                return EXPERTS[workload].rule
    return None


def read_rules(path: str | os.PathLike[str]) -> Rule:
    """A rule from a YAML file of `regular expression: device`, such as `encoder/layer_0/: GPU:0`.

    The first expression found anywhere in an op's name decides; an op without one goes with its
    consumer. Devices are `CPU` and `GPU:0`, `GPU:1` and so on. Raises OptionError, which names the
    faulty entry.
    """
    try:
        document = yaml.safe_load(Path(path).read_bytes())
    except (OSError, yaml.YAMLError) as error:
        raise OptionError(f"human_expert: cannot read the rules '{path}': {error}") from None
    if not isinstance(document, Mapping) or not document:
        raise OptionError(f"human_expert: {path}: expected lines of 'REGULAR EXPRESSION: GPU:0'")
    rules = [_parse_entry(path, key, value) for key, value in document.items()]

    def rule(names: Sequence[str], num_gpus: int) -> list[int | None]:
        for expression, device in rules:
            if device >= num_gpus:
                raise OptionError(
                    f"human_expert: {path}: {expression.pattern}: there is no GPU:{device}, the "
                    f"machine has {num_gpus}"
                )
        return [next((d for exp, d in rules if exp.search(name)), None) for name in names]

    return rule


def _parse_entry(
    path: str | os.PathLike[str], key: object, value: object
) -> tuple[re.Pattern[str], int]:
    device = re.fullmatch(r"CPU|GPU:(\d{1,4})", str(value))
    if device is None:
        raise OptionError(f"human_expert: {path}: {key}: expected CPU or GPU:0 ..., got {value!r}")
    try:
        return re.compile(str(key)), CPU if device[1] is None else int(device[1])
    except re.error as error:
        raise OptionError(
            f"human_expert: {path}: {key}: not a regular expression: {error}"
        ) from None
