"""A TF1 session: the switch is its ConfigProto.

Run: python examples/train_v1.py
"""

import numpy as np
import tensorflow.compat.v1 as tf

import hplacer_optimizer as hp

tf.disable_eager_execution()
tf.enable_resource_variables()
tf.set_random_seed(0)

inputs = tf.placeholder(tf.float32, (256, 64), "inputs")
wanted = tf.placeholder(tf.float32, (256, 1), "wanted")
towers = []
for tower in range(2):
    features = inputs
    for layer in range(3):
        weight = tf.get_variable(f"tower{tower}_layer{layer}", (64, 64))
        features = tf.tanh(features @ weight)
    towers.append(features)
head = tf.get_variable("head", (128, 1))
loss = tf.reduce_mean((tf.concat(towers, axis=1) @ head - wanted) ** 2)
train_op = tf.train.AdamOptimizer(0.003).minimize(loss, name="train_op")

# Two logical devices stand in for two GPUs; leave device_count out on a machine that has them. They
# share the host's cores, so that TensorFlow's own placement is the best, and kept.
config = tf.ConfigProto(device_count={"CPU": 2})
config = hp.session_config(config, targets=["train_op"])

random = np.random.default_rng(0)
features_fed = random.standard_normal((256, 64))
batch = {inputs: features_fed, wanted: np.sin(features_fed.sum(axis=1, keepdims=True))}
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    for step in range(1, 101):
        value, _ = session.run([loss, train_op], batch)
        if step % 20 == 0:
            print(f"step {step}: loss {value:.6f}")
