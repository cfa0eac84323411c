"""A source of versions over a real MLflow server, in its own venv (``make test-servers``)."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
from servers.test_real_servers import VENVS, stop

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.http.mlflow_registry import MlflowRegistry
from understudy.core.rollout.sources.source_webhook import WebhookSecret
from understudy.core.rollout.sources.version_source import SourceSpec, artifact_of
from understudy.entrypoints.cli.source.webhooks import webhook_port
from understudy.errors import SchemaNotTold, SourceAway

START_SECONDS = 300.0
"""It makes the tables of its database at its start."""
API = "/api/2.0/mlflow"
SECRET = "of both sides"
MLMODEL = """
signature:
  inputs: '[{"type": "tensor", "name": "input", "tensor-spec": {"dtype": "float32", "shape": [-1, 9]}}]'
  outputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 2]}}]'
"""
WEBHOOKS = {
    # MLflow sends webhooks over TLS to public addresses, unless it is told otherwise.
    "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
    "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    "MLFLOW_WEBHOOK_CACHE_TTL": "1",
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("mlflow-registry"), free_port()
    python = VENVS / "mlflow" / "bin" / "python"
    stores = ["--backend-store-uri", f"sqlite:///{folder}/registry.db", "--artifacts-destination", folder / "store"]
    place = ["--host", "127.0.0.1", "--port", port, "--workers", "1"]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [*map(str, [python, "-m", "mlflow", "server", *stores, *place])], stdout=log, stderr=subprocess.STDOUT,
            cwd=folder, start_new_session=True, env={**os.environ, **WEBHOOKS},
        )  # fmt: skip
        try:
            _wait_until_healthy(f"http://127.0.0.1:{port}", process, folder)
            yield f"http://127.0.0.1:{port}"
        finally:
            stop(process)


def _wait_until_healthy(url: str, process: "subprocess.Popen[bytes]", folder: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx2.get(f"{url}/health", timeout=5).status_code == httpx2.codes.OK:
                return
        except httpx2.HTTPError:
            time.sleep(0.2)
    pytest.fail("MLflow did not start:\n" + (folder / "log.txt").read_text(errors="replace")[-3_000:])


class Mlflow:
    """What people and pipelines do to the registry, by its own API."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def post(self, path: str, **body: object) -> dict[str, object]:
        answer = self._http.post(f"{API}/{path}", json=body)
        assert answer.status_code == httpx2.codes.OK, answer.text
        return dict(answer.json())

    def new_version(self, model: str, mlmodel: str) -> str:
        """Log a model in a run of its own, and register it."""
        run = self.post("runs/create", experiment_id="0", user_id="ana")["run"]
        info = run["info"]  # type: ignore[index]
        inside = f"{info['artifact_uri'].removeprefix('mlflow-artifacts:/')}/model"
        put = self._http.put(f"/api/2.0/mlflow-artifacts/artifacts/{inside}/MLmodel", content=mlmodel.encode())
        assert put.status_code == httpx2.codes.OK, put.text
        source = f"{info['artifact_uri']}/model"
        made = self.post("model-versions/create", name=model, source=source, run_id=info["run_id"])
        return str(made["model_version"]["version"])  # type: ignore[index]


@pytest.fixture
def mlflow(url: str) -> Iterator[Mlflow]:
    with httpx2.Client(base_url=url, timeout=60) as http:
        yield Mlflow(http)


@pytest.fixture
async def registry(url: str) -> AsyncIterator[MlflowRegistry]:
    there = MlflowRegistry(spec(url), None)
    yield there
    await there.close()


def spec(url: str, model: str = "eu.fraud") -> SourceSpec:
    return SourceSpec("mlflow", "fraud", url, model, "challenger", artifacts="s3://models/mlruns")


async def test_an_alias_of_mlflow_names_a_version_with_its_files_and_its_signature(
    mlflow: Mlflow, registry: MlflowRegistry, url: str
):
    assert await registry.offered() is None
    mlflow.post("registered-models/create", name="eu.fraud")
    assert await registry.offered() is None

    first, second = (mlflow.new_version("eu.fraud", MLMODEL) for _ in range(2))
    mlflow.post("registered-models/alias", name="eu.fraud", alias="challenger", version=first)
    one = await registry.offered()
    mlflow.post("registered-models/alias", name="eu.fraud", alias="challenger", version=second)
    two = await registry.offered()
    again = await registry.offered()

    assert one is not None
    assert two is not None
    assert (one.number, two.number, again) == ("1", "2", two)
    assert one.note != two.note
    assert artifact_of(spec(url), two).startswith("s3://models/mlruns/0/")
    described = await registry.described(two)
    assert [(tensor.name, tensor.datatype, tensor.shape) for tensor in described.inputs] == [("input", "FP32", (-1, 9))]
    assert [tensor.datatype for tensor in described.outputs] == ["FP32"]


async def test_a_version_of_mlflow_without_a_signature_or_without_files_is_told_of(url: str, mlflow: Mlflow):
    mlflow.post("registered-models/create", name="bare")
    mlflow.new_version("bare", "flavors: {}\n")
    mlflow.post("registered-models/alias", name="bare", alias="challenger", version="1")
    bare = MlflowRegistry(spec(url, "bare"), None)
    offered = await bare.offered()

    assert offered is not None
    with pytest.raises(SchemaNotTold, match="no signature"):
        await bare.described(offered)
    with pytest.raises(SourceAway, match="version 9 was not sent"):
        await bare.described(offered._replace(number="9"))
    await bare.close()


async def test_mlflows_own_webhook_is_believed_and_has_the_label_looked_at(url: str, mlflow: Mlflow):
    mlflow.post("registered-models/create", name="hooked")
    mlflow.new_version("hooked", MLMODEL)
    woken = asyncio.Event()
    async with webhook_port(
        "127.0.0.1", 0, [WebhookSecret("mlflow", "another"), WebhookSecret("mlflow", SECRET)], woken.set
    ) as port:
        event = {"entity": "MODEL_VERSION_ALIAS", "action": "CREATED"}
        mlflow.post("webhooks", name="understudy", url=f"http://127.0.0.1:{port}/", events=[event], secret=SECRET)
        async with asyncio.timeout(60):
            while not woken.is_set():  # which webhooks there are is read anew each second
                mlflow.post("registered-models/alias", name="hooked", alias="challenger", version="1")
                await asyncio.sleep(0.5)
