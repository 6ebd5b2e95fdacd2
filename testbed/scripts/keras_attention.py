"""A block of a transformer: multi-head attention with a causal mask, layer norm, AdamW."""

import json

import keras
import numpy as np

keras.utils.set_random_seed(7)
words = np.random.randint(0, 16, [24, 9])
inputs = keras.Input([8], dtype="int32")
hidden = keras.layers.Embedding(16, 12)(inputs)
attended = keras.layers.MultiHeadAttention(3, 4)(hidden, hidden, use_causal_mask=True)
hidden = keras.layers.LayerNormalization()(hidden + attended)
wide = keras.layers.Dense(24, activation="silu")(hidden)
hidden = keras.layers.LayerNormalization()(hidden + keras.layers.Dense(12)(wide))
model = keras.Model(inputs, keras.layers.Dense(16)(hidden))
model.compile(
    keras.optimizers.AdamW(0.01, weight_decay=0.01, clipnorm=1.0),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
history = model.fit(words[:, :-1], words[:, 1:], batch_size=8, epochs=2, verbose=0, shuffle=False)
print(json.dumps(history.history))
