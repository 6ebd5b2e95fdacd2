"""A session trains an LSTM in a while loop by momentum; its state goes on from window to window."""

import json

import numpy as np
import tensorflow.compat.v1 as tf

BATCH, WIDTH, WINDOW = 4, 6, 5

with tf.Graph().as_default():
    numbers = np.random.RandomState(0)
    series = np.cumsum(numbers.randn(4 * WINDOW + 1, BATCH, 2) * 0.3, axis=0)
    inputs = tf.placeholder(tf.float32, [None, BATCH, 2], "inputs")
    wanted = tf.placeholder(tf.float32, [None, BATCH, 2], "wanted")
    first = [tf.placeholder_with_default(tf.zeros([BATCH, WIDTH]), [BATCH, WIDTH]) for _ in "ch"]
    kernel, out = (
        tf.get_variable(name, initializer=tf.constant(numbers.randn(*shape) * 0.3, tf.float32))
        for name, shape in (("kernel", (2 + WIDTH, 4 * WIDTH)), ("out", (WIDTH, 2)))
    )
    bias = tf.get_variable("bias", [4 * WIDTH], initializer=tf.zeros_initializer())
    length = tf.shape(inputs)[0]
    vectors = tf.TensorArray(tf.float32, size=length).unstack(inputs)

    def step(time, cell, hidden, outputs):
        gates = tf.matmul(tf.concat([vectors.read(time), hidden], 1), kernel) + bias
        enter, forget, leave, candidate = tf.split(gates, 4, axis=1)
        cell = tf.sigmoid(forget + 1.0) * cell + tf.sigmoid(enter) * tf.tanh(candidate)
        hidden = tf.sigmoid(leave) * tf.tanh(cell)
        return time + 1, cell, hidden, outputs.write(time, hidden)

    _, *last, outputs = tf.while_loop(
        lambda time, *_: time < length,
        step,
        [0, *first, tf.TensorArray(tf.float32, size=length)],
        parallel_iterations=4,
    )
    hidden = tf.reshape(outputs.stack(), [-1, WIDTH])
    loss = tf.losses.huber_loss(tf.reshape(wanted, [-1, 2]), tf.matmul(hidden, out))
    optimizer = tf.train.MomentumOptimizer(0.2, 0.9, use_nesterov=True)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    gradients, norm = tf.clip_by_global_norm(gradients, 0.5)
    updated = optimizer.apply_gradients(zip(gradients, variables, strict=True))
    average = tf.train.ExponentialMovingAverage(0.7)
    with tf.control_dependencies([updated]):
        train_op = average.apply(variables)

    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(2):
            state = {}
            for begin in range(0, len(series) - 1, WINDOW):
                window = series[begin : begin + WINDOW + 1]
                feed = {inputs: window[:-1], wanted: window[1:], **state}
                found, of_norm, values, _ = session.run([loss, norm, last, train_op], feed)
                state = dict(zip(first, values, strict=True))
                print(json.dumps({"loss": float(found), "norm": float(of_norm)}))
        print(json.dumps({"average": session.run(average.average(out)).tolist()}))
