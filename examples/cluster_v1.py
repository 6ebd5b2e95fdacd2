"""Two TensorFlow workers on this machine, one session over both: python examples/cluster_v1.py

The worker behind the session's target plans the graph over the devices of all workers. Run it
twice: the second start finds the plan of the first. With workers of your own leave local_cluster
out, call hp.session_config() in the process of the first one before its tf.distribute.Server, and
give its address as the target.
"""

import numpy as np
import tensorflow.compat.v1 as tf

import hplacer_optimizer as hp

tf.disable_eager_execution()
tf.enable_resource_variables()
tf.set_random_seed(0)

BATCH, ROWS, WIDTH = 512, 20_000, 64
outputs, ids = [], []
for tower in ("user", "item"):
    table = tf.get_variable(f"{tower}/table", (ROWS, WIDTH))
    ids.append(tf.placeholder(tf.int32, (BATCH, 8), f"{tower}/ids"))
    values = tf.reshape(tf.nn.embedding_lookup(table, ids[-1]), (BATCH, 8 * WIDTH))
    for layer in range(3):
        weights = tf.get_variable(f"{tower}/layer_{layer}", (values.shape[1], 512))
        values = tf.tanh(values @ weights)
    outputs.append(tf.math.l2_normalize(values, 1))
scores = tf.matmul(*outputs, transpose_b=True) * 20.0
loss = tf.reduce_mean(
    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.range(BATCH), logits=scores)
)
train_op = tf.train.AdagradOptimizer(0.05).minimize(loss, name="train_op")

random = np.random.default_rng(0)
batch = {tensor: random.integers(0, ROWS, (BATCH, 8)) for tensor in ids}
config = hp.session_config(targets=["train_op"], devices=["/job:worker"])
with (
    hp.local_cluster(workers=2) as cluster,
    tf.Session(cluster.target, config=config) as session,
):
    session.run(tf.global_variables_initializer())
    for step in range(1, 11):
        value, _ = session.run([loss, train_op], batch)
        print(f"step {step}: loss {value:.6f}")
