"""What the operator console works with: the stores of its questions and acts, and the look-up of keys."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from understudy.adapters.postgres.registry.key_lookup import PostgresKeyLookup
from understudy.bootstrap.session import Session
from understudy.ports.registry.key_lookup import KeyLookup
from understudy.settings import Settings

ANSWER_SECONDS = 10.0
"""Longest time that Postgres has for one question to the log or to outcomes."""


class ConsoleParts(NamedTuple):
    """What a console process has open; no connection outlives its question."""

    session: Session
    """For pages."""
    acts: Session
    """For acts, which must not get a connection that pages share."""
    keys: KeyLookup
    environment: str
    """This installation's name, by which its alerts are found."""


@asynccontextmanager
async def open_console(settings: Settings) -> AsyncIterator[ConsoleParts]:
    """Open a console's parts for one event loop; no connection is made before the first question.

    It reads and acts under the login of the control plane, and looks keys up under that of ``DATABASE_URL``: as a proxy
    does, since no role may do both.
    """
    seconds = settings.database_timeout_seconds
    keys = PostgresKeyLookup(settings.database_url.get_secret_value(), timeout_seconds=seconds)
    async with (
        Session(settings.control_url, timeout_seconds=seconds, answer_seconds=ANSWER_SECONDS) as session,
        Session(settings.control_url, timeout_seconds=seconds) as acts,
    ):
        yield ConsoleParts(session, acts, keys, settings.environment)
