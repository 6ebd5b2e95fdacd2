"""Trains, exports a SavedModel with its training function, loads it and trains on."""

import json
import tempfile

import tensorflow as tf


class Regression(tf.Module):
    def __init__(self):
        self.inner = tf.Variable(tf.random.stateless_normal([6, 10], (1, 0)) * 0.4)
        self.outer = tf.Variable(tf.random.stateless_normal([10, 1], (2, 0)) * 0.4)

    @tf.function(input_signature=[tf.TensorSpec([None, 6])])
    def predict(self, x):
        return tf.nn.gelu(x @ self.inner) @ self.outer

    @tf.function(input_signature=[tf.TensorSpec([None, 6]), tf.TensorSpec([None, 1])])
    def train(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.predict(x) - y) ** 2)
        variables = [self.inner, self.outer]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.1 * gradient)
        return {"loss": loss}


x = tf.random.stateless_normal([20, 6], (3, 0))
y = tf.reduce_sum(x, axis=1, keepdims=True)
model = Regression()
for _ in range(3):
    print(json.dumps({"loss": float(model.train(x, y)["loss"])}))
directory = tempfile.mkdtemp()
tf.saved_model.save(model, directory, signatures={"serving_default": model.predict})
loaded = tf.saved_model.load(directory)
for _ in range(3):
    print(json.dumps({"loaded loss": float(loaded.train(x, y)["loss"])}))
served = loaded.signatures["serving_default"](x[:3])["output_0"]
print(json.dumps({"served": served.numpy().tolist()}))
