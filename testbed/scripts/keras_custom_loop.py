"""A loop of one's own with Keras layers, metrics, an exponential rate and gradient accumulation."""

import json

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(10)
x = np.random.rand(64, 8).astype("float32")
y = (x[:, 0] > x[:, 1]).astype("int32")
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(64, seed=1).batch(16)
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(2)])
model.build([None, 8])
optimizer = keras.optimizers.SGD(
    keras.optimizers.schedules.ExponentialDecay(0.5, 4, 0.9), gradient_accumulation_steps=2
)
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
accuracy = keras.metrics.SparseCategoricalAccuracy()


@tf.function(reduce_retracing=True)
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss = loss_function(y, logits)
    optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)
    accuracy.update_state(y, logits)
    return loss


for epoch in range(2):
    losses = [float(train_step(*batch)) for batch in data]
    print(json.dumps({"epoch": epoch, "losses": losses, "accuracy": float(accuracy.result())}))
    accuracy.reset_state()
