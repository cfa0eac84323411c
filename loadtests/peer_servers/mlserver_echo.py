# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Become MLServer with a model in its own process that answers a constant.

python mlserver_echo.py <folder> <port> [<gRPC port>]
"""

import json
import os
import sys
from pathlib import Path

from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput


class Echo(MLModel):
    """Reads nothing of its input but what MLServer has read."""

    async def load(self):
        return True

    async def predict(self, payload):
        output = ResponseOutput(name="probabilities", shape=[1, 2], datatype="FP32", data=[0.25, 0.75])
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=[output])


def become_mlserver(folder: Path, port: int, grpc_port: int) -> None:
    """Write its settings and replace this process."""
    settings = {
        "debug": False,
        "host": "127.0.0.1",
        "http_port": port,
        "grpc_port": grpc_port,
        "metrics_endpoint": None,
        "parallel_workers": 0,  # in the process: no hop to a worker
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    model = {"name": "bench", "implementation": "mlserver_echo.Echo"}
    (folder / "model-settings.json").write_text(json.dumps(model))
    os.chdir(folder)
    os.execv(Path(sys.executable).with_name("mlserver"), ["mlserver", "start", str(folder)])


if __name__ == "__main__":
    become_mlserver(Path(sys.argv[1]), int(sys.argv[2]), int((sys.argv[3:] or ["0"])[0]))
