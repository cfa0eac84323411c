"""What replays logged inputs, opened for the length of a command."""

import time
from collections.abc import Callable

from understudy.adapters.postgres.history import PostgresPredictionHistory
from understudy.adapters.postgres.registry import PostgresRegistry
from understudy.bootstrap.backends import connector_of
from understudy.experiments.log_replay import ReplayFinding, ReplayWanted, question_of, replay_calls
from understudy.settings import Settings

ANSWER_SECONDS = 60.0
"""Longest time that Postgres has for the question to the log: somebody waits for it."""


async def replay_log(settings: Settings, wanted: ReplayWanted, on_calls: Callable[[int, int], None]) -> ReplayFinding:
    """Replay; raises as :func:`understudy.experiments.log_replay.question_of` and ``replay_calls``.

    Args:
        settings: Of this process.
        wanted: What is asked for.
        on_calls: Called with how many calls are over, of how many.
    """
    url = settings.database_url.get_secret_value()
    registry = PostgresRegistry(url, timeout_seconds=settings.database_timeout_seconds)
    try:
        question = await question_of(registry, wanted)
    finally:
        await registry.close()
    history = PostgresPredictionHistory(url, timeout_seconds=min(ANSWER_SECONDS, wanted.within_seconds))
    return await replay_calls(question, history, connector_of(settings), time.monotonic, on_calls)
