# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in Triton's venv: a logistic function behind a real Triton server (nvidia-pytriton).

python start_triton.py <folder> <gRPC port> <free port>
"""

import json
import sys
from pathlib import Path

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

folder, port = Path(sys.argv[1]), int(sys.argv[2])
weights = np.linspace(-1, 1, 6, dtype=np.float32)
examples = np.random.default_rng(7).normal(size=(20, 6)).astype(np.float32)


@batch
def infer(x):
    """Return the score of each row."""
    return {"p": (1 / (1 + np.exp(-(x @ weights)))).reshape(-1, 1).astype(np.float32)}


expected = {"rows": examples.tolist(), "scores": (1 / (1 + np.exp(-(examples @ weights)))).tolist()}
(folder / "expected.json").write_text(json.dumps(expected))
config = TritonConfig(
    grpc_port=port,
    grpc_address="127.0.0.1",
    allow_http=True,
    http_port=int(sys.argv[3]),
    http_address="127.0.0.1",
    allow_metrics=False,
)
with Triton(config=config) as triton:
    triton.bind(
        model_name="example",
        infer_func=infer,
        inputs=[Tensor(name="x", dtype=np.float32, shape=(6,))],
        outputs=[Tensor(name="p", dtype=np.float32, shape=(1,))],
        config=ModelConfig(max_batch_size=64),
    )
    triton.serve()
