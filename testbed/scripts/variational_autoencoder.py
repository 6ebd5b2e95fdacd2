"""A variational autoencoder, whose divergence counts more with every step, and what it draws."""

import json

import tensorflow as tf

PIXELS, HIDDEN, LATENT = 36, 16, 3
images = tf.cast(tf.random.stateless_uniform([16, PIXELS], (1, 0)) < 0.3, tf.float32)
images = tf.maximum(images, tf.roll(images, 1, axis=1))
shapes = ([PIXELS, HIDDEN], [HIDDEN, 2 * LATENT], [LATENT, HIDDEN], [HIDDEN, PIXELS])
weights = [
    tf.Variable(tf.random.stateless_normal(shape, (seed, 0)) * 0.3)
    for seed, shape in enumerate(shapes, start=2)
]
biases = [tf.Variable(tf.zeros(shape[1:])) for shape in shapes]
variables = [*weights, *biases]
squares = [tf.Variable(tf.ones_like(variable)) for variable in variables]


def layers(values, first):
    hidden = tf.nn.softplus(tf.nn.bias_add(values @ weights[first], biases[first]))
    return tf.nn.bias_add(hidden @ weights[first + 1], biases[first + 1])


@tf.function
def train_step(images, step):
    noise = tf.random.stateless_normal([16, LATENT], tf.stack([step, 7]))
    with tf.GradientTape() as tape:
        mean, log_variance = tf.split(layers(images, 0), 2, axis=1)
        logits = layers(mean + tf.exp(0.5 * log_variance) * noise, 2)
        errors = tf.nn.sigmoid_cross_entropy_with_logits(labels=images, logits=logits)
        error = tf.reduce_mean(tf.reduce_sum(errors, axis=1))
        divergence = 0.5 * tf.reduce_mean(
            tf.reduce_sum(mean**2 + tf.exp(log_variance) - 1.0 - log_variance, axis=1)
        )
        loss = error + tf.minimum(1.0, tf.cast(step, tf.float32) / 4.0) * divergence
    for variable, square, gradient in zip(
        variables, squares, tape.gradient(loss, variables), strict=True
    ):
        square.assign(0.9 * square + 0.1 * gradient**2)
        variable.assign_sub(0.02 * gradient / (tf.sqrt(square) + 1e-3))
    return error, divergence


@tf.function(input_signature=[tf.TensorSpec([None, LATENT])])
def draw(latent):
    return tf.sigmoid(layers(latent, 2))


for step in range(6):
    error, divergence = train_step(images, tf.constant(step))
    print(json.dumps({"error": float(error), "divergence": float(divergence)}))
drawn = draw(tf.random.stateless_normal([2, LATENT], (9, 0)))
print(json.dumps({"drawn": drawn[:, :5].numpy().tolist()}))
