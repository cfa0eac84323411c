"""Reads a registry's database for analyses; nothing is written, whatever the login may do."""

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from understudy.bootstrap.session import Session
from understudy.core.durations import moment_seconds
from understudy.entrypoints.demo.running import read_running
from understudy.errors import NotRegistered, RegistryUnavailable
from understudy.frames.evidence_rows import EVIDENCE_COLUMNS, EVIDENCE_NUMBERS, EVIDENCE_TIMES, evidence_rows
from understudy.frames.experiment_rows import EXPERIMENT_COLUMNS, EXPERIMENT_NUMBERS, EXPERIMENT_TIMES, experiment_rows
from understudy.frames.rows import Rows
from understudy.ports.prediction_log.log_archive import WantedRows
from understudy.settings import Settings

T = TypeVar("T")
Moment = str | datetime | timedelta
"""So long ago (``7d`` or a ``timedelta``), or a moment: ``2026-11-20T13:00Z`` or a ``datetime`` with its zone."""
MAX_ROWS = 100_000
# What the champion answered in another version's place is a row of the champion: the assigned version is its cause.
_NEWEST_FIRST = """
    SELECT called.*,
           (SELECT v.version FROM modelversion AS v WHERE v.id = called.assigned_version_id) AS assigned_version
    FROM predictionlog AS called ORDER BY called.predicted_at DESC, called.id DESC
"""
_BEGINNING, _END = 0.0, 4_102_444_800.0
_TIMEOUT_SECONDS = 5.0


class Reader:
    """Reads logged calls, evidence and experiments of one database.

    Each call opens a connection of its own and closes it, in a thread of its own: notebooks run an event loop.

    Args:
        database_url: Of a login that may read, such as one with ``understudy_reader``. By default ``DATABASE_URL``,
            else that of a demo that runs in this folder or in one above it.

    Raises:
        RegistryUnavailable: There is none of them.
        pydantic.ValidationError: The environment cannot be used.
    """

    def __init__(self, database_url: str | None = None) -> None:
        self._database_url = database_url or _default_url()

    def log(
        self,
        model: str | None = None,
        *,
        since: Moment = "7d",
        until: Moment | None = None,
        limit: int = MAX_ROWS,
    ) -> Rows:
        """Return logged calls, newest first: the columns of ``PredictionLog`` without inputs, and names.

        The names are ``model``, ``version`` (which answered) and ``assigned_version`` (which should have); they differ
        where ``status`` is ``fallback``.

        Args:
            model: Only of this one; ``None``: of all.
            since: Only calls from then on.
            until: Only calls before then.
            limit: How many at most; ``is_complete`` says whether there are more.

        Raises:
            ValueError: A moment cannot be read.
            NotRegistered: There is no such model.
            RegistryUnavailable, MigrationNeeded, LoginNotAllowed: The log cannot be read.
        """
        wanted = _wanted(since, until, model)

        async def read(session: Session) -> Rows:
            if model is not None:
                await session.registry.show_model(model)  # says which models there are
            return await _asked(session, _NEWEST_FIRST, wanted, limit)

        return self._read(read)

    def query(
        self, sql: str, *, since: Moment | None = None, until: Moment | None = None, limit: int = MAX_ROWS
    ) -> Rows:
        """Return the answer to one SELECT over ``predictionlog``, in Postgres' SQL.

        Raises:
            QueryRefused: It is something else, or wrong.
            ValueError, RegistryUnavailable, MigrationNeeded, LoginNotAllowed: As :meth:`log`.
        """
        wanted = _wanted(since, until, None)
        return self._read(lambda session: _asked(session, sql, wanted, limit))

    def evidence(self, model: str, rollout_id: int | None = None) -> Rows:
        """Return what each verdict of a rollout rested on: one row for each check of each, oldest first.

        Args:
            model: Whose rollout.
            rollout_id: By default the model's newest one.

        Raises:
            NotRegistered: There is no such model, or it never had such a rollout.
            RegistryUnavailable, MigrationNeeded, LoginNotAllowed: As :meth:`log`.
        """

        async def read(session: Session) -> Rows:
            await session.registry.show_model(model)
            found = await session.rollouts.latest_id(model) if rollout_id is None else rollout_id
            view = await session.rollouts.view(found)
            if view.record.state.model_name != model:
                raise NotRegistered(f"{model} never had a rollout {found}")
            rows = evidence_rows(view.record, await session.rollouts.events(found))
            return Rows(EVIDENCE_COLUMNS, rows, numbers=EVIDENCE_NUMBERS, times=EVIDENCE_TIMES)

        return self._read(read)

    def experiments(self, model: str | None = None, *, limit: int = 1_000) -> Rows:
        """Return declared tests, the newest first: one row for each look that was taken, or one without a look.

        It takes no look itself, as ``understudy ab report`` does when one is due.

        Raises:
            NotRegistered: There is no such model.
            RegistryUnavailable, MigrationNeeded, LoginNotAllowed: As :meth:`log`.
        """
        _check_limit(limit)

        async def read(session: Session) -> Rows:
            if model is not None:
                await session.registry.show_model(model)
            labels = {version.id: version.version for version in await session.registry.list_versions(model)}
            found = await session.experiments.newest(model, limit + 1)
            rows = [row for record in found[:limit] for row in experiment_rows(record, labels)]
            is_complete = len(found) <= limit
            return Rows(EXPERIMENT_COLUMNS, rows, is_complete, numbers=EXPERIMENT_NUMBERS, times=EXPERIMENT_TIMES)

        return self._read(read)

    def _read(self, work: Callable[[Session], Awaitable[T]]) -> T:
        async def opened() -> T:
            async with Session(self._database_url, timeout_seconds=_TIMEOUT_SECONDS) as session:
                return await work(session)

        with ThreadPoolExecutor(1, "understudy-reader") as thread:
            return thread.submit(lambda: asyncio.run(opened())).result()


async def _asked(session: Session, sql: str, wanted: WantedRows, limit: int) -> Rows:
    _check_limit(limit)
    rows: list[tuple[Any, ...]] = []
    async with session.live_log.ask(sql, wanted) as found:
        columns, unseen = found.columns, found.unseen_rows
        async for row in found.rows:
            rows.append(tuple(_plain(value) for value in row))
            if len(rows) > limit:
                break
    if unseen:
        words = f"up to {unseen:,} rows of that time are in archived months, which only understudy log query reads"
        warnings.warn(words, stacklevel=2)
    return Rows(columns, rows[:limit], is_complete=len(rows) <= limit, unseen_rows=unseen)


def _plain(value: Any) -> Any:
    """Return a uuid as the text that a client's ``prediction_id`` is: else frames of both are joined to no rows."""
    return str(value) if isinstance(value, UUID) else value


def _check_limit(limit: object) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"limit={limit!r:.80}: expected a whole number, at least 1")
    if limit < 1:
        raise ValueError(f"limit={limit}: limit is at least 1")


def _wanted(since: Moment | None, until: Moment | None, model: str | None) -> WantedRows:
    now = time.time()
    return WantedRows(
        _BEGINNING if since is None else _seconds("since", since, now),
        _END if until is None else _seconds("until", until, now),
        None if model is None else (model,),
    )


def _seconds(name: str, moment: object, now: float) -> float:
    if isinstance(moment, timedelta):
        return now - moment.total_seconds()
    if isinstance(moment, str):
        try:
            return moment_seconds(moment, now)
        except ValueError as problem:
            raise ValueError(f"{name}={moment!r:.80}: {problem}") from None
    if not isinstance(moment, datetime):
        expected = "so long ago ('7d', a timedelta), or a moment as text or as a datetime with its zone"
        raise TypeError(f"{name}={moment!r:.80}: expected {expected}")
    if moment.tzinfo is None:
        raise ValueError(f"{name}={moment!r}: a datetime needs its zone: datetime(2026, 11, 20, tzinfo=UTC)")
    return moment.timestamp()


def _default_url() -> str:
    settings = Settings()
    if "database_url" in settings.model_fields_set:
        return settings.database_url.get_secret_value()
    for folder in _demo_folders(settings):
        running = read_running(folder)
        if running is not None:
            return str(running["database_url"])
    raise RegistryUnavailable(
        f"no DATABASE_URL, and no demo in {Path.cwd()} or a folder above it (looked for {settings.state_dir})",
        hint="Set DATABASE_URL, start understudy demo here, or name its state by UNDERSTUDY_STATE_DIR.",
    )


def _demo_folders(settings: Settings) -> Iterator[Path]:
    """Yield where a demo may run, the nearest first: Jupyter runs a notebook in the notebook's own folder."""
    yield settings.state_dir
    if "state_dir" not in settings.model_fields_set:
        yield from (above / settings.state_dir for above in Path.cwd().parents)
