"""Stacked LSTMs over padded sequences of words, with an embedding that masks."""

import json

import keras
import numpy as np

keras.utils.set_random_seed(5)
words = np.random.randint(1, 20, [32, 7])
words[::3, 4:] = 0
labels = (words.sum(axis=1) % 2).astype("float32")
model = keras.Sequential(
    [
        keras.layers.Embedding(20, 8, mask_zero=True),
        keras.layers.LSTM(10, return_sequences=True),
        keras.layers.LSTM(6, recurrent_dropout=0.1),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("adam", "binary_crossentropy")
history = model.fit(words, labels, batch_size=8, epochs=2, verbose=0, shuffle=False)
print(json.dumps(history.history))
