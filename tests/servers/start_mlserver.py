# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in MLServer's venv: fit a scikit-learn model, write what it predicts, become MLServer.

python start_mlserver.py <folder> <gRPC port> <HTTP port>
"""

import json
import os
import sys
from pathlib import Path

import joblib
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

folder, port, http_port = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
rows, labels = load_breast_cancer(return_X_y=True)
rows = rows[:, :6].astype("float32")
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, labels)
joblib.dump(model, folder / "model.joblib")
settings = {
    "name": "example",
    "implementation": "mlserver_sklearn.SKLearnModel",
    "parameters": {"uri": "./model.joblib", "version": "v1"},
}
(folder / "model-settings.json").write_text(json.dumps(settings))
examples = rows[:20]
expected = {"rows": examples.tolist(), "scores": model.predict_proba(examples)[:, 1].tolist()}
(folder / "expected.json").write_text(json.dumps(expected))
environment = {
    **os.environ,
    "MLSERVER_HOST": "127.0.0.1",
    "MLSERVER_GRPC_PORT": port,
    "MLSERVER_HTTP_PORT": http_port,
    "MLSERVER_METRICS_PORT": "0",
    # The worker processes that are its default die on uvloop >= 0.22.
    "MLSERVER_PARALLEL_WORKERS": "0",
}
os.chdir(folder)
os.execve(Path(sys.executable).parent / "mlserver", ["mlserver", "start", str(folder)], environment)
