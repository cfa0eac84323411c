"""Up, down and up again with rows in every table: the schema is the same at each step, and what may survive does."""

from collections.abc import Mapping

import pytest
from catalogue import Catalogue, catalogue_of, differences
from traffic.chance import IS_RANDOM
from traffic.migration_rows import Columns, columns_of, contents_of, insert_rows

from understudy.adapters import migrations
from understudy.adapters.migrations.losses import declared_losses
from understudy.adapters.migrations.script_directory import script_directory
from understudy.errors import DataWouldBeLost

REVISIONS = migrations.revisions()
STARTS = REVISIONS if IS_RANDOM else REVISIONS[-2:]
"""Nightly runs begin at each one: of those that have landed only the way on is new, which the last two go. The
whole way down and up again is gone with the rows of the newest schema, below."""
ALEMBICS_OWN = ("alembic_version", "schema")


def above(revision: str) -> list[str]:
    return [one for one in REVISIONS if one > revision]


@pytest.fixture
def columns_at(climb) -> Mapping[str, Columns]:
    columns: Mapping[str, Columns] = climb.columns
    return columns


@pytest.mark.parametrize("start", STARTS)
async def test_rows_of_a_revision_outlive_every_later_one_and_the_way_back(
    at_revision, steps: Mapping[str, Catalogue], start
):
    async with at_revision(start) as (url, connection):
        await insert_rows(connection, start)
        columns = await columns_of(connection)
        before = await contents_of(connection, columns)
        assert [table for table, (count, _) in before.items() if count == 0] == []

        for revision in above(start):
            await migrations.upgrade(url, revision)
            assert differences(steps[revision], await catalogue_of(connection)) == []
            assert await contents_of(connection, columns) == before
        for revision in [start, *above(start)][-2::-1]:
            await migrations.downgrade(url, revision, lose_data=True)
            assert differences(steps[revision], await catalogue_of(connection)) == []
            assert await contents_of(connection, columns) == before
        await migrations.upgrade(url)

        assert differences(steps[migrations.head()], await catalogue_of(connection)) == []
        assert await contents_of(connection, columns) == before


async def test_rows_of_the_newest_schema_keep_on_the_way_down_what_each_revision_has_a_place_for(
    database, database_url, steps: Mapping[str, Catalogue], columns_at: Mapping[str, Columns]
):
    await insert_rows(database, migrations.head())
    # The model with further arms is what changes, on the way to 0003: its buckets go back to its champion.
    before = {
        revision: await contents_of(database, columns, without_model="armed")
        for revision, columns in columns_at.items()
    }

    for revision in REVISIONS[-2::-1]:
        await migrations.downgrade(database_url, revision, lose_data=True)
        assert await contents_of(database, columns_at[revision], without_model="armed") == before[revision]
        assert differences(steps[revision], await catalogue_of(database)) == []
    at_the_bottom = await contents_of(database, columns_at["0001"])
    await migrations.upgrade(database_url)

    assert before.keys() == set(REVISIONS)
    assert differences(steps[migrations.head()], await catalogue_of(database)) == []
    assert await contents_of(database, columns_at["0001"]) == at_the_bottom


async def test_to_the_ground_and_up_again_nothing_is_left_and_then_all_is_as_it_was(
    database, database_url, steps: Mapping[str, Catalogue]
):
    await insert_rows(database, migrations.head())

    await migrations.downgrade(database_url, lose_data=True)
    left = await catalogue_of(database)
    await migrations.upgrade(database_url)

    assert {name for name in left if not any(own in name for own in ALEMBICS_OWN)} == set()
    assert differences(steps[migrations.head()], await catalogue_of(database)) == []


@pytest.mark.old_schema
async def test_a_month_that_was_taken_out_and_not_dropped_yet_keeps_its_rows_and_goes_only_with_everything(
    database, database_url, steps: Mapping[str, Catalogue]
):
    await insert_rows(database, migrations.head())
    month = await database.fetchval("SELECT tableoid::regclass::text FROM PredictionLog LIMIT 1")
    await database.execute(
        f"ALTER TABLE PredictionLog DETACH PARTITION {month}; ALTER TABLE {month} RENAME TO {month}_archived_1"
    )
    rows = await database.fetchval(f"SELECT count(*) FROM {month}_archived_1")

    await migrations.downgrade(database_url, "0001", lose_data=True)
    kept = await database.fetchval(f"SELECT count(*) FROM {month}_archived_1")
    with pytest.raises(DataWouldBeLost, match="1 tables of months that were taken out"):
        await migrations.downgrade(database_url)
    await migrations.downgrade(database_url, lose_data=True)
    await migrations.upgrade(database_url)

    assert kept == rows > 0
    assert differences(steps[migrations.head()], await catalogue_of(database)) == []


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_a_way_down_deletes_is_declared_and_is_not_deleted_unasked(
    at_revision, revision, steps: Mapping[str, Catalogue]
):
    below = ([None, *REVISIONS])[REVISIONS.index(revision)]
    declared = {loss.table.lower() for loss in declared_losses([script_directory().get_revision(revision)])}
    gone = {name for name in steps[revision] if below is None or name not in steps[below]}
    tables_that_lose = {
        name.split()[1].partition(".")[0]
        for name in gone
        if name.startswith("column ") and f"relation {name.split()[1].partition('.')[0]}" in steps[revision]
    }
    async with at_revision(revision) as (url, connection):
        await insert_rows(connection, revision)
        with_rows = {table for table in await columns_of(connection) if table in tables_that_lose}

        # These are filled by the way up itself; of Installation only what its owner changed is lost.
        asked_for = with_rows - {"installation", "cachesecret"}
        if asked_for:
            with pytest.raises(DataWouldBeLost) as refused:
                await migrations.downgrade(url, below or "base")
            assert "lose-data" in refused.value.next_step
        else:
            await migrations.downgrade(url, below or "base")

        assert with_rows <= declared
        expected = revision if asked_for else below
        assert await migrations.current_revision(url) == expected


async def test_a_way_down_that_would_delete_says_what_and_how_much_and_leaves_every_revision(database, database_url):
    await insert_rows(database, migrations.head())
    columns = await columns_of(database)
    before = await contents_of(database, columns)

    with pytest.raises(DataWouldBeLost) as refused:
        await migrations.downgrade(database_url, "0002")

    for words in (
        "the schema at 0002 cannot hold",
        "1 months that are archived",
        "1 keys with a tenant or a limit",
        "1 policies with further arms",
        "30 rows of PredictionLog with inputs",
    ):
        assert words in refused.value.detail, words
    assert await contents_of(database, columns) == before
    assert await migrations.current_revision(database_url) == migrations.head()


@pytest.mark.old_schema
async def test_without_such_rows_nobody_has_to_be_asked(database_url):
    await migrations.downgrade(database_url, "0001")

    assert await migrations.current_revision(database_url) == "0001"


async def test_what_an_owner_said_of_endpoints_on_this_machine_is_not_taken_back_unasked(database, database_url):
    await database.execute("UPDATE Installation SET loopback_endpoints = NOT loopback_endpoints")

    with pytest.raises(DataWouldBeLost, match="1 words of the owner on endpoints"):
        await migrations.downgrade(database_url, "0007")


async def test_a_revision_that_is_not_there_is_named_with_those_that_are(empty_database_url):
    with pytest.raises(ValueError, match="no revision 0815; there are: 0001, 0002"):
        await migrations.upgrade(empty_database_url, "0815")
