"""`fit` under MirroredStrategy, with two replicas."""

import json

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(14)
devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
with strategy.scope():
    model = keras.Sequential(
        [
            keras.layers.Dense(12, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
x = np.random.rand(64, 6).astype("float32")
history = model.fit(x, x[:, :1], batch_size=16, epochs=2, verbose=0, shuffle=False)
print(json.dumps(history.history))
