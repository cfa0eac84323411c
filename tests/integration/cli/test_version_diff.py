"""``understudy version diff``, against a real Postgres."""

from typing import Any

import orjson
import pytest
from command import CommandLine
from e2e.stack import register, sql

from understudy.adapters.dev_server.example_models import example_version

BASKET = {"name": "basket", "dtype": "float32"}


def schema_with(feature: dict[str, Any]) -> str:
    """Return the example's ``input_schema`` and one more input, each a tensor of its own."""
    features = example_version("visits", 1).input_schema["features"]
    return orjson.dumps({"features": [*features, feature]}).decode()


@pytest.fixture(autouse=True)
async def _registered(database_url: str) -> None:
    """Model ``visits``: champion 1 and version 2, each with a model server of its own that nobody asks."""
    champion = await register(database_url, 1, [9001])
    await register(database_url, 2, [9002, 9003], timeout_ms=800)
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", champion)


async def test_a_version_is_compared_with_the_champion_field_by_field(understudy: CommandLine):
    done = await understudy.beside("version", "diff", "visits", "2", "--json")
    text = await understudy.beside("version", "diff", "visits", "2")

    assert (done.code, text.code) == (0, 0)
    assert (done.document["old"], done.document["new"], done.document["callers"]) == ("1", "2", "all")
    told = {(row["part"], row["field"]): (row["old"], row["new"]) for row in done.document["differences"]}
    assert told["setting", "timeout_ms"] == (4_000, 800)
    assert told["setting", "artifact_path"] == ("s3://models/visits/1/model.onnx", "s3://models/visits/2/model.onnx")
    endpoints = [(row["old"], row["new"]) for row in done.document["differences"] if row["part"] == "endpoint"]
    assert endpoints == [("127.0.0.1:9001", None), (None, "127.0.0.1:9002"), (None, "127.0.0.1:9003")]
    assert text.out.startswith("✔ every call that fits visits 1 can be answered by 2\n")
    assert max(map(len, text.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("schema", "callers", "says"),
    [
        (schema_with(BASKET), "none", "✖ every call that fits visits 1 fails at 3 (422) basket: new and required,"),
        (
            schema_with({**BASKET, "source": "store"}),
            "some",
            "! a call that fits visits 1 may fail at 3 (422): it depends on its values basket: new, and without",
        ),
    ],
    ids=["every call", "some calls"],
)
async def test_a_version_that_callers_cannot_count_on_ends_with_1_and_says_why_first(
    database_url, understudy: CommandLine, schema, callers, says
):
    await register(database_url, 3, [], input_schema=schema)

    done = await understudy.beside("version", "diff", "visits", "1", "3", "--json")
    text = await understudy.beside("version", "diff", "visits", "3")

    assert (done.code, text.code, done.document["callers"]) == (1, 1, callers)
    assert text.said.startswith(says)
    assert "input basket" in text.out


async def test_what_cannot_be_compared_says_why_and_what_next(database_url, understudy: CommandLine):
    await register(database_url, 1, [], model_name="digits")

    unknown = await understudy.beside("version", "diff", "visits", "1", "9")
    nobody = await understudy.beside("version", "diff", "nobody", "1")
    no_champion = await understudy.beside("version", "diff", "digits", "1")
    itself = await understudy.beside("version", "diff", "visits", "1")
    twice = await understudy.beside("version", "diff", "visits", "2", "2")

    assert [done.code for done in (unknown, nobody, no_champion, itself, twice)] == [4, 4, 4, 2, 2]
    assert "version 2 of visits is compared with itself" in twice.said
    assert "visits has no version '9'; it has: 1, 2" in unknown.said
    assert "→ Name two versions: understudy version diff digits OLD NEW" in no_champion.said
    assert "version 1 is the champion of visits, so there is nothing to compare it with" in itself.said
