"""One entity in a lake, and its erasure, which may die at any call of its parts."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, closing
from typing import Any

from pyarrow import parquet

from understudy.adapters.lake.iceberg_table import IcebergTable
from understudy.adapters.lake.rewriting import IcebergRewrites
from understudy.adapters.postgres.prediction_log.entity_erasure import open_erasures
from understudy.adapters.postgres.prediction_log.lake_erasure import PostgresLakeErasureLedger
from understudy.retention.entity_eraser import EntityEraser, Result
from understudy.retention.lake_eraser import LakeEraser
from understudy.shipping.shared_spool import SharedSpool
from worlds.lake import Calls, Dying, Lake, some_rows

ENTITY = "customer-42-of-the-person"


def every_fifth(number: int) -> dict[str, Any]:
    return {"entity_id": ENTITY} if number % 5 == 0 else {}


async def ship(
    lake: Lake,
    version: int,
    numbers: Iterable[int],
    *,
    at: float | None = None,
    change: Callable[[int], dict[str, Any]] = every_fifth,
) -> None:
    """Ship rows, every fifth of which is the entity's."""
    spool = lake.spool()
    rows = some_rows(numbers, version, change)
    spool.append_all([row._replace(predicted_at=at or row.predicted_at) for row in rows])
    await lake.ship(SharedSpool(spool, 1).shelf_of(0))
    spool.close()


class Beside:
    """Stands in front of a part, and has something else happen before or after one of its calls, the first time."""

    def __init__(
        self,
        part: object,
        name: str,
        *,
        before: Callable[[], Awaitable[None]] | None = None,
        after: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._part = part
        self._name = name
        self._before = before
        self._after = after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if name != self._name:
            return found

        async def called(*args: Any, **named: Any) -> Any:
            before, self._before = self._before, None
            if before is not None:
                await before()
            result = await found(*args, **named)
            after, self._after = self._after, None
            if after is not None:
                await after()
            return result

        return called


@asynccontextmanager
async def an_eraser(
    lake: Lake,
    calls: Calls | None = None,
    patience_seconds: float = 20.0,
    url: str | None = None,
    in_front: Callable[[Any], Any] = lambda part: part,
) -> AsyncIterator[EntityEraser]:
    """Open what erases; ``in_front`` may put something in front of its ledger."""

    def dying(part: object) -> Any:
        return part if calls is None else Dying(part, calls)

    folder = lake.folder / "erasing"
    folder.mkdir(exist_ok=True)
    url = url or lake.url
    # One that dies at a call leaves its ledger as it is, and no connection of this process.
    with closing(IcebergTable(url, lake.location, endpoint=lake.endpoint, timeout_seconds=10)) as table:
        async with open_erasures(url, timeout_seconds=10) as ledger:
            in_lake = LakeEraser(
                ledger,
                in_front(dying(PostgresLakeErasureLedger(ledger))),
                dying(IcebergRewrites(table)),
                dying(lake.store),
                folder=folder,
                on_progress=lambda *_: None,
                patience_seconds=patience_seconds,
            )
            yield EntityEraser(ledger, None, {}, in_lake, folder=folder, on_progress=lambda *_: None)


async def forget(
    lake: Lake, model: str | None = None, calls: Calls | None = None, entity: str = ENTITY, **named: Any
) -> Result:
    async with an_eraser(lake, calls, **named) as eraser:
        return await eraser.run(model, entity, "request 118")


def bytes_with(lake: Lake, text: str) -> list[str]:
    """Return the files below the lake that have a text, decompressed where they are Parquet."""
    found = []
    for path in (lake.folder / "lake").rglob("*"):
        if path.suffix == ".parquet":
            if text in str(parquet.read_table(path).to_pylist()):
                found.append(path.name)
        elif path.is_file() and text.encode() in path.read_bytes():
            found.append(path.name)
    return found


def names_of(lake: Lake) -> Counter[str]:
    return Counter(row["entity_id"] for row in lake.rows().select(["entity_id"]).to_pylist())
