# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in MLServer's venv: train three models of scikit-learn, and write them by joblib.

``python train_sklearn.py FOLDER``
"""

import sys
from pathlib import Path

import joblib
import numpy as np
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

folder = Path(sys.argv[1])
rows, classes = make_classification(80_000, 40, n_informative=16, n_classes=4, flip_y=0.2, random_state=7)
rows = rows.astype(np.float32)
models = {
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()).fit(*load_breast_cancer(return_X_y=True)),
    "neighbours": KNeighborsClassifier(algorithm="kd_tree").fit(rows, classes),
    "forest": RandomForestClassifier(60, max_features=4, random_state=7, n_jobs=2).fit(rows, classes),
}
for name, model in models.items():
    (folder / name).mkdir(parents=True)
    joblib.dump(model, folder / name / "model.joblib")
