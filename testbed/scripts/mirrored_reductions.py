"""Losses, means, largest gradients and predictions of two replicas, joined inside of the step."""

import json

import tensorflow as tf

devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
with strategy.scope():
    weights = tf.Variable(tf.random.stateless_normal([6, 12], (1, 0)) * 0.4)
    out = tf.Variable(tf.random.stateless_normal([12, 1], (2, 0)) * 0.4)
    seen = tf.Variable(
        0.0,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )


def features(context):
    seed = (3, context.replica_id_in_sync_group)
    return tf.random.stateless_normal([8, 6], seed)


x = strategy.experimental_distribute_values_from_function(features)


def replica_step(x):
    with tf.GradientTape() as tape:
        predicted = tf.nn.relu(x @ weights) @ out
        loss = tf.reduce_mean((predicted - tf.reduce_sum(x, axis=1, keepdims=True)) ** 2)
    context = tf.distribute.get_replica_context()
    gradients = context.all_reduce("mean", tape.gradient(loss, [weights, out]))
    largest = context.all_gather(tf.stack([tf.reduce_max(g) for g in gradients])[None], axis=0)
    for variable, gradient in zip([weights, out], gradients, strict=True):
        variable.assign_sub(0.05 * gradient)
    seen.assign_add(tf.cast(tf.shape(x)[0], tf.float32))
    return loss, predicted, tf.reduce_max(largest)


@tf.function
def train_step(x):
    loss, predicted, largest = strategy.run(replica_step, args=(x,))
    return {
        "loss": strategy.reduce("mean", loss, axis=None),
        "mean": strategy.reduce("mean", predicted, axis=0),
        "largest": strategy.reduce("sum", largest, axis=None),
        "rows": tf.shape(strategy.gather(predicted, axis=0))[0],
    }


for _ in range(4):
    found = train_step(x)
    print(json.dumps({name: value.numpy().tolist() for name, value in found.items()}))
print(json.dumps({"seen": float(seen.read_value())}))
