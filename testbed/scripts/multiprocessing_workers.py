"""Workers of multiprocessing, by "spawn" or by "forkserver", each of which trains a model."""

import json
import multiprocessing
import sys

import hplacer_optimizer  # noqa: F401  (a worker is a new process: it switches itself on)


def train(seed):
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    weights = tf.Variable(tf.random.stateless_normal([6, 6], (seed, 0)) * 0.4)
    x = tf.random.stateless_normal([10, 6], (2, 0))

    @tf.function
    def train_step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.tanh(x @ weights) @ tf.transpose(weights) - x) ** 2)
        weights.assign_sub(0.2 * tape.gradient(loss, weights))
        return loss

    return [float(train_step()) for _ in range(4)]


if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        for seed, losses in enumerate(pool.map(train, [0, 1])):
            print(json.dumps({"seed": seed, "losses": losses}))
        pool.close()
        pool.join()
