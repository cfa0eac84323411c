"""Asyncio tasks of calls: whether this one was cancelled, and the failures of those whose callers have gone."""

import asyncio
from typing import Any


def is_cancelled() -> bool:
    """Whether this task was cancelled; gRPC also raises ``CancelledError`` when a channel closes under a call."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def retrieve_exception(task: "asyncio.Task[Any]") -> None:
    """Keep asyncio from reporting the failure of a task whose callers have gone."""
    if not task.cancelled():
        task.exception()
