"""One form of moments and versions in every JSON document, and of moments in every list.

A program reads each field without knowing its table, and a person reads how long ago something was, or when.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from e2e.stack import register, sql

from understudy.bootstrap.session import Session
from understudy.core.canary.decision import CheckState, Decision, Evidence, Verdict
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.entrypoints.documents.rollouts import status_document
from understudy.rollout.status import RolloutStatus, StatusReader

COMMANDS = [
    "model list", "model show visits", "version list", "version show visits 2", "version diff visits 2", "rollout list",
    "rollout show visits", "audit list", "drift report visits", "plan visits 2", "explain visits", "explain visits c-1",
    "key list", "doctor", "db check", "shadow report visits", "shadow examples visits", "ab plan visits",
    "log query 'SELECT now() AS at' --live", "rollout pause visits --reason lunch", "db archive --dry-run --to a",
]  # fmt: skip
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z")
LIKE_A_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:")
YEARS = (1.5e9, 2.5e9)


def fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from fields(member, f"{path}.{name}")
    elif isinstance(value, list):
        for member in value:
            yield from fields(member, f"{path}[]")
    else:
        yield path, value


def wrong_moments(document: Any) -> list[tuple[str, Any]]:
    """Fields that are moments in another form: seconds since 1970, or a text that is not UTC with a Z."""
    return [
        (path, value)
        for path, value in fields(document)
        if (isinstance(value, int | float) and not isinstance(value, bool) and YEARS[0] < value < YEARS[1])
        or (isinstance(value, str) and LIKE_A_MOMENT.match(value) and not MOMENT.fullmatch(value))
    ]


@pytest.fixture(autouse=True)
async def _registered(database_url: str, model_port: Callable[[str], int]) -> None:
    for filler in ("churn", "fraud"):  # so that versions' ids are not their texts
        await sql(
            database_url,
            "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
            " VALUES ($1, '1', 'x', 'x', '{}')",
            filler,
        )
    champion = await register(database_url, 1, [model_port("visits:1")])
    await register(database_url, 2, [model_port("visits:2")])
    shadow = await register(database_url, 3, [model_port("visits:3")])
    await sql(
        database_url,
        "INSERT INTO ServingPolicy (model_name, champion_version, shadow_version) VALUES ('visits', $1, $2)",
        champion,
        shadow,
    )


def test_every_moment_of_every_document_is_in_utc_with_a_z(understudy):
    begun = understudy(
        "rollout", "start", "visits", "2", "--plan", "5,100", "--reason", "retrain", "--yes", "--json", "--salt", "s"
    )

    said = {line: understudy(*(word.strip("'") for word in words_of(line)), "--json") for line in COMMANDS}

    assert begun.code == 0, begun
    assert {line: done.err for line, done in said.items() if not done.out} == {}
    documents = {line: json.loads(done.out) for line, done in said.items()}
    assert {line: wrong for line, document in documents.items() if (wrong := wrong_moments(document))} == {}
    assert wrong_moments(begun.json) == []
    audited = documents["audit list"]["audit"]
    policies = [entry["after"] for entry in audited if entry["subject"] == "policy"]
    assert {(row["champion_version"], row["shadow_version"]) for row in policies} == {("1", "3")}
    assert policies[0]["challenger_version"] == "2"


LISTS = [
    "model list", "model show visits", "version list", "rollout list", "audit list", "key list",
]  # fmt: skip
IN_UTC = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ")


def test_a_list_says_how_long_ago_something_was_and_with_utc_when(understudy):
    understudy("rollout", "start", "visits", "2", "--plan", "5,100", "--reason", "retrain", "--yes")
    understudy("key", "create", "--scope", "read")

    usual = {line: understudy(*line.split(), COLUMNS="160") for line in LISTS}
    in_utc = {line: understudy(*line.split(), "--utc", COLUMNS="160") for line in [*LISTS, "rollout show visits"]}

    assert [line for line, done in usual.items() if " ago" not in done.out] == []
    assert [line for line, done in in_utc.items() if " ago" in done.out or not IN_UTC.search(done.out)] == []


def words_of(line: str) -> list[str]:
    return re.findall(r"'[^']*'|\S+", line)


def test_evidence_of_windows_from_a_moment_on_names_that_moment(understudy, database_url):
    understudy("rollout", "start", "visits", "2", "--plan", "5,100", "--reason", "retrain", "--yes")
    numbers = (0.0, 0.5, 9.0, None, None, 1.0, 99.0, 20.0, 2.0, 20.0, 10, 10)
    failing = Evidence(ERROR_RATE, CheckState.FAIL, *numbers)._replace(since=1_795_000_000.0)

    status = asyncio.run(status_of(database_url))
    document = status_document(status._replace(decision=Decision(Verdict.ROLL_BACK, "", (failing,))), ())

    assert document["decision"]["evidence"][0]["since"] == datetime.fromtimestamp(1_795_000_000, UTC)
    assert wrong_moments(document["decision"]) == []


async def status_of(database_url: str) -> RolloutStatus:
    async with Session(database_url, timeout_seconds=5) as session:
        return await StatusReader(session.rollouts, session.windows, session.measure_outcome, "visits").read()
