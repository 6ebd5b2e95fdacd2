"""A training step of one's own: tf.function and GradientTape.

Run: python examples/train_function.py
"""

import tensorflow as tf

import hplacer_optimizer as hp

# Two logical devices stand in for two GPUs; leave this out on a machine that has them. They share
# the host's cores, so that TensorFlow's own placement is the best, and kept.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

hp.enable()

tf.random.set_seed(0)
inputs = tf.random.normal((256, 64))
wanted = tf.sin(tf.reduce_sum(inputs, axis=1, keepdims=True))
towers = [[tf.Variable(tf.random.normal((64, 64), stddev=0.1)) for _ in range(3)] for _ in range(2)]
head = tf.Variable(tf.random.normal((128, 1), stddev=0.1))
variables = [head, *(weight for tower in towers for weight in tower)]


@tf.function
def train_step() -> tf.Tensor:
    with tf.GradientTape() as tape:
        outputs = []
        for tower in towers:
            features = inputs
            for weight in tower:
                features = tf.tanh(features @ weight)
            outputs.append(features)
        loss = tf.reduce_mean((tf.concat(outputs, axis=1) @ head - wanted) ** 2)
    gradients = tape.gradient(loss, variables)
    for variable, gradient in zip(variables, gradients, strict=True):
        variable.assign_sub(0.05 * gradient)
    return loss


for step in range(1, 101):
    loss = train_step()
    if step % 20 == 0:
        print(f"step {step}: loss {loss:.4f}")
