"""What a login with the role ``understudy_eraser`` alone can do by itself, and what it cannot."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import asyncpg
import pytest
from worlds.archive import ids_seen
from worlds.erasure import ENTITY, assert_ledger_is_true, erase, log_of_customers, places_of

from rigs.faults.archive_worker import Moments, archive
from understudy.adapters.archive.folder import FolderArchive
from understudy.core.prediction_log.erasure import names_entity, replacing_key
from understudy.errors import ArchiveDiffers

THEIRS = "of-the-thief"
BEGIN = "SELECT id FROM understudy_begin_erasure(NULL, $1, 'x', 'cli')"
NAME = "SELECT understudy_name_erased_file($1, $2, $3, $4, $5)"
SWAP = "SELECT understudy_swap_erased_file($1, $2, $3, $4, $5, $6, $7, $8)"
PUT_BACK = "SELECT understudy_put_back_file($1, $2, $3)"
A_ROW_LONGER = len("erased-") + 32 - len(THEIRS)
NO_DIGEST = "0" * 64
NAMING = [
    ("erase customer-5.", "customer-5"),
    ("for John Smith of Berlin", "john smith"),
    ("request 2026-118", "customer-5"),
    ("request 2042", "42"),
    ("request 2026-42", "42"),
    ("order_42", "42"),
    ("a*b", "a*b"),
    ("aab", "a*b"),
    ("of é", "é"),
    ("", "42"),
]


class Kept(NamedTuple):
    """A file of the archive, and where it lies."""

    archive_id: int
    key: str
    path: Path


@pytest.fixture
def store(tmp_path: Path) -> FolderArchive:
    return FolderArchive(tmp_path / "archive")


@pytest.fixture
async def files(database: asyncpg.Connection, database_url: str, store: FolderArchive) -> list[Kept]:
    """Of two archived months, whose tables are dropped."""
    await log_of_customers(database)
    await archive(database_url, store, Moments("never", lambda: None))
    rows = await database.fetch("SELECT archive_id, key FROM LogArchiveFile ORDER BY archive_id, key")
    return [Kept(row["archive_id"], row["key"], store.root / row["key"]) for row in rows]


@pytest.fixture
async def eraser_url(database: asyncpg.Connection, database_url: str) -> AsyncIterator[str]:
    name = f"test_{uuid4().hex[:12]}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_eraser")
    yield f"postgresql://{name}:secret@{database_url.rpartition('@')[2]}"
    await database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.fixture
async def thief(eraser_url: str) -> AsyncIterator[asyncpg.Connection]:
    session = await asyncpg.connect(eraser_url, timeout=10)
    yield session
    await session.close(timeout=5)


async def swap(thief: asyncpg.Connection, erasure: int, kept: Kept, entity: str = THEIRS) -> None:
    """Have readers go to a file that was never written, by figures that fit the one that is there."""
    longer = A_ROW_LONGER + len(THEIRS) - len(entity)
    await thief.execute(NAME, erasure, entity, kept.archive_id, kept.key, replacing_key(kept.key, erasure))
    await thief.execute(SWAP, erasure, entity, kept.archive_id, kept.key, 1, longer, 1, f"{erasure:064d}")


# -- the ledger of the archive -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["predictionlog/a/b.parquet", "predictionlog/a-e7-e12.parquet", "predictionlog/-e.parquet"]
)
async def test_the_name_of_a_new_file_is_the_same_in_sql_and_in_python(database, key):
    assert await database.fetchval("SELECT understudy_replacing_key($1, 34)", key) == replacing_key(key, 34)


async def test_what_is_no_file_with_rows_has_no_name_in_sql_either(database):
    for key in ("predictionlog/a.json", ".parquet", "predictionlog/a.parquet\n", ""):
        assert await database.fetchval("SELECT understudy_replacing_key($1, 34)", key) is None
        with pytest.raises(ArchiveDiffers):
            replacing_key(key, 34)


async def test_a_file_is_replaced_by_the_one_that_is_named_after_it_and_the_erasure_alone(thief, files):
    erasure, (kept, *_, of_another_month) = await thief.fetchval(BEGIN, THEIRS), files

    for key in (
        "predictionlog/gone.parquet",
        of_another_month.key,
        replacing_key(kept.key, erasure + 1),
        replacing_key(of_another_month.key, erasure),
        None,
    ):
        with pytest.raises(asyncpg.CheckViolationError, match="is not replaced by"):
            await thief.execute(NAME, erasure, THEIRS, kept.archive_id, kept.key, key)


async def test_a_file_of_another_model_than_the_erasures_is_not_replaced(database, thief, files):
    kept = files[0]
    other = await database.fetchval(
        "SELECT model_name FROM ModelVersion"
        " WHERE model_name <> (SELECT model_name FROM LogArchiveFile WHERE key = $1)",
        kept.key,
    )
    erasure = await thief.fetchval("SELECT id FROM understudy_begin_erasure($2, $1, 'x', 'cli')", THEIRS, other)

    with pytest.raises(asyncpg.CheckViolationError, match="no such file"):
        await swap(thief, erasure, kept)


@pytest.mark.parametrize(
    "figures",
    [
        (0, 0, 1, NO_DIGEST),
        (1_000_000, 1_000_000 * A_ROW_LONGER, 1, NO_DIGEST),
        (1, A_ROW_LONGER + 1, 1, NO_DIGEST),
        (1, A_ROW_LONGER, 0, NO_DIGEST),
        (1, A_ROW_LONGER, 1, "0" * 63),
        (1, A_ROW_LONGER, 1, None),
        (None, None, None, None),
    ],
)
async def test_figures_that_do_not_fit_the_file_are_refused(database, thief, files, figures):
    erasure, kept = await thief.fetchval(BEGIN, THEIRS), files[0]
    await thief.execute(NAME, erasure, THEIRS, kept.archive_id, kept.key, replacing_key(kept.key, erasure))
    before = await database.fetch("SELECT * FROM LogArchiveFile ORDER BY key")

    with pytest.raises(asyncpg.CheckViolationError, match="do not fit"):
        await thief.execute(SWAP, erasure, THEIRS, kept.archive_id, kept.key, *figures)

    assert await database.fetch("SELECT * FROM LogArchiveFile ORDER BY key") == before


async def test_a_file_is_replaced_once_by_an_erasure(thief, files):
    erasure, kept = await thief.fetchval(BEGIN, THEIRS), files[0]
    await swap(thief, erasure, kept)

    with pytest.raises(asyncpg.CheckViolationError, match="is not replaced by"):
        await swap(thief, erasure, Kept(kept.archive_id, replacing_key(kept.key, erasure), kept.path))


# -- what is deleted ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entities", [(THEIRS,), (THEIRS, "of-a-thief-2")])
async def test_no_file_is_deleted_whose_place_has_none_and_the_owner_puts_it_back(
    database, database_url, *, thief, store, files, entities
):
    before, kept, now = await ids_seen(database_url), files[0], files[0]
    swaps = []
    for entity in entities:
        erasure = await thief.fetchval(BEGIN, entity)
        swaps.append((erasure, now))
        await swap(thief, erasure, now, entity)
        now = now._replace(key=replacing_key(now.key, erasure))

    results = [await erase(database_url, [store], entity=entity) for entity in (*entities, ENTITY)]
    there = kept.path.exists()
    for erasure, one in reversed(swaps):
        await database.execute(PUT_BACK, erasure, one.archive_id, one.key)
    last = [await erase(database_url, [store], entity=entity) for entity in (*entities, ENTITY)]

    assert there
    assert not any(result.is_finished for result in results)
    assert {left.why for left in results[0].left} == {
        f"{now.key} is not there as the ledger has it, so {kept.key} stays"
    }
    assert all(result.is_finished for result in last)
    assert await places_of(database, store.root) == []
    assert await ids_seen(database_url) == before
    await assert_ledger_is_true(database, store)


async def test_a_file_that_was_changed_since_it_was_written_keeps_the_one_before_it(database, eraser_url, store, files):
    """The run died when the ledger had the new file; then its bytes were others."""

    class DiedError(BaseException):
        pass

    def die() -> None:
        raise DiedError

    with pytest.raises(DiedError):
        await erase(eraser_url, [store], moments=Moments("after:swap_file", die))
    old, new = await database.fetchrow("SELECT old_key, new_key FROM EntityErasureFile")
    written = (store.root / new).read_bytes()
    neighbour = next(kept.path for kept in files if kept.key != old)
    (store.root / new).write_bytes(neighbour.read_bytes())

    first = await erase(eraser_url, [store])
    there = (store.root / old).exists()
    (store.root / new).write_bytes(written)
    second = await erase(eraser_url, [store])

    assert (first.is_finished, there) == (False, True)
    assert (second.is_finished, (store.root / old).exists()) == (True, False)
    await assert_ledger_is_true(database, store)


async def test_a_replacement_that_was_named_under_the_release_before_deletes_no_other_file(
    database, eraser_url, thief, store, files
):
    erasure, kept, other = await thief.fetchval(BEGIN, THEIRS), files[0], files[-1]
    await database.execute(
        "INSERT INTO EntityErasureFile VALUES ($1, $2, $3, $4)", erasure, kept.archive_id, kept.key, other.key
    )

    result = await erase(eraser_url, [store], entity=THEIRS)

    assert (result.is_finished, other.path.exists()) == (False, True)
    assert [left.why for left in result.left] == [f"{other.key!r} is not what takes the place of {kept.key}"]


async def test_what_was_replaced_is_kept_in_the_audit_with_who_replaced_it(database, eraser_url, store, files):
    digests = dict(await database.fetch("SELECT key, sha256 FROM LogArchiveFile"))
    sizes = {kept.key: kept.path.stat().st_size for kept in files}

    result = await erase(eraser_url, [store])

    rows = await database.fetch("SELECT * FROM EntityErasureSwap")
    assert len(rows) == result.erased.files > 0
    for row in rows:
        assert (row["old_byte_count"], row["old_sha256"]) == (sizes[row["old_key"]], digests[row["old_key"]])
        assert row["actor"] in eraser_url


async def test_only_the_owner_puts_a_file_back_and_only_one_that_was_replaced(database, thief, files):
    erasure, kept = await thief.fetchval(BEGIN, THEIRS), files[0]

    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await thief.execute(PUT_BACK, erasure, kept.archive_id, kept.key)
    with pytest.raises(asyncpg.CheckViolationError, match="no file that took the place"):
        await database.execute(PUT_BACK, erasure, kept.archive_id, kept.key)


# -- what is claimed ---------------------------------------------------------------------------------------------------

END = "SELECT understudy_end_erasure($1, $2)"
BESIDE = "SELECT understudy_erase_beside_log($1, $2)"


async def search(session: asyncpg.Connection, erasure: int, entity: str) -> None:
    """Erase an entity from every table, as the command does."""
    for month in await session.fetch("SELECT relname::text FROM pg_class WHERE relname ~ '^predictionlog_[0-9_]{7}$'"):
        await session.execute("SELECT understudy_erase_month($1, $2, $3)", erasure, entity, month[0])
    await session.execute(BESIDE, erasure, entity)


async def test_an_erasure_that_searched_nothing_is_not_finished(database, thief):
    await log_of_customers(database)
    erasure = await thief.fetchval(BEGIN, ENTITY)

    with pytest.raises(asyncpg.CheckViolationError, match="has not searched outcomes and dead letters, predictionlog_"):
        await thief.execute(END, erasure, ENTITY)
    await search(thief, erasure, ENTITY)
    await thief.execute(END, erasure, ENTITY)

    assert await places_of(database, None) == []
    assert await database.fetchval("SELECT finished_at IS NOT NULL FROM EntityErasure")


async def test_an_erasure_that_is_begun_again_searches_again(thief):
    await search(thief, await thief.fetchval(BEGIN, ENTITY), ENTITY)

    erasure = await thief.fetchval(BEGIN, ENTITY)

    with pytest.raises(asyncpg.CheckViolationError, match="has not searched"):
        await thief.execute(END, erasure, ENTITY)


async def test_who_goes_on_with_the_erasure_of_another_login_is_in_its_row(database, database_url, eraser_url, thief):
    of_owner = await asyncpg.connect(database_url, timeout=10)
    owner = await of_owner.fetchval("SELECT SESSION_USER")
    await of_owner.fetchval(BEGIN, ENTITY)
    for session in (thief, of_owner, thief):
        await session.fetchval(BEGIN, ENTITY)
    await of_owner.close(timeout=5)

    row = await database.fetchrow("SELECT actor, resumed_by FROM EntityErasure")

    assert row["actor"] == owner
    assert [name in eraser_url for name in row["resumed_by"]] == [True]


# -- what is written and read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["erase customer-42.", "for Customer-42", "x customer-42y", "(customer-42)"])
async def test_a_reason_with_the_id_in_it_is_refused_by_the_database(database, thief, reason):
    with pytest.raises(asyncpg.CheckViolationError, match="the reason has the entity's id in it"):
        await thief.fetchval("SELECT id FROM understudy_begin_erasure(NULL, $1, $2, 'cli')", ENTITY, reason)

    assert await database.fetchval("SELECT count(*) FROM EntityErasure") == 0


@pytest.mark.parametrize(("text", "entity"), NAMING)
async def test_what_names_an_entity_is_the_same_in_sql_and_in_python(database, text, entity):
    assert await database.fetchval("SELECT understudy_names_entity($1, $2)", text, entity) == names_entity(text, entity)


async def test_what_people_wrote_is_searched_for_the_entity_of_an_open_erasure_alone(database, thief):
    await database.execute(
        "INSERT INTO ApiKey (id, sha256, scopes, note) VALUES ('k', repeat('a', 64), '{read}', 'the pager of ' || $1)",
        ENTITY,
    )
    texts = "SELECT understudy_count_texts($1, $2)"
    erasure = await thief.fetchval(BEGIN, ENTITY)

    unasked = await thief.fetchval("SELECT texts FROM understudy_count_beside_log(NULL, 'pager')")
    with pytest.raises(asyncpg.CheckViolationError, match="no open erasure"):
        await thief.fetchval(texts, erasure, "pager")

    assert unasked is None
    assert await thief.fetchval(texts, erasure, ENTITY) == 1


async def test_reasons_in_notifications_are_searched_and_each_event_counts_once(database, thief):
    await database.execute(
        "INSERT INTO Notification (subscription_id, event_id, kind, severity, payload)"
        " SELECT n, '00000000-0000-4000-8000-000000000001', 'policy.changed', 'info',"
        " jsonb_build_object('reason', $1::text) FROM generate_series(1, 3) n",
        f"asked by {ENTITY}",
    )
    erasure = await thief.fetchval(BEGIN, ENTITY)

    assert await thief.fetchval("SELECT understudy_count_texts($1, $2)", erasure, ENTITY) == 1


async def test_reasons_in_the_audit_of_subscriptions_are_searched_too(database, thief):
    await database.execute(f"SET understudy.reason = 'asked by {ENTITY}'")
    await database.execute("INSERT INTO Subscription (name, receiver) VALUES ('ops', 'chat')")
    erasure = await thief.fetchval(BEGIN, ENTITY)

    assert await thief.fetchval("SELECT understudy_count_texts($1, $2)", erasure, ENTITY) == 1


async def test_reasons_of_erasures_are_searched_too(database, thief):
    await thief.fetchval("SELECT id FROM understudy_begin_erasure(NULL, $1, $2, 'cli')", THEIRS, f"also {ENTITY}")
    erasure = await thief.fetchval(BEGIN, ENTITY)

    assert await thief.fetchval("SELECT understudy_count_texts($1, $2)", erasure, ENTITY) == 1
