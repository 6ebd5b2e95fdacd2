"""The training graphs by name, each a function of its sizes.

    build_graph("nmt", layers=4)               a TrainingGraph; the defaults are the papers' sizes
    write_graph("nmt", "nmt.meta", layers=4)   a MetaGraphDef file, to be planned anywhere
    python -m hplacer_optimizer.workloads.graphs nmt layers=4 -o nmt.meta

A builder's keyword arguments are the parameters, its annotations their types.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hplacer_optimizer.errors import HPlacerError, OptionError
from hplacer_optimizer.workloads import (
    bert,
    inception_v3,
    keras_applications,
    nmt,
    resnet,
    rnnlm,
    transformer,
    two_tower,
)
from hplacer_optimizer.workloads.training_graph import TrainingGraph

GRAPHS: dict[str, Callable[..., TrainingGraph]] = {
    "bert_base": bert.build,
    "efficientnet_b0": keras_applications.efficientnet_b0,
    "inception_v3": inception_v3.build,
    "mobilenet_v2": keras_applications.mobilenet_v2,
    "nmt": nmt.build,
    "resnet": resnet.build,
    "rnnlm": rnnlm.build,
    "transformer": transformer.build,
    "two_tower": two_tower.build,
}
NAMED: dict[str, tuple[str, Mapping[str, int]]] = {
    "nmt_2": ("nmt", {"layers": 2}),
    "nmt_4": ("nmt", {"layers": 4}),
    "nmt_8": ("nmt", {"layers": 8}),
    "resnet_50": ("resnet", {"depth": 50}),
    "resnet_152": ("resnet", {"depth": 152}),
}
"""Sizes with a name of their own: the graph, and what differs from its defaults."""
_LEAST = {"seed": 0}  # of every other integer: 1


def parameters(name: str) -> dict[str, Any]:
    """The parameters of a graph with their defaults. Raises OptionError for an unknown name."""
    if name not in GRAPHS:
        raise OptionError(f"workload: unknown name '{name}'; valid are {', '.join(sorted(GRAPHS))}")
    return {key: value.default for key, value in inspect.signature(GRAPHS[name]).parameters.items()}


def build_graph(name: str, **overrides: Any) -> TrainingGraph:
    """Builds a training graph in this process.

    Raises OptionError for an unknown name or parameter, or a value of another type or range.
    """
    _check(name, overrides)
    return GRAPHS[name](**overrides)


def write_graph(name: str, path: str | os.PathLike[str], **overrides: Any) -> None:
    """Builds a training graph and writes it as a binary MetaGraphDef file.

    The collections `train_op`, `init_op` and `loss` hold what to run. Raises OptionError as
    `build_graph` does, and OSError if the file cannot be written.
    """
    graph = build_graph(name, **overrides).graph
    import tensorflow as tf

    with graph.as_default():
        meta_graph = tf.compat.v1.train.export_meta_graph()
    Path(path).write_bytes(meta_graph.SerializeToString(deterministic=True))


def _check(name: str, overrides: Mapping[str, Any]) -> None:
    known = parameters(name)
    types = typing.get_type_hints(GRAPHS[name])
    for key, value in overrides.items():
        if key not in known:
            raise OptionError(f"{name}: unknown parameter '{key}'; valid are {', '.join(known)}")
        if type(value) is not types[key]:
            raise OptionError(f"{name}: {key}: expected {types[key].__name__}, got {value!r}")
        if types[key] is int and value < _LEAST.get(key, 1):
            raise OptionError(f"{name}: {key}: must be at least {_LEAST.get(key, 1)}, got {value}")


def _parse(name: str, assignments: Sequence[str]) -> dict[str, Any]:
    known = parameters(name)
    overrides = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise OptionError(f"{name}: expected PARAMETER=VALUE, got '{assignment}'")
        kind = type(known.get(key, ""))
        try:
            overrides[key] = {"true": True, "false": False}[text] if kind is bool else kind(text)
        except (KeyError, ValueError):
            raise OptionError(f"{name}: {key}: expected {kind.__name__}, got '{text}'") from None
    return overrides


def main(argv: Sequence[str] | None = None) -> int:
    """Writes one graph. Exit code 0: written, 1: the reason stands on stderr."""
    parser = argparse.ArgumentParser(prog="python -m hplacer_optimizer.workloads.graphs")
    parser.add_argument("name", help=", ".join(sorted(GRAPHS)))
    parser.add_argument("parameter", nargs="*", metavar="PARAMETER=VALUE")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="NAME.meta")
    options = parser.parse_args(argv)
    try:
        write_graph(options.name, options.output, **_parse(options.name, options.parameter))
    except (HPlacerError, OSError) as error:
        print(f"hplacer: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
