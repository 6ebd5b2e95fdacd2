"""A GAN in a loop of its own: two models and two optimizers in one function."""

import json

import keras
import tensorflow as tf

keras.utils.set_random_seed(9)
generator = keras.Sequential([keras.layers.Dense(12, activation="relu"), keras.layers.Dense(2)])
critic = keras.Sequential([keras.layers.Dense(12, activation="leaky_relu"), keras.layers.Dense(1)])
generator_optimizer = keras.optimizers.Adam(0.01, beta_1=0.5)
critic_optimizer = keras.optimizers.Adam(0.01, beta_1=0.5)
cross_entropy = keras.losses.BinaryCrossentropy(from_logits=True)
generator.build([None, 4])
critic.build([None, 2])


@tf.function
def train_step(real, noise):
    with tf.GradientTape() as generating, tf.GradientTape() as judging:
        fake = generator(noise, training=True)
        of_real, of_fake = critic(real, training=True), critic(fake, training=True)
        generator_loss = cross_entropy(tf.ones_like(of_fake), of_fake)
        critic_loss = cross_entropy(tf.ones_like(of_real), of_real) + cross_entropy(
            tf.zeros_like(of_fake), of_fake
        )
    for optimizer, tape, loss, model in (
        (generator_optimizer, generating, generator_loss, generator),
        (critic_optimizer, judging, critic_loss, critic),
    ):
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return generator_loss, critic_loss


for step in range(5):
    real = tf.random.stateless_normal([16, 2], (step, 0)) * 0.1 + 1.0
    losses = train_step(real, tf.random.stateless_normal([16, 4], (step, 1)))
    print(json.dumps({"step": step, "losses": [float(loss) for loss in losses]}))
