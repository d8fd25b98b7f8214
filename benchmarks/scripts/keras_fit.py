"""Fit a Keras model, and evaluate it."""

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers


def make_model(width=128):
    inputs = keras.Input(shape=(32,))
    x = inputs
    for _ in range(3):
        x = layers.Dense(width, activation="relu")(x)
    outputs = layers.Dense(1, activation="sigmoid")(x)
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
    return model


class Report(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(epoch, {name: round(float(value), 3) for name, value in (logs or {}).items()})


def main():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8000, 32)).astype("float32")
    y = (x.sum(axis=1, keepdims=True) > 0).astype("float32")
    model = make_model()
    model.fit(x[:6000], y[:6000], epochs=3, batch_size=128, verbose=0, callbacks=[Report()])
    print("loss %.3f accuracy %.3f" % tuple(model.evaluate(x[6000:], y[6000:], verbose=0)))
    print(model.predict(x[:5], verbose=0).ravel().round(2))


if __name__ == "__main__":
    main()
