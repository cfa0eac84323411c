# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Become BentoML with one service that works in its own process.

python bentoml_in_process.py <folder> <port>
"""

import os
import sys
from pathlib import Path

import bentoml
from work import answer

from loadtests.plain_body import Inputs


@bentoml.service(
    workers=1,
    traffic={"timeout": 30, "max_concurrency": 1_000},
    metrics={"enabled": False},
    logging={"access": {"enabled": False}},
)
class Bench:
    """One predict call."""

    @bentoml.api(route="/v1/models/bench/predict")
    async def predict(self, entity_id: str, inputs: Inputs) -> dict:
        return answer(entity_id, inputs)


if __name__ == "__main__":
    environment = {**os.environ, "BENTOML_HOME": sys.argv[1], "BENTOML_DO_NOT_TRACK": "True"}
    command = ["bentoml", "serve", "bentoml_in_process:Bench", "--host", "127.0.0.1", "--port", sys.argv[2]]
    os.chdir(Path(__file__).parent)
    os.execve(Path(sys.executable).with_name("bentoml"), command, environment)
