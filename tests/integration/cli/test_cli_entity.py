"""``understudy entity forget``: asks, says what it would do, and does not claim what it has not done."""

import asyncio

import pytest
from command import CommandLine, Done
from worlds.archive import MODELS, ids_logged
from worlds.erasure import ENTITY, OLD, log_of_customers, places_of

SURE = ("--yes", "--reason", "request 118")


@pytest.fixture
async def versions(database) -> list[int]:
    return await log_of_customers(database)


def archive(understudy: CommandLine) -> Done:
    return understudy("db", "archive", "--to", "archive", "--older-than", "1d")


def forget(understudy: CommandLine, *options: str, model: str = "all", entity: str = ENTITY) -> Done:
    return understudy("entity", "forget", model, entity, *options)


async def test_a_dry_run_says_what_a_run_then_does_and_neither_repeats_the_id_as_json(
    understudy, database, versions, tmp_path
):
    await asyncio.to_thread(archive, understudy)

    planned = await asyncio.to_thread(forget, understudy, "--archive", "archive", "--dry-run", "--json")
    untouched = await places_of(database, tmp_path / "archive")
    done = await asyncio.to_thread(forget, understudy, "--archive", "archive", "--json", *SURE)

    assert (planned.code, done.code) == (0, 0), done
    assert len(untouched) > 2
    assert planned.document["erasure"]["rows"] == done.document["erasure"]["rows"]
    assert done.document["erasure"]["finished"]
    assert ENTITY not in planned.out + done.out
    assert await places_of(database, tmp_path / "archive") == []


async def test_months_that_could_not_be_erased_are_named_and_the_command_ends_with_1(
    understudy, database, versions, tmp_path
):
    await asyncio.to_thread(archive, understudy)

    first = await asyncio.to_thread(forget, understudy, *SURE)
    again = await asyncio.to_thread(forget, understudy, "--archive", "archive", *SURE)

    assert first.code == 1
    assert f"{ENTITY} is not erased everywhere yet: every model" in first.out
    assert all(month.partition in first.out for month in OLD)
    assert "was not named (--archive file://" in first.said
    assert max(map(len, first.out.splitlines())) <= 80
    assert (again.code, f"{ENTITY} is erased from every model" in again.out) == (0, True)
    assert await places_of(database, tmp_path / "archive") == []


async def test_a_lake_is_never_left_out_in_silence(understudy, database, versions):
    await database.execute(
        "INSERT INTO iceberg_tables VALUES ('understudy', 'understudy', 'predictionlog',"
        " 's3://lake/log/predictionlog/metadata/00001-a.metadata.json', NULL, 'TABLE')"
    )

    planned = await asyncio.to_thread(forget, understudy, "--dry-run")
    silent = await asyncio.to_thread(forget, understudy, *SURE)
    as_json = await asyncio.to_thread(forget, understudy, "--json", *SURE)
    sure = await asyncio.to_thread(forget, understudy, "--lake-erased", *SURE)

    assert [done.code for done in (planned, silent, as_json, sure)] == [1, 1, 1, 0]
    assert f"{ENTITY} is erased from every model, and not from the lake" in silent.out
    for done in (planned, silent):
        assert "The log's table in a lake still names it" in done.out
        assert "s3://lake/log/predictionlog\n" in done.out
    assert as_json.document["erasure"]["lake"] == "s3://lake/log/predictionlog"
    assert f"✔ {ENTITY} is erased from every model" in sure.out
    assert [row["via"] for row in await database.fetch("SELECT via FROM EntityErasure ORDER BY id")] == [
        "cli; not the lake's rows", "cli; not the lake's rows", "cli; the lake's rows were said to be deleted"
    ]  # fmt: skip


async def test_without_a_confirmation_or_a_reason_nothing_is_erased(understudy, database, versions):
    before = await ids_logged(database)

    unsure = await asyncio.to_thread(forget, understudy, "--reason", "request 118")
    without_reason = await asyncio.to_thread(forget, understudy, "--yes")
    nobody = await asyncio.to_thread(forget, understudy, *SURE, entity="")
    no_model = await asyncio.to_thread(forget, understudy, *SURE, model=ENTITY, entity="churn")

    told = await asyncio.to_thread(forget, understudy, "--yes", "--reason", f"complaint of {ENTITY.title()}.")

    assert [done.code for done in (unsure, without_reason, nobody, no_model, told)] == [2, 2, 2, 7, 2]
    assert "the reason has the entity's id in it" in told.err
    assert "Add --yes" in unsure.err
    assert "this change needs a reason" in without_reason.err
    assert "1 to 255 characters" in nobody.err
    assert "there is no model of this name" in no_model.err
    assert not [word for word in (ENTITY, "DETAIL", "HINT") if word in no_model.err]
    assert no_model.err.count("names the models") == 1
    assert await ids_logged(database) == before
    assert "PredictionLog" in await places_of(database, None)


async def test_reasons_with_the_id_are_counted_and_stay(understudy, database, versions):
    await database.execute(
        "INSERT INTO ApiKey (id, sha256, scopes, note) VALUES ('k', repeat('a', 64), '{read}', 'asked for by ' || $1)",
        ENTITY,
    )

    done = await asyncio.to_thread(forget, understudy, *SURE, model=MODELS[0])

    assert done.code == 0, done
    assert "1 reason or note that people wrote has the id in it, and stays." in done.out
    assert await database.fetchval("SELECT note FROM ApiKey") == f"asked for by {ENTITY}"
