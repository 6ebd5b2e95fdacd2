"""The functional API: two inputs, a shared layer, a skip connection, two losses with weights."""

import json

import keras
import numpy as np

keras.utils.set_random_seed(2)
left, right = keras.Input([6], name="left"), keras.Input([6], name="right")
shared = keras.layers.Dense(12, activation="tanh")
merged = keras.layers.concatenate([shared(left), shared(right)])
hidden = keras.layers.Dense(24, activation="gelu")(merged)
merged = keras.layers.add([merged, hidden])
outputs = {
    "value": keras.layers.Dense(1, name="value")(merged),
    "kind": keras.layers.Dense(3, activation="softmax", name="kind")(merged),
}
model = keras.Model({"left": left, "right": right}, outputs)
model.compile(
    keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    loss={"value": "mse", "kind": "sparse_categorical_crossentropy"},
    loss_weights={"value": 1.0, "kind": 0.2},
    metrics={"kind": ["accuracy"]},
)
data = {name: np.random.rand(64, 6).astype("float32") for name in ("left", "right")}
targets = {
    "value": (data["left"] - data["right"]).sum(axis=1, keepdims=True),
    "kind": data["left"].argmax(axis=1) % 3,
}
history = model.fit(data, targets, batch_size=16, epochs=3, verbose=0, shuffle=False)
print(json.dumps(history.history))
