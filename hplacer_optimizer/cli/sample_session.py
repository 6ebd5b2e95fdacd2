"""Plans and runs a small graph; run as a process of its own, which then has TensorFlow.

    python -m hplacer_optimizer.cli.sample_session

Prints one line of JSON after MARK: the versions, the devices that TensorFlow finds, what became of
the graph, how many nodes were compared with the plan, and those that are not where it has them.
"""

from __future__ import annotations

import json
import tempfile
from typing import Any

from hplacer_optimizer.capture import native
from hplacer_optimizer.options import EVERY_PLAN
from hplacer_optimizer.plugin import history, service, switch

MARK = "hplacer-sample "


def main() -> None:
    import tensorflow as tf

    devices = [device.name for device in tf.config.list_physical_devices()]
    v1: Any = tf.compat.v1
    with tempfile.TemporaryDirectory() as cache, tf.Graph().as_default():
        towers = [v1.get_variable(f"w{i}", (8, 8), use_resource=True) for i in range(4)]
        loss = tf.add_n([tf.reduce_sum(tf.tanh(w @ w)) for w in towers])
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train_op")
        config = switch.session_config(
            v1.ConfigProto(device_count={"CPU": 2}),
            cache=cache,
            targets=["train_op"],
            min_ops=0,
            min_gain=EVERY_PLAN,
        )
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            session.run("train_op")
            session.run("train_op")
    (entry,) = service.history()
    checks = history.step_checks()
    found = {key: getattr(entry, key) for key in ("outcome", "reason", "ops", "placed")}
    found |= {
        "tensorflow": tf.__version__,
        "built_for": ", ".join(native.built_for()),
        "devices": devices,
        "tf32": tf.config.experimental.tensor_float_32_execution_enabled(),
        "checked": sum(check.planned for check in checks),
        "differences": [row for check in checks for row in check.differences],
    }
    print(MARK + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
