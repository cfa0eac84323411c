"""The client that is awaited."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Self

import httpx2

from understudy.client.answers import BatchAnswer, Prediction, Ranking, Receipt, StoredOutcomes
from understudy.client.calls import Call, batch_calls, outcome_calls, predict_call, rank_call, receipt_call
from understudy.client.connection import DEFAULT_SECONDS, Connection, lower_names, request_headers, with_part
from understudy.client.given import Entity, Id, Outcome, Table, Treatment
from understudy.client.problems import Answer, ProxyAway, away, late, understood
from understudy.client.retries import Attempts, Retries, seconds_of, seconds_of_call
from understudy.client.tables import Row
from understudy.errors import UnderstudyError


class AsyncClient:
    """Calls a proxy over kept connections; for one event loop. Use it as a context manager, or close it.

    Args:
        url: ``http://host:port`` or ``https://host:port``; by default ``UNDERSTUDY_PROXY_URL`` of the environment.
        key: ``<id>.<secret>``; by default ``UNDERSTUDY_CREDENTIAL`` of the environment, and none where that is not set.
        timeout_seconds: Longest time of a method, all its attempts and waits included; each method can have its own.
        retries: How often a call is made that the server asks to be made again.
        sleep: Waits so many seconds.

    Entities, treatments and outcomes may be rows and whole frames of pandas and polars as well; what is ambiguous is a
    ``TypeError`` or ``ValueError`` that says what is expected, and nothing is sent.

    Every method raises the leaf of ``understudy.errors`` that the proxy's problem names, ``DeadlineExceeded`` when its
    time is over, also before the call, and :class:`ProxyAway` when no proxy answers.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout_seconds: float = DEFAULT_SECONDS,
        retries: Retries | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._connection = Connection.of(url, key)
        self._timeout_seconds = seconds_of(timeout_seconds)
        self._retries = Retries.of(retries)
        self._sleep = sleep
        self._loop: asyncio.AbstractEventLoop | None = None
        self._http = httpx2.AsyncClient(timeout=self._timeout_seconds, **self._connection.options())

    def __repr__(self) -> str:
        return f"AsyncClient({self._connection.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def predict(
        self,
        model: str,
        entity: Entity | Row,
        *,
        version: str | int | None = None,
        timeout_seconds: float | None = None,
    ) -> Prediction:
        """Return one prediction; ``version`` asks that one, whatever the policy says (scope ``operate``)."""
        said = await self._make(predict_call(model, entity, version), timeout_seconds)
        return self._connection.read(Prediction.read, said)

    async def predict_batch(
        self, model: str, entities: Iterable[Entity | Row] | Table, *, timeout_seconds: float | None = None
    ) -> BatchAnswer:
        """Return what became of each entity; each 256 of them are one call, which has the time-out for itself."""
        said = [await self._make(call, timeout_seconds) for call in batch_calls(model, entities)]
        return self._connection.read(BatchAnswer.read, said)

    async def rank(
        self,
        model: str,
        entity: Entity | Row,
        treatments: Iterable[Treatment | Row] | Table,
        *,
        top_k: int | None = None,
        version: str | int | None = None,
        timeout_seconds: float | None = None,
    ) -> Ranking:
        """Return the scores of treatments for an entity, or with ``top_k`` so many of the best."""
        said = await self._make(rank_call(model, entity, treatments, top_k, version), timeout_seconds)
        return self._connection.read(Ranking.read, said)

    async def receipt(
        self, model: str, entity_id: Id, *, category: str | None = None, timeout_seconds: float | None = None
    ) -> Receipt:
        """Return which version answers an entity, and why, without a prediction (scope ``read``)."""
        said = await self._make(receipt_call(model, entity_id, category), timeout_seconds)
        return self._connection.read(Receipt.read, said)

    async def send_outcomes(
        self, events: Iterable[Outcome | Row] | Table, *, timeout_seconds: float | None = None
    ) -> StoredOutcomes:
        """Store outcomes (scope ``outcomes``); each 1,000 of them are one call, which has the time-out for itself.

        After an error send all of them again: an event counts once.
        """
        said = [await self._make(call, timeout_seconds) for call in outcome_calls(events)]
        return self._connection.read(StoredOutcomes.read, said)

    async def _make(self, call: Call, timeout_seconds: float | None) -> Mapping[str, Any]:
        self._keep_to_one_loop()
        seconds = seconds_of_call(timeout_seconds, self._timeout_seconds)
        attempts = Attempts(self._retries, seconds, time.monotonic(), random.random)
        while True:
            try:
                return (await self._attempt(call, attempts.remaining(time.monotonic()))).document
            except (UnderstudyError, ProxyAway) as problem:
                wait = attempts.wait_after(problem, time.monotonic())
            await self._sleep(wait)

    def _keep_to_one_loop(self) -> None:
        """Remember the event loop that the connections belong to.

        Raises:
            RuntimeError: The client is used in another one.
        """
        running = asyncio.get_running_loop()
        self._loop = self._loop or running
        if self._loop is not running:
            raise RuntimeError(
                "this AsyncClient belongs to another event loop: make one in each, such as in each asyncio.run, by "
                "'async with AsyncClient() as client'; or use Client, which needs none"
            )

    async def _attempt(self, call: Call, seconds: float) -> Answer:
        headers = request_headers(seconds, has_body=call.body is not None)
        url, body = f"{self._connection.url}{call.path}", bytearray()
        called = f"{call.method} {url.partition('?')[0]}"
        try:
            async with (
                asyncio.timeout(seconds),
                self._http.stream(call.method, url, content=call.body, headers=headers, timeout=seconds) as response,
            ):
                async for part in response.aiter_bytes():
                    body = with_part(body, part)
                return understood(response.status_code, lower_names(response.headers), bytes(body))
        except (TimeoutError, httpx2.TimeoutException):
            raise late(seconds, called) from None
        except ProxyAway as problem:
            problem.called = called
            raise
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as problem:
            raise away(problem, called) from None
