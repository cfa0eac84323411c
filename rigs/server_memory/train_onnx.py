# mypy: ignore-errors
# (It runs in the venv that trains models; its libraries are not in ours.)
"""Runs in ``.venv-train``: train three models on rows of digits, and write them as ONNX.

``python train_onnx.py FOLDER``
"""

import sys
from pathlib import Path

import numpy as np
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

folder = Path(sys.argv[1])
digits, labels = load_digits(return_X_y=True)
digits = (digits / 16).astype(np.float32)
rows, classes = make_classification(20_000, 64, n_informative=24, n_classes=4, random_state=7)
models = {
    "logistic": LogisticRegression(max_iter=200).fit(digits, labels),
    "forest": RandomForestClassifier(40, random_state=7).fit(rows.astype(np.float32), classes),
    # Two steps of descent: what it takes of memory does not depend on how well it has learnt.
    "network": MLPClassifier((5_000, 8_000), batch_size=900, max_iter=1, random_state=7).fit(digits, labels),
}
for name, model in models.items():
    kind = [("x", FloatTensorType([None, 64]))]
    converted = convert_sklearn(
        model, initial_types=kind, options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3}
    )
    (folder / name).mkdir(parents=True)
    (folder / name / "model.onnx").write_bytes(converted.SerializeToString())
