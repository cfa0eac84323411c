"""``POST /v1/outcomes``: what is promised with 202, and what with everything else."""

from typing import Any

import orjson
import pytest

from understudy.errors import LoginNotAllowed

PATH = "/v1/outcomes"
OPS, VISITOR = (b"authorization", b"Bearer ops.secret"), (b"authorization", b"Bearer visitor.secret")


def an_event(event_id: str = "e1", **changes: Any) -> dict[str, Any]:
    return {
        "event_id": event_id,
        "model": "visits",
        "entity_id": "customer-42",
        "name": "converted",
        "value": 1,
        "occurred_at": "2026-11-20T13:02:11Z",
        **changes,
    }


def body_of(*events: Any) -> bytes:
    return orjson.dumps({"events": events})


@pytest.fixture
async def up(start):
    return await start(auth=True)


async def test_events_are_stored_once_and_each_is_told_what_became_of_it(up):
    first = await up.ask(PATH, body_of(an_event("e1"), an_event("e2")), headers=[OPS])
    again = await up.ask(PATH, body_of(an_event("e2"), an_event("e3")), headers=[OPS])

    assert (first.status, again.status) == (202, 202)
    assert orjson.loads(first.body) == {
        "results": [{"event_id": "e1", "result": "new"}, {"event_id": "e2", "result": "new"}],
        "new": 2,
        "known": 0,
        "new_metrics": [{"model": "visits", "name": "converted"}],
    }
    assert [row["result"] for row in orjson.loads(again.body)["results"]] == ["known", "new"]
    assert [event_id for _, event_id in up.outcomes.kept] == ["e1", "e2", "e3"]


async def test_a_name_that_no_outcome_of_the_model_had_is_named_once(up):
    told = []
    for number, name in enumerate(("converted", "convreted", "converted", "convreted")):
        answer = await up.ask(PATH, body_of(an_event(f"e{number}", name=name)), headers=[OPS])
        told.append([one["name"] for one in orjson.loads(answer.body)["new_metrics"]])

    assert told == [["converted"], ["convreted"], [], []]


async def test_a_name_is_asked_about_until_an_event_of_it_is_stored(up):
    refused = await up.ask(PATH, body_of(an_event("e1"), {"mood": 1}), headers=[OPS])
    up.outcomes.available = False
    lost = await up.ask(PATH, body_of(an_event("e1")), headers=[OPS])
    up.outcomes.available = True
    stored = await up.ask(PATH, body_of(an_event("e1")), headers=[OPS])

    assert (refused.status, lost.status, stored.status) == (422, 503, 202)
    assert orjson.loads(stored.body)["new_metrics"] == [{"model": "visits", "name": "converted"}]


async def test_outcomes_are_stored_where_a_login_may_not_say_which_names_are_new(up, monkeypatch):
    async def refuse(_: object) -> frozenset[tuple[str, str]]:
        raise LoginNotAllowed("outcome events: the login may not read their names")

    monkeypatch.setattr(up.outcomes, "new_metrics", refuse)
    answer = await up.ask(PATH, body_of(an_event()), headers=[OPS])

    assert (answer.status, "new_metrics" in orjson.loads(answer.body)) == (202, False)


async def test_everything_that_is_wrong_is_named_at_once_and_nothing_is_stored(up):
    answer = await up.ask(PATH, body_of(an_event("e1"), an_event(value="no"), {"mood": 1}), headers=[OPS])

    problem = orjson.loads(answer.body)
    assert (answer.status, answer.headers[b"content-type"]) == (422, b"application/problem+json")
    assert (problem["code"], problem["detail"]) == ("E105", "2 of 3 events cannot be used")
    assert "Nothing was stored" in problem["next"]
    pointers = [violation["pointer"] for violation in problem["errors"]]
    assert pointers[0] == "/events/1/value"
    assert {"/events/2/event_id", "/events/2/mood", "/events/2/entity_id"} < set(pointers)
    assert up.outcomes.kept == {}


@pytest.mark.parametrize("events", [[], [an_event(f"e{number}") for number in range(1_001)]])
async def test_a_batch_has_one_to_a_thousand_events(up, events):
    answer = await up.ask(PATH, body_of(*events), headers=[OPS])

    assert answer.status == 422
    assert '{"events": [...]}' in orjson.loads(answer.body)["next"]


@pytest.mark.deep
async def test_a_thousand_events_of_the_longest_ids_fit_the_body_limit(up):
    events = [an_event(f"{number:0255}", entity_id="x" * 255) for number in range(1_000)]

    assert (await up.ask(PATH, body_of(*events), headers=[OPS])).status == 202


async def test_without_postgres_nothing_is_promised_and_no_address_is_told(up):
    up.outcomes.available = False

    answer = await up.ask(PATH, body_of(an_event()), headers=[OPS])

    problem = orjson.loads(answer.body)
    assert (answer.status, answer.headers[b"retry-after"], problem["code"]) == (503, b"1", "E510")
    assert problem["detail"] == "the outcomes cannot be stored now"
    assert "each event counts once" in problem["next"]


async def test_outcomes_need_a_key_of_their_own_even_where_predictions_need_none(start):
    local = await start(auth=False)

    assert (await local.ask(PATH, body_of(an_event()))).status == 403
    assert (await local.ask(PATH, body_of(an_event()), headers=[VISITOR])).status == 403
    assert (await local.ask(PATH, body_of(an_event()), headers=[OPS])).status == 202
    assert (await local.ask(PATH, method="GET", headers=[OPS])).headers[b"allow"] == b"POST"
