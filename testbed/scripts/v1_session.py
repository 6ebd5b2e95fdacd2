"""A graph and a session as in TensorFlow 1: placeholders, momentum, a saver, and a second start."""

import json
import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
numbers = np.random.RandomState(0)
x = tf.placeholder(tf.float32, [None, 6], "x")
y = tf.placeholder(tf.float32, [None, 1], "y")


def weight(name, shape):
    value = tf.constant_initializer(numbers.randn(*shape) * 0.4)
    return tf.get_variable(name, shape, initializer=value)


with tf.variable_scope("net"):
    left = tf.nn.relu(tf.matmul(x, weight("left", [6, 12])))
    right = tf.nn.tanh(tf.matmul(x, weight("right", [6, 12])))
    loss = tf.losses.mean_squared_error(y, tf.matmul(left + right, weight("out", [12, 1])))
global_step = tf.train.get_or_create_global_step()
rate = tf.train.exponential_decay(0.05, global_step, 2, 0.9)
train_op = tf.train.MomentumOptimizer(rate, 0.9).minimize(loss, global_step)
saver = tf.train.Saver()
path = os.path.join(tempfile.mkdtemp(), "model")
data = numbers.randn(16, 6)
feed = {x: data, y: data.sum(axis=1, keepdims=True)}

with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
    session.run(tf.global_variables_initializer())
    for _ in range(3):
        print(json.dumps({"loss": float(session.run([loss, train_op], feed)[0])}))
    saver.save(session, path)
    for _ in range(2):
        print(json.dumps({"loss": float(session.run([loss, train_op], feed)[0])}))

with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
    saver.restore(session, path)
    for _ in range(2):
        print(json.dumps({"again": float(session.run([loss, train_op], feed)[0])}))
    print(json.dumps({"steps": int(session.run(global_step))}))
