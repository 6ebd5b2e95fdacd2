"""One session, a queue that a runner fills, and four threads that evaluate and one that trains."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow.compat.v1 as tf

with tf.Graph().as_default():
    numbers = np.random.RandomState(0)
    rows = tf.train.limit_epochs(tf.constant(numbers.randn(8, 6), tf.float32), num_epochs=6)
    queue = tf.queue.FIFOQueue(64, [tf.float32], [[6]])
    runner = tf.train.QueueRunner(queue, [queue.enqueue_many([rows])])
    weights = tf.get_variable(
        "weights", initializer=tf.constant(numbers.randn(6, 6) * 0.4, tf.float32)
    )
    x = queue.dequeue_many(8)
    loss = tf.reduce_mean((tf.matmul(tf.tanh(tf.matmul(x, weights)), weights) - x) ** 2)
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    fed = tf.placeholder(tf.float32, [6, 6])
    score = tf.reduce_sum(tf.nn.softmax(tf.matmul(fed, tf.sin(fed))) ** 2)
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        fillers = runner.create_threads(session, coordinator, daemon=True, start=True)
        with ThreadPoolExecutor(4) as pool:
            scores = pool.map(
                lambda number: float(session.run(score, {fed: np.eye(6) * number})), range(8)
            )
            losses = [float(session.run([loss, train_op])[0]) for _ in range(6)]
        print(json.dumps({"losses": losses, "scores": list(scores)}))
        try:
            session.run(loss)
        except tf.errors.OutOfRangeError as error:
            print(json.dumps({"end": type(error).__name__}))
        coordinator.request_stop()
        coordinator.join(fillers)
