# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in TensorFlow's venv: the SavedModel that both ways of TensorFlow Serving serve, and what it answers."""

import json
from pathlib import Path

import tensorflow as tf


class Model(tf.Module):
    """A logistic regression with fixed weights."""

    def __init__(self):
        super().__init__()
        self.weights = tf.Variable(tf.reshape(tf.linspace(-1.0, 1.0, 6), [6, 1]))

    @tf.function(input_signature=[tf.TensorSpec([None, 6], tf.float32, name="x")])
    def predict(self, x):
        """Return the score of each row."""
        return {"p": tf.sigmoid(tf.matmul(x, self.weights))}


def save(folder: Path) -> None:
    """Write it as version 1 into ``folder``, with what it answers for some rows in ``expected.json``."""
    trained = Model()
    tf.saved_model.save(trained, str(folder / "1"), signatures={"serving_default": trained.predict})
    examples = tf.random.stateless_normal([20, 6], seed=[7, 7])
    expected = {"rows": examples.numpy().tolist(), "scores": trained.predict(examples)["p"].numpy()[:, 0].tolist()}
    (folder / "expected.json").write_text(json.dumps(expected))
