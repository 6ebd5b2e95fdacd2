"""A session over two workers."""

import tensorflow.compat.v1 as tf
from stopwatch import Stopwatch
from v1_graph import build

import hplacer_optimizer as hp

loss, train_op, batch = build()
config = hp.session_config(targets=["train_op"], devices=["/job:worker"])
stopwatch = Stopwatch()
with hp.local_cluster(workers=2) as cluster, tf.Session(cluster.target, config=config) as session:
    session.run(tf.global_variables_initializer())
    for _ in range(60):
        stopwatch()
        session.run([loss, train_op], batch)
stopwatch.write()
