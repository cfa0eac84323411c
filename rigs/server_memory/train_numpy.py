# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in Triton's venv: fit three models by numpy, and write them as Triton's Python backend loads them.

``python train_numpy.py FOLDER``
"""

import sys
from pathlib import Path

import numpy as np

MODEL = """
from pathlib import Path

import numpy as np
import triton_python_backend_utils as utils


class TritonPythonModel:
    def initialize(self, args):
        folder = Path(args["model_repository"]) / args["model_version"]
        with np.load(folder / "weights.npz") as kept:
            self.spread, self.shift, self.weights = (kept[name] for name in ("spread", "shift", "weights"))

    def execute(self, requests):
        answers = []
        for request in requests:
            rows = utils.get_input_tensor_by_name(request, "x").as_numpy()
            scores = np.cos(rows @ self.spread + self.shift) @ self.weights
            answers.append(utils.InferenceResponse([utils.Tensor("p", scores.reshape(-1, 1).astype(np.float32))]))
        return answers
"""
CONFIG = """
backend: "python"
max_batch_size: 64
input [{ name: "x" data_type: TYPE_FP32 dims: [WIDTH] }]
output [{ name: "p" data_type: TYPE_FP32 dims: [1] }]
"""
WIDTHS = {"ridge-64": (6, 64), "ridge-2k": (2_048, 2_048), "ridge-3k": (16_384, 3_072)}
"""Numbers of a row, and random cosine features that a ridge regression is fitted on."""

folder = Path(sys.argv[1])
random = np.random.default_rng(7)
for name, (width, features) in WIDTHS.items():
    rows = random.normal(size=(1_000, width)).astype(np.float32)
    targets = np.tanh(rows[:, 0] - rows[:, 1] * rows[:, 2])
    spread = random.normal(scale=width**-0.5, size=(width, features)).astype(np.float32)
    shift = random.uniform(0, 2 * np.pi, size=features).astype(np.float32)
    seen = np.cos(rows @ spread + shift)
    # By the rows' products: they are fewer than the features.
    weights = seen.T @ np.linalg.solve(seen @ seen.T + np.eye(len(rows), dtype=np.float32), targets)
    (folder / name / "1").mkdir(parents=True)
    np.savez(folder / name / "1/weights.npz", spread=spread, shift=shift, weights=weights.astype(np.float32))
    (folder / name / "1/model.py").write_text(MODEL)
    (folder / name / "config.pbtxt").write_text(CONFIG.replace("WIDTH", str(width)))
