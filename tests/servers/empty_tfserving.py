# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in TensorFlow's venv: write artifacts, become the real ``tensorflow_model_server`` without models.

    python empty_tfserving.py <folder> <gRPC port> <REST port>

The binary is in no package index (``make test-tfserving``).
"""

import os
import sys
from pathlib import Path

from saved_model import save_artifacts

folder, port, rest_port = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
save_artifacts(folder)
(folder / "models.config").write_text("model_config_list {}\n")
arguments = [f"--port={port}", f"--rest_api_port={rest_port}", f"--model_config_file={folder / 'models.config'}"]
os.execvp("tensorflow_model_server", ["tensorflow_model_server", *arguments, "--max_num_load_retries=0"])
