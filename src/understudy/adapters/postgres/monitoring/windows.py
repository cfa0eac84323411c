"""``WindowLog`` over ``PredictionWindow``, which the proxies' log shippers write."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf
from typing import Any

import asyncpg
import structlog

from understudy.adapters.postgres.connections.connection import SessionPerCall
from understudy.core.routing.policy import Role
from understudy.core.windows.window import NOT_OF_SLICES, Window, WindowKey, window_from_json
from understudy.ports.monitoring.window_log import (
    BLOCK_SECONDS,
    MARKED_SECONDS,
    STEP_SECONDS,
    LatestWindows,
    Marks,
    window_block_start,
)

_log = structlog.get_logger(__name__)

_NAME_CHARACTERS = 100
# In the order of WindowKey, then the counts.
_COLUMNS = """
    shipper, epoch, model_version_id, role, %s, policy_generation,
    extract(epoch FROM window_start)::bigint AS start,
    CASE WHEN jsonb_typeof(counts) = 'object' THEN counts - '{%s}'::text[] ELSE counts END AS counts
"""
_OWN_ID, _STORED_ID = "$1::bigint AS rollout_id", "rollout_id"
_NO_SLICES, _SLICES_ALONE = "slices", ",".join(NOT_OF_SLICES)
"""What of the counts is not read: Postgres leaves it out, since parsing it takes as long as all else."""
_ORDER = "ORDER BY window_start, model_version_id, role, policy_generation, shipper, epoch"
# Versions beside further arms are logged under their guard's id: each one's row has its windows and the champion's.
# The last condition is written as in the partial index, so that the planner uses it.
_WHERE_ROLLOUT = """
    WHERE rollout_id = coalesce((SELECT guard_id FROM rollout WHERE id = $1), $1::bigint)
      AND model_version_id = ANY (coalesce(
          (SELECT ARRAY[champion_version, challenger_version] FROM rollout WHERE id = $1 AND guard_id IS NOT NULL),
          ARRAY[model_version_id]))
      AND rollout_id <> 0
"""
_OF_ROLLOUT = f"""
    SELECT {_COLUMNS % (_OWN_ID, _NO_SLICES)} FROM predictionwindow
    {_WHERE_ROLLOUT} AND window_start >= to_timestamp($2) AND window_start < to_timestamp($3) {_ORDER}
"""  # noqa: S608 - constants
_SLICES_OF_ROLLOUT = f"""
    SELECT {_COLUMNS % (_OWN_ID, _SLICES_ALONE)} FROM predictionwindow
    {_WHERE_ROLLOUT} AND window_start >= to_timestamp($2) AND window_start < to_timestamp($3) {_ORDER}
"""  # noqa: S608 - constants
_FIRST = f"""
    SELECT extract(epoch FROM min(window_start))::bigint FROM predictionwindow
    {_WHERE_ROLLOUT} AND window_start >= to_timestamp($2) AND window_start < to_timestamp($3)
"""  # noqa: S608 - constants
# A replaced row has another xmin, the transaction that wrote it.
_MARKS = f"""
    SELECT floor(extract(epoch FROM window_start) / seconds)::bigint * seconds AS block,
           count(*) || ':' || sum(predictionwindow.xmin::text::bigint) AS mark
    FROM predictionwindow
    CROSS JOIN LATERAL (
        SELECT CASE WHEN window_start < to_timestamp($4) THEN $5::int ELSE $6::int END AS seconds) AS marked
    {_WHERE_ROLLOUT} AND window_start >= to_timestamp($2) AND window_start < to_timestamp($3) GROUP BY 1
"""  # noqa: S608 - constants
_OF_VERSIONS = f"""
    SELECT {_COLUMNS % (_STORED_ID, _NO_SLICES)} FROM predictionwindow
    WHERE model_version_id = ANY ($1) AND window_start >= to_timestamp($2) AND window_start < to_timestamp($3) {_ORDER}
"""  # noqa: S608 - constants
# Windows within a rollout's planned time are kept for the analysis; beyond it, while the rollout waits for an operator,
# the age of all windows applies. In whole days: after a deletion a window cache reads the whole rollout again.
_FORGET = """
    DELETE FROM predictionwindow WHERE ctid = ANY (ARRAY(
        SELECT w.ctid FROM predictionwindow w LEFT JOIN (
            SELECT DISTINCT ON (coalesce(guard_id, id)) coalesce(guard_id, id) AS id,
                date_trunc('day', to_timestamp($1) - make_interval(secs =>
                CASE WHEN jsonb_typeof(plan -> 'steps') = 'array' AND jsonb_typeof(plan -> 'maximum_seconds') = 'number'
                     THEN jsonb_array_length(plan -> 'steps') * (plan ->> 'maximum_seconds')::float8 ELSE 0 END
                + CASE WHEN jsonb_typeof(plan -> 'keep_warm_seconds') = 'number'
                       THEN (plan ->> 'keep_warm_seconds')::float8 ELSE 0 END), 'UTC') AS begins
            FROM rollout WHERE finished_at IS NULL
        ) AS open ON open.id = w.rollout_id
        WHERE w.window_start < to_timestamp($1) AND (open.id IS NULL OR w.window_start < open.begins) LIMIT $2))
"""


Parsed = dict[tuple[Any, ...], Window]
"""Windows by the row that each was parsed from."""
_WINDOWS_KEPT = 4_096
"""Of so many, some ten kilobytes each, it is known from one tick to the next what their rows say."""


class PostgresWindowLog(SessionPerCall):
    """Implements ``ports.WindowLog``.

    The newest windows of a rollout are read at each tick, and most of them have not changed: of a row that is the same
    the window is the same object.
    """

    def __init__(
        self, database_url: str, *, timeout_seconds: float, on_unusable: Callable[[str, int], None] | None = None
    ) -> None:
        super().__init__(database_url, timeout_seconds=timeout_seconds, on_unusable=on_unusable)
        self._latest: dict[int, Parsed] = {}
        """The newest windows by rollout; those of the rollout that was read last are the last ones."""

    async def of_rollout(self, rollout_id: int, since: float = 0.0, until: float = inf) -> Sequence[Window]:
        return await self._fetch(_OF_ROLLOUT, rollout_id, since, until)

    async def slices_of_rollout(self, rollout_id: int, since: float, until: float) -> Sequence[Window]:
        return await self._fetch(_SLICES_OF_ROLLOUT, rollout_id, since, until)

    async def marks_of_rollout(self, rollout_id: int, since: int, until: int) -> Marks:
        async with self._snapshot() as connection:
            return await _marks(connection, rollout_id, since, until, growing=until)

    async def latest_of_rollout(self, rollout_id: int, since: int, settled: int) -> LatestWindows:
        rows: list[asyncpg.Record] = []
        async with self._snapshot() as connection:
            marks = await _marks(connection, rollout_id, since, settled, growing=window_block_start(settled))
            if marks.until == settled:
                rows = await connection.fetch(_OF_ROLLOUT, rollout_id, float(settled), inf)
        parsed = await self._usable(rows, self._latest.pop(rollout_id, {}))
        self._keep(rollout_id, parsed)
        return LatestWindows(list(parsed.values()), marks)

    async def of_versions(self, version_ids: Sequence[int], since: float, until: float) -> Sequence[Window]:
        return await self._fetch(_OF_VERSIONS, list(version_ids), since, until)

    async def forget(self, before: float, at_most: int) -> int:
        async with self._connection("old windows cannot be deleted") as connection:
            done: str = await connection.execute(_FORGET, before, at_most)
        return int(done.rpartition(" ")[2])

    async def _fetch(self, query: str, *arguments: object) -> list[Window]:
        async with self._connection("windows cannot be read") as connection:
            rows: list[asyncpg.Record] = await connection.fetch(query, *arguments)
        return list((await self._usable(rows, {})).values())

    async def _usable(self, rows: Sequence[asyncpg.Record], known: Parsed) -> Parsed:
        windows = await asyncio.to_thread(_windows, rows, known)
        self._left_out("PredictionWindow", len(rows) - len(windows))
        return windows

    def _keep(self, rollout_id: int, parsed: Parsed) -> None:
        self._latest[rollout_id] = parsed
        while len(self._latest) > 1 and sum(map(len, self._latest.values())) > _WINDOWS_KEPT:
            del self._latest[next(iter(self._latest))]

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[asyncpg.Connection]:
        async with (
            self._connection("windows cannot be read") as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield connection

    def _connection(self, what: str) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._session(what, "understudy-windows")


async def _marks(connection: asyncpg.Connection, rollout_id: int, since: int, until: int, *, growing: int) -> Marks:
    """Return the marks of blocks, and from ``growing`` on of steps."""
    first = await connection.fetchval(_FIRST, rollout_id, float(since), float(until))
    if first is None:
        return Marks({}, until)
    begin = max(since, window_block_start(first))
    until = min(until, begin + MARKED_SECONDS)
    lengths = (BLOCK_SECONDS, STEP_SECONDS)
    rows = await connection.fetch(_MARKS, rollout_id, float(begin), float(until), float(growing), *lengths)
    return Marks({row["block"]: row["mark"] for row in rows}, until)


def _windows(rows: Sequence[asyncpg.Record], known: Parsed) -> Parsed:
    """Parse rows that are not known; 50 µs each, so not on the event loop, which also renews the lease.

    Any login of a proxy writes these rows: what is no window is left out, counted in the log, and stops no verdict.
    """
    read: Parsed = {}
    unusable: Counter[tuple[str, str]] = Counter()
    for row in rows:
        values = tuple(row)
        try:
            read[values] = known.get(values) or _window(row)
        except ValueError as problem:
            unusable[row["shipper"][:_NAME_CHARACTERS], str(problem)[:_NAME_CHARACTERS]] += 1
    for (shipper, first_problem), count in unusable.most_common(1):
        _log.warning(
            "rollout.unusable_windows", table="PredictionWindow", rows=unusable.total(), shipper=shipper,
            of_shipper=count, problem=first_problem,
        )  # fmt: skip
    return read


def _window(row: asyncpg.Record) -> Window:
    shipper, epoch, version_id, role, rollout_id, generation, start, counts = row
    return window_from_json(WindowKey(shipper, epoch, version_id, Role(role), rollout_id, generation, start), counts)
