"""Several steps per call of the function, over an endless tf.data pipeline, and class weights."""

import json

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(11)
x = np.random.rand(40, 6).astype("float32")
y = (x.sum(axis=1) > 3.0).astype("int32")
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(8).prefetch(1)
model = keras.Sequential(
    [keras.layers.Dense(12, activation="relu"), keras.layers.Dense(1, activation="sigmoid")]
)
model.compile("adagrad", "binary_crossentropy", metrics=["accuracy"], steps_per_execution=3)
history = model.fit(data, steps_per_epoch=6, epochs=2, verbose=0, class_weight={0: 1.0, 1: 2.0})
print(json.dumps(history.history))
print(json.dumps({"rest": float(model.train_on_batch(x[:8], y[:8])[0])}))
