"""Sequential with BatchNormalization and Dropout: validation, callbacks, evaluation."""

import json
import os
import tempfile

import keras
import numpy as np

keras.utils.set_random_seed(1)
x = np.random.rand(96, 8).astype("float32")
y = x.sum(axis=1, keepdims=True)
model = keras.Sequential(
    [
        keras.layers.Dense(16, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(1),
    ]
)
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
best = os.path.join(tempfile.mkdtemp(), "best.weights.h5")
history = model.fit(
    x,
    y,
    batch_size=16,
    epochs=3,
    validation_split=0.25,
    verbose=0,
    callbacks=[
        keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=1),
        keras.callbacks.ModelCheckpoint(best, save_best_only=True, save_weights_only=True),
        keras.callbacks.LambdaCallback(on_train_end=lambda logs: print(json.dumps({"end": 1}))),
    ],
)
print(json.dumps(history.history))
model.load_weights(best)
print(json.dumps(model.evaluate(x, y, verbose=0, return_dict=True)))
print(json.dumps({"predicted": model.predict(x[:4], verbose=0).tolist()}))
