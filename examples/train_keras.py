"""Keras: a digit classifier whose two branches can run on two devices.

Run: python examples/train_keras.py
"""

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

import hplacer_optimizer as hp

# Two logical devices stand in for two GPUs; leave this out on a machine that has them. They share
# the host's cores, so that TensorFlow's own placement is the best, and kept.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

hp.enable()

images = keras.Input((8, 8, 1))
branches = []
for kernel_size in (3, 5):
    features = keras.layers.Conv2D(16, kernel_size, padding="same", activation="relu")(images)
    features = keras.layers.Conv2D(32, kernel_size, padding="same", activation="relu")(features)
    branches.append(keras.layers.GlobalAveragePooling2D()(features))
logits = keras.layers.Dense(10)(keras.layers.Concatenate()(branches))

model = keras.Model(images, logits)
model.compile(
    keras.optimizers.Adam(0.01),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
pixels, labels = load_digits(return_X_y=True)
model.fit(pixels.reshape(-1, 8, 8, 1) / 16.0, labels, batch_size=64, epochs=5, verbose=2)
