"""Keras: the variables of a model that one device could not hold, spread over two.

Run: python examples/spread_variables.py
"""

import keras
import numpy as np
import tensorflow as tf

import hplacer_optimizer as hp

# Two logical devices stand in for two GPUs; leave this out on a machine that has them. They share
# the host's cores, so that no plan is faster: a random one takes effect, to show what that does.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

hp.enable(planner="random", min_gain=-1)


def make_model() -> keras.Model:
    users, items = keras.Input((), dtype="int64"), keras.Input((), dtype="int64")
    towers = []
    for ids, rows in ((users, 20_000), (items, 10_000)):
        features = keras.layers.Embedding(rows, 128)(ids)
        features = keras.layers.Dense(256, activation="relu")(features)
        towers.append(keras.layers.Dense(64)(features))
    score = keras.layers.Dense(1)(keras.layers.Multiply()(towers))
    model = keras.Model([users, items], score)
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True), jit_compile=False)
    return model


rng = np.random.default_rng(0)
ids = rng.integers(0, 10_000, (2, 2_048))
liked = (ids.sum(axis=0) % 2).astype("float32")[:, None]
batches = tf.data.Dataset.from_tensor_slices(((ids[0], ids[1]), liked))
batches = batches.batch(256, drop_remainder=True)

# Nothing of the model is allocated for this.
plan = hp.plan_model(make_model, specs=batches)

with hp.variable_scope(plan):
    model = make_model()
model.fit(batches, epochs=3, verbose=2)

for variable in model.trainable_variables:
    print(f"{variable.value.device.rpartition('/device:')[2]}  {variable.path}")
