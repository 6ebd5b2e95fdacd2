"""Keras `fit` with several batches in each execution."""

import keras
import numpy as np
from stopwatch import Stopwatch, two_devices

two_devices()
layers = [keras.layers.Dense(256, activation="relu") for _ in range(4)]
model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(1)])
model.compile("adam", "mse", steps_per_execution=4, jit_compile=False)
stopwatch = Stopwatch()


class Watch(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        stopwatch()


random = np.random.default_rng(0)
features = random.standard_normal((60 * 4 * 128, 64)).astype("float32")
model.fit(features, features[:, :1], batch_size=128, epochs=1, verbose=0, callbacks=[Watch()])
stopwatch.write()
