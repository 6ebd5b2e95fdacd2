"""Images: separable and strided convolutions, pooling, batch norm, augmentation in the model."""

import json

import keras
import numpy as np

keras.utils.set_random_seed(8)
images = np.random.rand(24, 12, 12, 3).astype("float32")
labels = (images.mean(axis=(1, 2)).argmax(axis=1)).astype("int32")
model = keras.Sequential(
    [
        keras.layers.Rescaling(2.0, offset=-1.0),
        keras.layers.Conv2D(8, 3, padding="same", activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.MaxPooling2D(),
        keras.layers.SeparableConv2D(12, 3, activation="relu"),
        keras.layers.Conv2DTranspose(6, 3, strides=2),
        keras.layers.SpatialDropout2D(0.1),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(3, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(images, labels, batch_size=8, epochs=2, verbose=0, shuffle=False)
print(json.dumps(history.history))
