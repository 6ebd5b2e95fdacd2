"""A Keras classifier of scikit-learn's digits: two convolutional branches, trained with `fit`."""

from __future__ import annotations

from typing import Any

from hplacer_optimizer.workloads.setup import Setup, Training, eager_session

_IMAGES = 256


def train(setup: Setup) -> Training:
    """One epoch is one step, so the history holds the loss of every step."""
    with eager_session(setup) as graphs:
        import keras
        from sklearn.datasets import load_digits

        keras.utils.set_random_seed(0)
        pixels, labels = load_digits(return_X_y=True)
        images = pixels[:_IMAGES].reshape(-1, 8, 8, 1) / 16.0
        model = build(keras)
        fitted = model.fit(
            images,
            labels[:_IMAGES],
            batch_size=_IMAGES,
            epochs=setup.steps,
            shuffle=False,
            verbose=0,
        )
    return Training([float(loss) for loss in fitted.history["loss"]], graphs)


def build(keras: Any) -> Any:
    """The compiled model; its branches differ in the size of their kernels."""
    layers = keras.layers
    images = keras.Input((8, 8, 1))
    branches = []
    for size in (3, 5):
        features = layers.Conv2D(16, size, padding="same", activation="relu")(images)
        features = layers.Conv2D(32, size, padding="same", activation="relu")(features)
        branches.append(layers.GlobalAveragePooling2D()(features))
    logits = layers.Dense(10)(layers.Concatenate()(branches))
    model = keras.Model(images, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    return model
