"""Saves checkpoints while it trains, goes back to the first one, and trains on from there."""

import json
import tempfile

import tensorflow as tf

weights = tf.Variable(tf.random.stateless_normal([8, 8], (1, 0)) * 0.4)
slots = tf.Variable(tf.zeros([8, 8]))
step = tf.Variable(0, dtype=tf.int64)
x = tf.random.stateless_normal([12, 8], (2, 0))
data = tf.data.Dataset.range(100).map(lambda number: tf.cast(number % 3, tf.float32))
batches = iter(data)
checkpoint = tf.train.Checkpoint(weights=weights, slots=slots, step=step, batches=batches)
manager = tf.train.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=3)


@tf.function
def train_step(scale):
    with tf.GradientTape() as tape:
        hidden = tf.nn.relu((x * scale) @ weights)
        loss = tf.reduce_mean((tf.matmul(hidden, weights, transpose_b=True) - x) ** 2)
    gradient = tape.gradient(loss, weights)
    slots.assign(0.9 * slots + gradient)
    weights.assign_sub(0.05 * slots)
    step.assign_add(1)
    return loss


def train(steps):
    losses = [float(train_step(next(batches))) for _ in range(steps)]
    print(json.dumps({"step": int(step), "losses": losses}))


train(2)
manager.save()
train(3)
manager.save()
checkpoint.restore(manager.checkpoints[0]).assert_consumed()
train(3)
print(json.dumps({"saved": [name.rpartition("-")[2] for name in manager.checkpoints]}))
