"""Mixed precision: bfloat16 layers, float32 variables, and a float16 model with loss scaling."""

import json

import keras
import numpy as np

x = np.random.RandomState(0).rand(64, 8).astype("float32")
y = x.sum(axis=1, keepdims=True)
for policy in ("mixed_bfloat16", "mixed_float16"):
    keras.utils.set_random_seed(4)
    keras.mixed_precision.set_dtype_policy(policy)
    model = keras.Sequential(
        [
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(16, activation="tanh"),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse")
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False)
    print(json.dumps({"policy": policy, "loss": history.history["loss"]}))
