"""A subclassed model with a train_step of its own, an added loss and a metric of its own."""

import json

import keras
import numpy as np
import tensorflow as tf


class Autoencoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.encode = keras.layers.Dense(4, activation="relu")
        self.decode = keras.layers.Dense(10)
        self.sparsity = keras.layers.ActivityRegularization(l1=0.001)
        self.loss_metric = keras.metrics.Mean(name="loss")

    def call(self, x):
        return self.decode(self.sparsity(self.encode(x)))

    def train_step(self, data):
        x, _ = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - x) ** 2) + sum(self.losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.loss_metric.update_state(loss)
        return {"loss": self.loss_metric.result(), "norm": tf.linalg.global_norm(gradients)}

    @property
    def metrics(self):
        return [self.loss_metric]


keras.utils.set_random_seed(3)
model = Autoencoder()
model.compile(keras.optimizers.RMSprop(0.01))
x = np.random.rand(64, 10).astype("float32")
history = model.fit(x, x, batch_size=16, epochs=3, verbose=0, shuffle=False)
print(json.dumps(history.history))
