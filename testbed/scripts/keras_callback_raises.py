"""A callback raises in the second epoch; the exception ends the program."""

import json

import keras
import numpy as np


class Strict(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(json.dumps({"epoch": epoch, "loss": logs["loss"]}), flush=True)
        if epoch == 1:
            raise RuntimeError(f"stopped after epoch {epoch}")


keras.utils.set_random_seed(13)
x = np.random.rand(32, 6).astype("float32")
model = keras.Sequential([keras.layers.Dense(12, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x[:, :1], batch_size=8, epochs=5, verbose=0, shuffle=False, callbacks=[Strict()])
