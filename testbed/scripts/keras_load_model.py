"""Saves a compiled model, loads it with its optimizer, and trains both copies on."""

import json
import os
import tempfile

import keras
import numpy as np

keras.utils.set_random_seed(12)
x = np.random.rand(48, 6).astype("float32")
y = np.sin(x.sum(axis=1, keepdims=True))
model = keras.Sequential(
    [keras.layers.Dense(12, activation="tanh", kernel_regularizer="l2"), keras.layers.Dense(1)]
)
model.compile(keras.optimizers.Nadam(0.01), keras.losses.Huber())
print(json.dumps(model.fit(x, y, batch_size=16, verbose=0, shuffle=False).history))
path = os.path.join(tempfile.mkdtemp(), "model.keras")
model.save(path)
loaded = keras.models.load_model(path)
for trained in (model, loaded):
    print(json.dumps(trained.fit(x, y, batch_size=16, verbose=0, shuffle=False).history))
cloned = keras.models.clone_model(loaded)
cloned.set_weights(loaded.get_weights())
print(json.dumps({"predicted": cloned.predict(x[:3], verbose=0).tolist()}))
