"""The predict path as the seeds code it, on the stack that they name: what a plain reading of them costs.

FastAPI and pydantic models in and out, the policy cached in the process, the bucket from md5's hex digits, SHA-256 of
sorted JSON, a call of its own to the model server with the values one by one, an ORM object and a commit for each row,
and ``labels()`` at each count. Nothing is slower than it reads: connections are kept and pooled, the loop is uvloop,
and everything waits asynchronously. Its inputs are checked against the schema by a model made once.
"""

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import grpc.aio
import uvicorn
from fastapi import FastAPI
from prometheus_client import Counter, Histogram
from pydantic import BaseModel
from sqlalchemy import JSON, BigInteger, DateTime, Integer, String
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from loadtests.plain_body import FEATURES, Body, bucket_of, digest_of
from loadtests.stub_model import OUTPUT
from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_oip_pb2 as oip

_POOL = 20
_CALL_SECONDS = 0.5
_REQUESTS = Counter("seed_requests", "Predict calls", ["model", "version", "role"])
_SECONDS = Histogram("seed_seconds", "Duration of a predict call", ["model", "version"])


class Base(DeclarativeBase):
    """The seed's tables."""


class PredictionLog(Base):
    """The seed's columns, and the key that the partitioned table has."""

    __tablename__ = "predictionlog"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=True)
    model_version_id: Mapped[int] = mapped_column(BigInteger)
    entity_id: Mapped[str] = mapped_column(String(255))
    input_hash: Mapped[str] = mapped_column(String(64))
    prediction: Mapped[Any] = mapped_column(JSON)
    latency_ms: Mapped[int] = mapped_column(Integer)
    predicted_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class Answer(BaseModel):
    """Its answer."""

    prediction: dict[str, float]
    model: str
    version: str
    role: str


def make_app(database_url: str, version_id: int, model_port: int) -> FastAPI:
    """Return the application of one model."""
    engine = create_async_engine(database_url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=_POOL)
    session = async_sessionmaker(engine, expire_on_commit=False)
    policy = {"champion_version": version_id, "challenger_version": None, "challenger_weight": 10}
    path = methods.oip_method(methods.OIP_SERVICE, methods.OIP_MODEL_INFER)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{model_port}") as channel:
            app.state.infer = channel.unary_unary(
                path,
                request_serializer=oip.ModelInferRequest.SerializeToString,
                response_deserializer=oip.ModelInferResponse.FromString,
            )
            yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/models/{model}/predict")
    async def predict(model: str, request: Body) -> Answer:
        started = time.time()
        bucket = bucket_of(model, request.entity_id)
        challenger = policy["challenger_version"]
        weight = policy["challenger_weight"]
        assert weight is not None
        version = challenger if challenger is not None and bucket < weight else policy["champion_version"]
        values = request.inputs.model_dump()
        digest = digest_of(values)
        message = oip.ModelInferRequest(model_name=model, model_version="1")
        tensor = message.inputs.add(name="input", datatype="FP32", shape=[1, len(FEATURES)])
        tensor.contents.fp32_contents.extend(values[name] for name in FEATURES)
        answer = await app.state.infer(message, timeout=_CALL_SECONDS)
        assert answer.outputs[0].name == OUTPUT
        score = _floats(answer.raw_output_contents[0])[1]
        prediction = {"score": score}
        async with session() as opened:
            row = PredictionLog(
                model_version_id=version,
                entity_id=request.entity_id,
                input_hash=digest,
                prediction=prediction,
                latency_ms=int((time.time() - started) * 1000),
                predicted_at=datetime.now(UTC),
            )
            opened.add(row)
            await opened.commit()
        _REQUESTS.labels(model=model, version="1", role="champion").inc()
        _SECONDS.labels(model=model, version="1").observe(time.time() - started)
        return Answer(prediction=prediction, model=model, version="1", role="champion")

    return app


def _floats(content: bytes) -> list[float]:
    return memoryview(content).cast("f").tolist()  # type: ignore[return-value]


if __name__ == "__main__":
    port, url, champion, stub = sys.argv[1:]
    uvicorn.run(make_app(url, int(champion), int(stub)), port=int(port), loop="uvloop", access_log=False)
