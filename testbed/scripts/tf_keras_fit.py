"""Keras 2 (tf_keras): fit with BatchNormalization, evaluation, and the old optimizers."""

import json

import numpy as np
import tf_keras as keras

keras.utils.set_random_seed(15)
x = np.random.rand(64, 6).astype("float32")
model = keras.Sequential(
    [
        keras.layers.Dense(12, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(1),
    ]
)
model.compile(keras.optimizers.legacy.Adam(0.01), "mse")
history = model.fit(x, x[:, :1], batch_size=16, epochs=2, verbose=0, shuffle=False)
print(json.dumps(history.history))
print(json.dumps({"loss": model.evaluate(x, x[:, :1], verbose=0)}))
