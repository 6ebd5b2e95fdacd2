"""A monitored session, which fetches more in some steps than in others, and saves checkpoints."""

import tensorflow.compat.v1 as tf
from stopwatch import Stopwatch
from v1_graph import build

import hplacer_optimizer as hp

loss, train_op, batch = build()
config = hp.session_config(tf.ConfigProto(device_count={"CPU": 2}), targets=["train_op"])
hooks = [tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=20)]
stopwatch = Stopwatch()
with tf.train.MonitoredTrainingSession(
    checkpoint_dir="checkpoints", hooks=hooks, config=config, save_checkpoint_secs=600
) as session:
    for _ in range(60):
        stopwatch()
        session.run(train_op, batch)
stopwatch.write()
