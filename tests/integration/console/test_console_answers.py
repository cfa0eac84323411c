"""Pages of the console that say what a call or an entity got and why, over HTTP with a real Postgres."""

import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from worlds.console import RunningConsole, is_sound, running_console, texts_of
from worlds.rollout import two_versions

from understudy.adapters.postgres.prediction_log.receipts import PostgresReceiptLog
from understudy.core.prediction_log.prediction_id import prediction_id
from understudy.errors import RegistryUnavailable
from understudy.registry import receipts

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}/u"
SCHEMA = '{"features": [{"name": "age", "dtype": "float32"}]}'
_ADD = """
    INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms, predicted_at,
        prediction_id, assigned_version_id, score, latency_us, role, reason, status, error_code, bucket,
        policy_generation, cache_hit)
    SELECT v.id, $2, repeat('0', 64), '{"score": 0.83, "label": "stay"}', 12, to_timestamp($3), $4::text::uuid, v.id,
           0.83, 11800, $5, 'bucket', $6, $7, 37, 1, FALSE
    FROM ModelVersion AS v WHERE v.model_name = 'churn' AND v.version = $1
"""


@pytest.fixture
async def console(database: asyncpg.Connection, database_url: str) -> AsyncIterator[RunningConsole]:
    await two_versions(database, SCHEMA)
    async with running_console(database_url) as running:
        yield running


async def logged(database: asyncpg.Connection, entity: str, at: float, *more: Any) -> str:
    """Log a call of version 6, and what 7 made of it as the shadow; return its id."""
    named = prediction_id(round(at * 1_000), 5)
    await database.execute(_ADD, "6", entity, at, named, "champion", *(more or ("ok", None)))
    await database.execute(_ADD, "7", entity, at + 0.2, named, "shadow", "ok", None)
    return named


async def test_a_prediction_says_what_decided_it_and_what_the_shadow_made_of_it(console, database):
    named = await logged(database, "customer-42", time.time() - 5)
    async with console.visit("read") as visit, console.visit("read:fraud") as stranger:
        led = await visit.get(f"/find?q={named}")
        page = await visit.get(led.headers["location"])
        refused = [await stranger.get(f"/predictions/{named}"), await visit.get(f"/predictions/{named[:-1]}6")]
        none = await visit.get("/predictions/customer-42")

    assert led.headers["location"] == f"/predictions/{named}"
    assert is_sound(page.text)
    shown = texts_of(page.text)
    assert any(text.startswith('customer-42 got "stay", score 0.83 from 6 (champion) at ') for text in shown)
    assert "bucket 37 of 100, which is 6's as champion" in shown
    assert any(text.startswith("generation 1, made by ") for text in shown)
    assert '7 gave "stay", score 0.83, 11.8 ms in the proxy' in shown
    assert f"understudy log show {named}" in shown
    assert [one.status_code for one in (*refused, none)] == [404, 404, 404]
    assert len({one.text.partition("<main")[2] for one in refused}) == 1


async def test_an_entity_says_who_answers_it_why_and_what_it_got(console, database):
    await logged(database, HOSTILE, time.time() - 5)
    await logged(database, HOSTILE, time.time() - 4_000, "unavailable", "E503")
    await logged(database, "other", time.time() - 5)
    async with console.visit("read") as visit:
        led = await visit.client.get("/find", params={"q": HOSTILE, "model": "churn"})
        only = await visit.client.get("/find", params={"q": HOSTILE})
        page = await visit.get(led.headers["location"])
        long = await visit.get(f"/models/churn/entities/{'x' * 300}")

    assert only.headers["location"] == led.headers["location"]
    assert is_sound(page.text)
    assert "<script>alert" not in page.text
    shown = texts_of(page.text)
    assert page.status_code == 200, shown
    assert any(text.startswith(f"{HOSTILE} gets 6 (champion) now: bucket ") for text in shown)
    assert "there is no challenger: the champion answers every entity" in shown
    assert [text for text in shown if text in ("ok", "E503")] == ["ok", "E503"]
    assert any(text.startswith("2 calls found, looked back 7 d; older ones were not looked for.") for text in shown)
    assert long.status_code == 404


async def test_what_is_not_there_says_what_was_looked_through_up_to_when_and_what_to_try(console):
    at = time.time() - 60
    unknown = prediction_id(round(at * 1_000), 9)
    since, until = (f"{datetime.fromtimestamp(one, UTC):%H:%M:%S}" for one in (at - 1, at + 10))
    async with console.visit("read") as visit:
        asked, page = await visit.get(f"/find?q={unknown}"), await visit.get(f"/predictions/{unknown}")
        entity = await visit.get("/models/churn/entities/customer-41")

    then = f"{since} and {until} UTC, and Postgres has no row of it"
    assert page.status_code == 404
    assert any(then in text for text in texts_of(asked.text))
    assert any(then in text for text in texts_of(page.text))
    shown = texts_of(entity.text)
    searched = re.compile(r"0 calls found in the 7 d up to \d\d \w{3} [\d:]{8} UTC; older ones were not looked for\.")
    assert any(map(searched.match, shown))
    assert any(text.startswith("Is it the entity id as callers send it?") for text in shown)
    assert any(text.startswith("understudy log query finds what is older") for text in shown)


async def test_an_entity_of_no_named_model_is_asked_of_which(console, database):
    await database.execute(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, artifact_digest, framework, input_schema)"
        " VALUES ('fraud', '1', 'file:///m', 'sha256:1', 'sklearn', '{}')"
    )
    async with console.visit("read") as visit, console.visit("read:churn") as other:
        page = await visit.get("/find?q=customer-42")
        nothing, led = await visit.get("/find?q="), await other.get("/find?q=customer-42")

    assert is_sound(page.text)
    assert {"Of which model is customer-42 an entity?", "churn", "fraud"} <= set(texts_of(page.text))
    assert (nothing.headers["location"], led.headers["location"]) == ("/", "/models/churn/entities/customer-42")


async def test_an_entity_is_found_whose_id_is_like_a_predictions_or_that_browsers_take_out_of_paths(console, database):
    alike, at = prediction_id(round(time.time() * 1_000), 77), time.time() - 5
    named = await logged(database, alike, at)
    await logged(database, "..", at - 60)
    async with console.visit("read") as visit, console.visit("read:fraud") as stranger:
        asked, hidden = await visit.get(f"/find?q={alike}"), await stranger.get(f"/find?q={named}")
        page = await visit.get(f"/models/churn/entities/{alike}")
        led = await visit.get("/find?q=..&model=churn")
        dots = await visit.get(led.headers["location"])

    assert is_sound(asked.text)
    assert any(text.startswith("The log has no such prediction: by its id the call") for text in texts_of(asked.text))
    assert f'href="/models/churn/entities/{alike}"' in asked.text
    assert any(text.startswith("1 call found") for text in texts_of(page.text))
    assert hidden.status_code == 200
    assert "churn" not in hidden.text
    assert dots.url.path == "/models/churn/entities"
    assert any(text.startswith(".. gets 6 (champion) now") for text in texts_of(dots.text))


async def test_who_answers_an_entity_is_told_while_the_log_is_too_slow(console, database, monkeypatch):
    monkeypatch.setattr(receipts, "SEARCH_SECONDS", 0.5)
    async with console.visit("read") as visit, database.transaction():
        await database.execute("LOCK TABLE PredictionLog IN ACCESS EXCLUSIVE MODE")
        page = await visit.get("/models/churn/entities/customer-42")

    assert page.status_code == 200
    shown = texts_of(page.text)
    assert any(text.startswith("customer-42 gets 6 (champion) now") for text in shown)
    assert any(text.startswith("The log was not searched") for text in shown)


async def test_a_search_that_is_too_slow_names_no_option_that_its_command_has_not(database, database_url):
    log = PostgresReceiptLog(database_url, timeout_seconds=0.5)
    async with database.transaction():
        await database.execute("LOCK TABLE PredictionLog IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(RegistryUnavailable) as refused:
            await log.of_prediction(prediction_id(1_795_000_000_000, 5), 1_795_000_000.0)

    assert "--" not in refused.value.next_step
