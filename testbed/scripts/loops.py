"""A recurrence in a while loop, trained through it; a dynamic number of trips; a TensorArray."""

import json

import tensorflow as tf

cell = tf.Variable(tf.random.stateless_normal([8, 8], (1, 0)) * 0.3)
inputs = tf.random.stateless_normal([5, 4, 8], (2, 0))


@tf.function
def train_step(trips):
    with tf.GradientTape() as tape:
        state = tf.zeros([4, 8])
        states = tf.TensorArray(tf.float32, size=trips)
        for time in tf.range(trips):
            state = tf.tanh(state @ cell + inputs[time])
            states = states.write(time, state)
        loss = tf.reduce_mean((states.stack() - 0.1) ** 2)
    gradient = tape.gradient(loss, cell)
    cell.assign_sub(0.5 * gradient)
    return loss, tf.norm(gradient)


@tf.function
def collatz(start):
    value, steps = start, tf.constant(0)
    while value != 1:
        if value % 2 == 0:
            value = value // 2
        else:
            value = 3 * value
            value += 1
        steps += 1
    return steps


for trips in (5, 3, 5, 4):
    loss, norm = train_step(tf.constant(trips))
    print(json.dumps({"trips": trips, "loss": float(loss), "norm": float(norm)}))
print(json.dumps({"collatz": [int(collatz(tf.constant(start))) for start in (6, 7, 27)]}))
