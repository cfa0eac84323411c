# mypy: ignore-errors
# (It runs in a venv of its own; the library is not in ours, and its messages have the names of others'.)
"""Runs in the venv of TensorFlow Serving's API: call a proxy by ovmsclient, unmodified, and print what came as JSON.

python ask_ovms.py <address of the gRPC port> <address of the HTTP port> <file with rows>
"""

import json
import sys
from pathlib import Path

import numpy as np
from ovmsclient import make_grpc_client, make_http_client

GRPC, HTTP = sys.argv[1:3]
ROWS = np.array(json.loads(Path(sys.argv[3]).read_text()), "<f4")
MODEL = "visits"
found = {}


def hexed(values):
    return np.ascontiguousarray(values, "<f4").tobytes().hex()


def ask(client, way):
    found[f"{way} predict"] = hexed(client.predict({"input": ROWS[:1]}, MODEL))
    found[f"{way} version 1"] = hexed(client.predict({"input": ROWS[:1]}, MODEL, model_version=1))
    found[f"{way} version 0"] = hexed(client.predict({"input": ROWS[:1]}, MODEL, model_version=0))
    found[f"{way} rows"] = list(np.shape(client.predict({"input": ROWS}, MODEL)))
    found[f"{way} status"] = {int(version): one["state"] for version, one in client.get_model_status(MODEL).items()}


grpc = make_grpc_client(GRPC)
ask(grpc, "grpc")
metadata = grpc.get_model_metadata(MODEL)
found["grpc metadata"] = [sorted(metadata["inputs"]), sorted(metadata["outputs"])]
http = make_http_client(HTTP)
found["http predict"] = hexed(http.predict({"input": ROWS[:1]}, MODEL))
found["http status"] = {int(version): one["state"] for version, one in http.get_model_status(MODEL).items()}
try:
    grpc.predict({"input": ROWS[:1]}, "unknown")
except Exception as refused:  # noqa: BLE001 - whatever the client makes of it
    found["unknown model"] = type(refused).__name__
sys.stdout.write(json.dumps(found))
