# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in TensorFlow's venv: has the real ``tensorflow_model_server`` serve the SavedModel (``make test-tfserving``).

    python start_tfserving.py <folder> <gRPC port> <REST port>

The binary is in no package index; it is in Google's apt repository and in the image tensorflow/serving.
"""

import os
import sys
from pathlib import Path

from saved_model import save

folder, port, rest_port = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
save(folder / "example")
(folder / "example" / "expected.json").rename(folder / "expected.json")
arguments = [f"--port={port}", f"--rest_api_port={rest_port}", "--model_name=example"]
os.execvp("tensorflow_model_server", ["tensorflow_model_server", *arguments, f"--model_base_path={folder / 'example'}"])
