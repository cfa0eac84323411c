"""What the control plane works with, opened for the length of one call."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import NamedTuple

from understudy.bootstrap.prediction_log.lake_reads import lake_place_of
from understudy.bootstrap.registering.validated_version import AskServers
from understudy.bootstrap.session import Session
from understudy.bootstrap.upstream.backends import try_version, validate_version, warm_up_probe
from understudy.core.rollout.state import WarmUpResult
from understudy.core.routing.policy import ModelVersion
from understudy.ports.upstream.model_backend import ServerSeen
from understudy.rollout.warm_up.warm_up import WarmUpProbe
from understudy.settings import Settings

ANSWER_SECONDS = 25.0
"""Longest time that Postgres has for one question to the log."""


class Control(NamedTuple):
    """Opens what calls work with. Nothing is open between two calls, and nothing is shared by them."""

    parts: Callable[[], AbstractAsyncContextManager[Session]]
    probe: Callable[[], AbstractAsyncContextManager[WarmUpProbe]]
    challenger_budget_ratio: float
    """The challenger's share of a call's deadline."""
    try_version: Callable[[ModelVersion], Awaitable[tuple[tuple[ServerSeen, ...], WarmUpResult | None]]]
    """Asks a version's model servers, as callers would; in the event loop of predictions."""
    validate_version: AskServers
    """Asks them what an agent would; in the same event loop."""


def control_of(settings: Settings) -> Control:
    """Return the openers; they open nothing before they are called."""
    return Control(
        partial(_session, settings),
        partial(_open_probe, settings),
        settings.challenger_budget_ratio,
        partial(try_version, settings),
        partial(validate_version, settings),
    )


def _session(settings: Settings) -> Session:
    seconds = settings.database_timeout_seconds
    lake = lake_place_of(settings)
    return Session(settings.control_url, timeout_seconds=seconds, answer_seconds=ANSWER_SECONDS, lake=lake)


@asynccontextmanager
async def _open_probe(settings: Settings) -> AsyncIterator[WarmUpProbe]:
    async with _session(settings) as session:
        yield warm_up_probe(settings, session.policies)
