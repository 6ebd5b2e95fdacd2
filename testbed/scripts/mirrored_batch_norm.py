"""A loop of one's own under MirroredStrategy, with batch statistics over all replicas."""

import json

import keras
import tensorflow as tf

keras.utils.set_random_seed(21)
devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
with strategy.scope():
    model = keras.Sequential(
        [
            keras.layers.Dense(12),
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.Activation("relu"),
            keras.layers.Dense(1),
        ]
    )
    model.build([None, 6])
    optimizer = keras.optimizers.SGD(0.05)
    optimizer.build(model.trainable_variables)
x = tf.random.stateless_normal([32, 6], (3, 0))
y = tf.reduce_sum(x, axis=1, keepdims=True)
data = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
)


def replica_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / 16
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


@tf.function
def train_step(x, y):
    losses = strategy.run(replica_step, args=(x, y))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


for _ in range(2):
    for batch in data:
        print(json.dumps({"loss": float(train_step(*batch))}))
print(json.dumps({"mean": [float(value) for value in model.layers[1].moving_mean.numpy()]}))
