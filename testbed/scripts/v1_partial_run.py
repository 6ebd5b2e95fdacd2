"""One step in two parts: partial_run fetches, feeds what was computed from that, and goes on."""

import json

import numpy as np
import tensorflow.compat.v1 as tf

with tf.Graph().as_default():
    numbers = np.random.RandomState(0)
    weights = tf.constant(numbers.randn(6, 6).astype("float32"))
    x = tf.placeholder(tf.float32, [4, 6])
    scale = tf.placeholder(tf.float32, [])
    hidden = tf.nn.relu(tf.matmul(x, weights)) + tf.sin(tf.matmul(x, weights + 1.0))
    total = tf.reduce_sum(hidden)
    scaled = tf.reduce_mean(tf.tanh(tf.matmul(hidden * scale, weights, transpose_b=True)) ** 2)
    slope = tf.gradients(scaled, hidden)[0]
    norm = tf.norm(slope)
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        for _ in range(3):
            handle = session.partial_run_setup([total, scaled, norm], [x, scale])
            first = session.partial_run(handle, total, {x: numbers.randn(4, 6)})
            second = session.partial_run(handle, [scaled, norm], {scale: 1.0 / first})
            print(json.dumps({"total": float(first), "scaled": [float(v) for v in second]}))
        run = session.make_callable([total, norm], [x, scale])
        print(json.dumps({"callable": [float(v) for v in run(np.ones([4, 6]), 0.5)]}))
