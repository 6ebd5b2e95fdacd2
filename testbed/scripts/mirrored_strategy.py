"""Two replicas of one model, whose gradients MirroredStrategy sums."""

import json

import tensorflow as tf

devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
with strategy.scope():
    weights = tf.Variable(tf.random.stateless_normal([6, 12], (1, 0)) * 0.4)
    out = tf.Variable(tf.random.stateless_normal([12, 1], (2, 0)) * 0.4)
x = tf.random.stateless_normal([32, 6], (3, 0))
y = tf.reduce_sum(x, axis=1, keepdims=True)
data = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
)


def replica_step(x, y):
    with tf.GradientTape() as tape:
        predicted = tf.nn.relu(x @ weights) @ out
        loss = tf.reduce_sum((predicted - y) ** 2) / 16
    gradients = tape.gradient(loss, [weights, out])
    context = tf.distribute.get_replica_context()
    gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
    for variable, gradient in zip([weights, out], gradients, strict=True):
        variable.assign_sub(0.05 * gradient)
    return loss


@tf.function
def train_step(x, y):
    losses = strategy.run(replica_step, args=(x, y))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


for _ in range(2):
    for batch in data:
        print(json.dumps({"loss": float(train_step(*batch))}))
