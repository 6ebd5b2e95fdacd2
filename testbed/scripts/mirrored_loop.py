"""Two replicas with a dataset each, on which one function trains from first batch to last."""

import json

import tensorflow as tf

devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
with strategy.scope():
    weights = tf.Variable(tf.random.stateless_normal([6, 12], (1, 0)) * 0.4)
    out = tf.Variable(tf.random.stateless_normal([12, 1], (2, 0)) * 0.4)


def batches(context):
    x = tf.random.stateless_normal([64, 6], (3, context.input_pipeline_id))
    y = tf.reduce_sum(x, axis=1, keepdims=True)
    size = context.get_per_replica_batch_size(16)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(size, drop_remainder=True)


data = strategy.distribute_datasets_from_function(batches)


def replica_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((tf.nn.relu(x @ weights) @ out - y) ** 2) / 16
    gradients = tape.gradient(loss, [weights, out])
    context = tf.distribute.get_replica_context()
    gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
    for variable, gradient in zip([weights, out], gradients, strict=True):
        variable.assign_sub(0.05 * gradient)
    return loss


@tf.function
def epoch(data):
    total = 0.0
    for x, y in data:
        losses = strategy.run(replica_step, args=(x, y))
        total += strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
    return total


for _ in range(3):
    print(json.dumps({"loss": float(epoch(data))}))
