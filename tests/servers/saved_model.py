# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in TensorFlow's venv: SavedModels that both ways of TensorFlow Serving serve, and what they answer."""

import json
from pathlib import Path

import tensorflow as tf


class Model(tf.Module):
    """A logistic regression with fixed weights, times ``sign``."""

    def __init__(self, sign=1.0):
        super().__init__()
        self.weights = tf.Variable(sign * tf.reshape(tf.linspace(-1.0, 1.0, 6), [6, 1]))

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


def save_artifacts(folder: Path) -> None:
    """Write what an agent is given: ``good``, ``other``, which answers one minus that, and ``broken``, cut short."""
    if (folder / "expected.json").exists():
        return
    save(folder / "good")
    for path in list((folder / "good/1").iterdir()):
        path.rename(folder / "good" / path.name)
    (folder / "good/1").rmdir()
    other = Model(-1.0)
    tf.saved_model.save(other, str(folder / "other"), signatures={"serving_default": other.predict})
    (folder / "broken").mkdir()
    (folder / "broken/saved_model.pb").write_bytes((folder / "good/saved_model.pb").read_bytes()[:1_000])
    (folder / "models").mkdir()
    (folder / "good/expected.json").rename(folder / "expected.json")
