"""A session."""

import tensorflow.compat.v1 as tf
from stopwatch import Stopwatch
from v1_graph import build

import hplacer_optimizer as hp

loss, train_op, batch = build()
config = hp.session_config(tf.ConfigProto(device_count={"CPU": 2}), targets=["train_op"])
stopwatch = Stopwatch()
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    for _ in range(60):
        stopwatch()
        session.run([loss, train_op], batch)
stopwatch.write()
