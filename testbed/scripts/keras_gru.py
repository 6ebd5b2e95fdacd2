"""A bidirectional GRU that predicts every step, and a stateful one that keeps its state."""

import json

import keras
import numpy as np

keras.utils.set_random_seed(6)
x = np.random.rand(16, 5, 3).astype("float32")
y = np.cumsum(x.mean(axis=2, keepdims=True), axis=1)
both = keras.Sequential(
    [
        keras.layers.Bidirectional(keras.layers.GRU(6, return_sequences=True)),
        keras.layers.TimeDistributed(keras.layers.Dense(1)),
    ]
)
both.compile("adam", "mae")
print(json.dumps(both.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False).history))
stateful = keras.Sequential(
    [
        keras.Input(batch_shape=(8, 5, 3)),
        keras.layers.GRU(4, stateful=True),
        keras.layers.Dense(1),
    ]
)
stateful.compile("sgd", "mse")
print(json.dumps(stateful.fit(x, y[:, -1], batch_size=8, verbose=0, shuffle=False).history))
