"""SageMaker's own client (boto3), unmodified but for its address, against the proxy's server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import boto3
import orjson
import pytest
import uvicorn
from botocore.exceptions import ClientError

from understudy.entrypoints.proxy.api.predict_route import App
from understudy.entrypoints.proxy.processes.uvicorn_process import uvicorn_options
from understudy.settings import Settings

BODY = orjson.dumps({"instances": [{"age": 40, "income": 2}, {"age": 30, "income": 1}]})
Invoke = Callable[..., Any]


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[str]:
    options = {**uvicorn_options(Settings()), "lifespan": "off"}
    server = uvicorn.Server(uvicorn.Config(app, port=0, **options))
    task = asyncio.create_task(server._serve())  # noqa: SLF001 - serve() takes the signals of this process
    while not server.started:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await task


@asynccontextmanager
async def calling(app: App, token: str | None = None) -> AsyncIterator[Invoke]:
    async with serving(app) as address:
        client = boto3.client(
            "sagemaker-runtime",
            endpoint_url=address,
            region_name="eu-central-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
            aws_session_token=token,
        )

        async def invoke(**options: Any) -> Any:
            return await asyncio.to_thread(lambda: client.invoke_endpoint(**options))

        yield invoke
        client.close()


async def test_its_calls_are_answered_by_the_model_that_the_endpoint_names(start):
    proxy = await start()

    async with calling(proxy.app) as invoke:
        answer = await invoke(EndpointName="visits", Body=BODY, ContentType="application/json")
        as_csv = await invoke(
            EndpointName="many",
            TargetModel="visits",
            Body=b"40,2\n30,1\n",
            ContentType="text/csv",
            Accept="text/csv",
            CustomAttributes="entity_id=u1",
            InferenceId="mine",
        )
        bare = await invoke(EndpointName="visits", Body=BODY)

    assert orjson.loads(answer["Body"].read()) == orjson.loads(bare["Body"].read()) == {"predictions": [21.0, 15.5]}
    assert (answer["InvokedProductionVariant"], answer["ContentType"]) == ("1", "application/json")
    assert (as_csv["Body"].read(), as_csv["ContentType"]) == (b"21.0\n15.5\n", "text/csv; charset=utf-8")
    assert [row.entity_id for row in proxy.spool.rows][2:4] == ["u1", "u1"]


async def test_its_errors_have_the_code_and_the_sentence(start):
    proxy = await start()

    async with calling(proxy.app) as invoke:
        with pytest.raises(ClientError) as problem:
            await invoke(EndpointName="visits", Body=b'{"instances": [[1, "x"]]}', ContentType="application/json")

    found = problem.value.response
    assert found["ResponseMetadata"]["HTTPStatusCode"] == 422
    assert found["Error"]["Code"] == "E101"
    assert "/instances/0/1" in found["Error"]["Message"]


async def test_its_session_token_is_our_key_and_what_it_signs_is_none(start):
    proxy = await start(auth=True)

    async with calling(proxy.app, "visitor.secret") as invoke:
        answer = await invoke(EndpointName="visits", Body=BODY)
    assert orjson.loads(answer["Body"].read()) == {"predictions": [21.0, 15.5]}
    async with calling(proxy.app, "IQoJb3JpZ2luX2VjE") as invoke:
        with pytest.raises(ClientError, match="E401"):
            await invoke(EndpointName="visits", Body=BODY)
