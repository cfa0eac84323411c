"""A team's own FastAPI service, run by uvicorn, behind a declared JSON mapping."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
import uvicorn
from builders import a_version
from contract.servers import eventually
from fastapi import FastAPI
from pydantic import BaseModel

from understudy.adapters import migrations
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.model_servers.connect import connect, examine
from understudy.core.schema.codec import join_bytes_elements
from understudy.errors import BackendUnavailable, BadAnswer

INPUTS = {
    "features": [{"name": "amount", "dtype": "float32"}, {"name": "country", "dtype": "string"}],
}
BACKEND = {"path": "/score", "inputs": "$.payments[*]", "output": "$.results[*].risk", "body": {"explain": False}}


class Payment(BaseModel):
    amount: float
    country: str


class Asked(BaseModel):
    payments: list[Payment]
    explain: bool


def fraud_service() -> FastAPI:
    app = FastAPI()

    @app.post("/score")
    def score(asked: Asked) -> dict[str, Any]:
        return {
            "results": [{"risk": one.amount / 100, "country": one.country} for one in asked.payments],
            "model": "v7",
        }

    return app


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical", timeout_keep_alive=0))

    async def is_started() -> bool:
        return server.started

    running = asyncio.create_task(server.serve())
    try:
        assert await eventually(is_started, 20)
        yield f"127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await running


def version_at(endpoint: str, **changed: Any) -> Any:
    return a_version(
        "1",
        protocol="json",
        endpoints=[endpoint],
        input_schema=INPUTS,
        output_schema={"min": 0, "max": 1},
        backend=BACKEND | changed,
    )


def a_payment(amount: float, country: str) -> tuple[bytes, ...]:
    return struct.pack("<f", amount), join_bytes_elements([country.encode()])


async def test_a_service_gets_its_own_documents_in_batches_and_its_scores_are_read():
    async with served(fraud_service()) as endpoint:
        backend = connect(version_at(endpoint))
        tensor = await backend.infer([a_payment(25, "de"), a_payment(50, "fr"), a_payment(12.5, "ö")], 10)
        (seen,) = await examine(backend, 10)
        is_ready = await backend.ready(10)
        # uvicorn closes each connection as soon as it is idle.
        after = [await backend.infer([a_payment(75, "de")], 10) for _ in range(20)]
        await backend.close()

    assert tensor.values.tolist() == [0.25, 0.5, 0.125]
    assert [tensor.values.tolist() for tensor in after] == [[0.75]] * 20
    assert (seen.problem, is_ready) == ("", True)


@pytest.mark.parametrize(
    ("changed", "kind", "why"),
    [
        ({"body": {}}, BadAnswer, "refused the call with HTTP 422"),
        ({"path": "/scores"}, BackendUnavailable, "HTTP 404"),
        (
            {"output": "$.results[*].score"},
            BadAnswer,
            r"nothing at \$\.results\[\*\]\.score, which backend.output names",
        ),
    ],
)
async def test_a_mapping_that_does_not_fit_the_service_is_named_and_the_services_words_are_kept(changed, kind, why):
    async with served(fraud_service()) as endpoint:
        backend = connect(version_at(endpoint, **changed))
        with pytest.raises(kind, match=why) as caught:
            await backend.infer([a_payment(25, "de")], 10)
        await backend.close()

    assert caught.value.said in ("body.explain: Field required", "Not Found", "")


@pytest.mark.old_schema
async def test_a_schema_below_keeps_versions_over_http_and_takes_no_new_ones(
    database: asyncpg.Connection, database_url: str
):
    register = (
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, protocol)"
        " VALUES ('payments', $1, 'a', 'fastapi', '{}', $2)"
    )
    for number, protocol in enumerate(("oip-http", "tfserving-http", "mlflow", "json")):
        await database.execute(register, str(number), protocol)

    await migrations.downgrade(database_url, "0033")
    with pytest.raises(asyncpg.CheckViolationError, match="modelversion_protocol_check"):
        await database.execute(register, "new", "json")
    await database.execute(register, "old", "oip")
    await migrations.upgrade(database_url)
    await database.execute(register, "new", "json")

    assert await database.fetchval("SELECT count(*) FROM ModelVersion WHERE protocol NOT IN ('oip')") == 5
