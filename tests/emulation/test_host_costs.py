"""What ops of the emulated host take in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.emulation import gpus

CODE = """
with tf.Graph().as_default(), tf.device("CPU:0"):
    a, bias = (v1.placeholder(tf.float32, shape) for shape in ([256, 256], [256]))
    product = tf.matmul(a, a)
    fused = tf.nn.relu(tf.nn.bias_add(tf.matmul(a, a), bias))
    with v1.Session() as session, emulation.traced() as ran:
        for fetch in (product, fused):
            session.run(fetch, {a: np.ones([256, 256], "f"), bias: np.ones(256, "f")})
report(took=[[r.type, r.end_ns - r.start_ns] for r in ran if "MatMul" in r.type])
"""


def test_products_of_onednn_take_what_products_take(tmp_path: Path) -> None:
    """1 us, 2 x 256 x 256 x 256 operations at 1 GFLOP/s, 3 x 256 x 256 x 4 bytes at 2 GB/s."""
    took = gpus.run(CODE, tmp_path).report["took"]
    assert len(took) == 2
    plain, fused = took
    assert plain[1] == 1_000 + 33_554_432 + 393_216, plain
    assert "Fused" in fused[0]
    assert plain[1] < fused[1] < 1.02 * plain[1], fused  # with a bias, which is read


# Freed memory is overwritten, with ones where absl's Mutex has its flags.
OVERWRITING = {"MALLOC_PERTURB_": "255", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
TEMPORARY = """
with tf.Graph().as_default(), tf.device("CPU:0"):
    number = v1.placeholder(tf.float32, [64])
    parts = [number, 2 * number, number]
    total = tf.raw_ops.AccumulateNV2(inputs=parts, shape=[64])
    with v1.Session() as session, emulation.traced() as ran:
        sums = [session.run(total, {number: np.full(64, i, "f")}).sum().item() for i in range(20)]
report(sums=sums, types=sorted({r.type for r in ran}))
"""


def test_the_estimate_of_an_op_does_not_read_what_the_op_destroyed(tmp_path: Path) -> None:
    """AccumulateNV2 becomes sums in a temporary variable."""
    seen = gpus.run(TEMPORARY, tmp_path, **OVERWRITING).report
    assert seen["sums"] == [64 * 4 * i for i in range(20)]
    assert "AssignAdd" in seen["types"]
