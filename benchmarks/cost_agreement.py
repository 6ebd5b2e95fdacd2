"""Per-op compute costs of ours against those of TensorFlow's virtual cluster.

    python -m benchmarks.cost_agreement [--batch 32] [--pixels 299] [--lstm-steps 20] [--json]

Both sides see the same graphs (tf-slim's Inception-V3 and an unrolled LSTM of two layers, both
training) on one CPU of the same rates. Theirs are the nanoseconds in the step_stats of
`tensorflow.python.grappler.cluster.Cluster.MeasureCosts`; ours come from the captured step, without
launch overhead. Compared are the ops whose type has a real cost function in TensorFlow, that is one
that counts arithmetic or bytes, and no estimate of ours (docs/reference/costs.md). Goal: 99% of
them within 1%, or within 1 ns, the unit of both. The other op types are listed with what each side
says. Where shapes are unknown the sides differ: TensorFlow takes an unknown dimension as 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from testbed.virtual_cluster import TOLERANCE, compare

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

GOAL = 0.99
_LSTM_WIDTH = 256


def main(argv: Sequence[str] | None = None) -> int:
    """Compares both graphs, prints what was found. Exit code 1: the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=32, help="of Inception-V3; default: 32")
    parser.add_argument("--pixels", type=int, default=299, help="of Inception-V3; default: 299")
    parser.add_argument("--lstm-steps", type=int, default=20, help="of the LSTM; default: 20")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args(argv)

    from hplacer_optimizer.workloads import inception_v3, rnnlm

    results = {
        "inception_v3": compare(
            inception_v3.build(batch_size=options.batch, pixels=options.pixels)
        ),
        "rnnlm": compare(rnnlm.build(steps=options.lstm_steps, hidden=_LSTM_WIDTH)),
    }
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        for name, result in results.items():
            print_result(name, result)
    return 0 if all(result["share_within"] >= GOAL for result in results.values()) else 1


def print_result(name: str, result: dict[str, Any]) -> None:
    """For people."""
    print(
        f"{name}: {result['ops']} ops; {result['compared']} have a real cost function in "
        f"TensorFlow ({', '.join(result['compared_op_types'])})"
    )
    print(f"  within {TOLERANCE:.0%}: {result['share_within']:.2%} (goal {GOAL:.0%})")
    for op_type, op_name, ours, theirs in result["outside"]:
        print(f"  outside: {op_type} {op_name}: ours {ours} ns, theirs {theirs} ns")
    print("  on purpose different:")
    for op_type, row in result["on_purpose"].items():
        print(
            f"    {op_type}: {row['ops']} ops, ours {row['ours_ns']} ns, "
            f"theirs {row['theirs_ns']} ns ({row['estimate']})"
        )


if __name__ == "__main__":
    sys.exit(main())
