# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in MLflow's venv: fit a scikit-learn model, write what it predicts, become MLflow's scoring server.

python start_mlflow.py <folder> <port>
"""

import json
import os
import sys
from pathlib import Path

import mlflow.sklearn
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

folder, port = Path(sys.argv[1]), sys.argv[2]
frame, labels = load_breast_cancer(return_X_y=True, as_frame=True)
frame = frame.iloc[:, :6].astype("float32").set_axis([f"f{index}" for index in range(6)], axis="columns")
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, labels)
signature = mlflow.models.infer_signature(frame, model.predict_proba(frame))
mlflow.sklearn.save_model(model, folder / "model", pyfunc_predict_fn="predict_proba", signature=signature)
examples = frame.iloc[:20]
expected = {"rows": examples.to_numpy().tolist(), "scores": model.predict_proba(examples)[:, 1].tolist()}
(folder / "expected.json").write_text(json.dumps(expected))
serve = ["models", "serve", "--model-uri", "model", "--host", "127.0.0.1", "--port", port, "--env-manager", "local"]
os.chdir(folder)
os.execv(sys.executable, [sys.executable, "-m", "mlflow", *serve, "--workers", "1"])
