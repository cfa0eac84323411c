"""Logged calls as they are sent to another version's model servers: past the cache, and nothing of them is logged."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import orjson

from understudy.core.experiments.logged_calls import adapt_inputs, answer_of
from understudy.core.requests.predict import PredictRequest
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.outputs import Prediction, predictions_of
from understudy.core.schema.tensors import Row
from understudy.errors import InputInvalid, ServingError
from understudy.ports.upstream.model_backend import ModelBackend

SENDING_SECONDS = 4.0
"""For all calls that are sent again: other rollouts wait as long."""
CONCURRENCY = 8


class Sent(NamedTuple):
    """What came of calls that were sent again."""

    scores: tuple[float | None, ...]
    """In their order; ``None`` where there was no score in time."""
    problem: str
    """Why some have none; empty where all have one."""


def row_of(inputs: str, champion: ModelVersion, version: ModelVersion) -> Row | None:
    """Return a version's row for the logged inputs of a champion's call; ``None`` where not all of them were logged."""
    logged = orjson.loads(inputs)
    if not isinstance(logged, dict):
        return None
    adapted = adapt_inputs(version.input_schema, champion.input_schema, logged)
    if adapted.unknown:
        return None
    try:
        return PredictRequest("", adapted.values).assemble(version, None).row
    except InputInvalid:
        return None


async def send_again(
    version: ModelVersion, backend: ModelBackend, rows: Sequence[Row | None], seconds: float = SENDING_SECONDS
) -> Sent:
    """Send each call by itself, as a proxy would that has one at a time, until the time is over."""
    scores: list[float | None] = [None] * len(rows)
    failed: list[str] = []

    def take(place: int, found: Prediction | ServingError) -> None:
        answer = answer_of(found.json, found.score) if isinstance(found, Prediction) else None
        if answer is None or answer.score is None or answer.label is not None:
            failed.append("an answer without a score" if isinstance(found, Prediction) else str(found))
        else:
            scores[place] = answer.score

    await _send(version, backend, rows, seconds, take)
    late = sum(row is not None and scores[place] is None for place, row in enumerate(rows)) - len(failed)
    why = [f"{late} calls were not answered within {seconds:g} s"] if late else []
    why += [f"{len(failed)} failed, the first with: {failed[0]}"] if failed else []
    return Sent(tuple(scores), "; ".join(why))


async def answers_again(
    version: ModelVersion, backend: ModelBackend, rows: Sequence[Row], seconds: float = SENDING_SECONDS
) -> list[bytes | None]:
    """Send calls as :func:`send_again` does, and return the JSON text of each answer; ``None`` where none came."""
    found: list[bytes | None] = [None] * len(rows)

    def take(place: int, said: Prediction | ServingError) -> None:
        found[place] = said.json if isinstance(said, Prediction) else None

    await _send(version, backend, rows, seconds, take)
    return found


async def _send(
    version: ModelVersion,
    backend: ModelBackend,
    rows: Sequence[Row | None],
    seconds: float,
    take: Callable[[int, Prediction | ServingError], None],
) -> None:
    waiting = iter([(place, row) for place, row in enumerate(rows) if row is not None])

    async def work() -> None:
        for place, row in waiting:
            try:
                tensor = await backend.infer([row], min(version.timeout_seconds, seconds))
                (found,) = predictions_of(version.output_schema, tensor, 1, batch=version.input_schema.batch)
            except ServingError as problem:
                take(place, problem)
                continue
            take(place, found)

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as workers:
            for _ in range(CONCURRENCY):
                workers.create_task(work())
