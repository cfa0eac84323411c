# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in MLServer's venv: write an artifact that it can load and one that it cannot, become MLServer without models.

python empty_mlserver.py <folder> <gRPC port> <free port>
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

folder, port = Path(sys.argv[1]), sys.argv[2]
if not (folder / "expected.json").exists():
    rows, labels = load_breast_cancer(return_X_y=True)
    rows = rows[:, :6].astype("float32")
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, labels)
    for name in ("good", "broken", "models"):
        (folder / name).mkdir()
    joblib.dump(model, folder / "good/classifier of visits.joblib")
    (folder / "broken/model.joblib").write_bytes(b"no model")
    examples = rows[:20]
    expected = {"rows": examples.tolist(), "scores": model.predict_proba(examples)[:, 1].tolist()}
    (folder / "expected.json").write_text(json.dumps(expected))
environment = {
    **os.environ,
    "MLSERVER_HOST": "127.0.0.1",
    "MLSERVER_GRPC_PORT": port,
    "MLSERVER_HTTP_PORT": "0",
    "MLSERVER_METRICS_PORT": "0",
    "MLSERVER_LOAD_MODELS_AT_STARTUP": "false",
    # The worker processes that are its default die on uvloop >= 0.22.
    "MLSERVER_PARALLEL_WORKERS": "0",
}
os.chdir(folder / "models")
os.execve(Path(sys.executable).parent / "mlserver", ["mlserver", "start", str(folder / "models")], environment)
