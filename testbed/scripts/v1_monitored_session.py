"""MonitoredTrainingSession with hooks, checkpoints and summaries, which stops and starts again."""

import json
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

directory = tempfile.mkdtemp()


class Report(tf.train.SessionRunHook):
    def before_run(self, run_context):
        return tf.train.SessionRunArgs(run_context.session.graph.get_tensor_by_name("loss:0"))

    def after_run(self, run_context, run_values):
        print(json.dumps({"loss": float(run_values.results)}))


def train(last_step):
    with tf.Graph().as_default():
        numbers = np.random.RandomState(0)
        data = tf.data.Dataset.from_tensor_slices(numbers.randn(24, 6).astype("float32"))
        x = tf.data.make_one_shot_iterator(data.repeat().batch(8)).get_next()
        weights = tf.get_variable(
            "weights", [6, 6], initializer=tf.constant_initializer(numbers.randn(6, 6) * 0.4)
        )
        hidden = tf.nn.relu(tf.matmul(x, weights)) + tf.nn.tanh(tf.matmul(x, weights + 0.5))
        loss = tf.reduce_mean((tf.matmul(hidden, weights, transpose_b=True) - x) ** 2, name="loss")
        tf.summary.scalar("loss", loss)
        step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdamOptimizer(0.01).minimize(loss, step)
        hooks = [
            tf.train.StopAtStepHook(last_step=last_step),
            tf.train.NanTensorHook(loss),
            Report(),
        ]
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=directory,
            hooks=hooks,
            save_checkpoint_steps=2,
            save_summaries_steps=2,
            config=tf.ConfigProto(device_count={"CPU": 2}),
        ) as session:
            while not session.should_stop():
                session.run(train_op)


train(4)
train(7)
