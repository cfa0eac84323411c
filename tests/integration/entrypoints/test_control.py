"""The control plane over HTTP, against a real Postgres and a real model server; no monitor moves anything here."""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import httpx2
import orjson
import pytest
from asgi import lifespan
from command import CommandLine
from e2e.stack import a_stack, register, sql
from failing.locked_reports import locked_reports
from pydantic import SecretStr
from worlds.experiment import DAY, HOUR, MODEL, Call, Told, World, arm_by_bucket

from understudy.core.rollout.state import CommandKind
from understudy.core.routing.access import Scope
from understudy.entrypoints.proxy.api.app import create_app
from understudy.entrypoints.proxy.api.authorization import ACCESS
from understudy.settings import Settings

KEYS = {
    "ops": ["read", "operate", "register", "outcomes", "keys"],
    "eye": ["read"],
    "shop": ["predict"],
    "mover": ["read", "operate"],
}
OPS, EYE, SHOP, MOVER = ({"authorization": f"Bearer {name}.secret"} for name in KEYS)
VISITS = "/v1/models/visits"
START = {"version": "2", "plan": "5,50,100", "reason": "retrain"}
NO_TIME, BAD_DEADLINE = {"grpc-timeout": "1n"}, {"x-request-timeout-ms": "soon"}
UNSERVED = """
    INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)
    VALUES ('good', '1', 's3://models', 'sklearn', '{}')
"""
TABLES = ("ServingPolicy", "PolicyAudit", "Rollout", "RolloutEvent", "ModelVersion")


@asynccontextmanager
async def a_proxy(folder: Path, database_url: str, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A proxy in this process, and a client that shows the key of the one on call."""
    settings = Settings(database_url=SecretStr(database_url), metrics_port=0, state_dir=folder, **options)
    app = create_app(settings)
    async with (
        lifespan(app),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url="http://proxy", headers=OPS, timeout=60
        ) as client,
    ):
        yield client


@pytest.fixture
async def registry(database_url: str) -> dict[str, int]:
    """Model ``visits``: champion 1, and versions 2 and 3, whose model servers are not there; the callers' keys."""
    ids = {str(label): await register(database_url, label, [1]) for label in (1, 2, 3)}
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", ids["1"])
    for name, scopes in KEYS.items():
        await sql(
            database_url,
            "INSERT INTO ApiKey (id, sha256, scopes, created_by) VALUES ($1, $2, $3, 'test')",
            name,
            sha256(b"secret").hexdigest(),
            scopes,
        )
    return ids


@pytest.fixture
async def proxy(registry: dict[str, int], tmp_path: Path, database_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with a_proxy(tmp_path, database_url) as client:
        yield client


@pytest.fixture
async def served(
    proxy: httpx2.AsyncClient, registry: dict[str, int], database_url: str, model_port: Callable[[str], int]
) -> httpx2.AsyncClient:
    """The proxy, where version 2 has a model server."""
    target = f"127.0.0.1:{model_port('visits:2')}"
    await sql(database_url, "UPDATE ModelEndpoint SET target = $1 WHERE model_version_id = $2", target, registry["2"])
    return proxy


async def printed(database_url: str, *arguments: str) -> Any:
    """Return what the command line prints."""
    done = await CommandLine(database_url).beside(*arguments, "--json")
    assert done.code == 0, done
    return done.json


async def rows_of(database_url: str) -> dict[str, list[Any]]:
    return {table: [tuple(row) for row in await sql(database_url, f"SELECT * FROM {table}")] for table in TABLES}


async def until(is_so: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not await is_so():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.05)


async def is_reported(database_url: str) -> bool:
    """Whether the proxy has told which generation it acts on."""
    return bool(await sql(database_url, "SELECT 1 FROM ProxyInstance"))


def pointers_of(answer: httpx2.Response) -> list[str]:
    return [found["pointer"] for found in answer.json()["errors"]]


# -- rollouts ----------------------------------------------------------------------------------------------------------


async def test_a_rollout_is_started_shown_paused_resumed_and_aborted(served, database_url):
    begun = await served.post(f"{VISITS}/rollouts", json=START)
    place = begun.headers["location"]
    paused = await served.post(f"{place}:pause", json={"reason": "lunch"})
    again = await served.post(f"{place}:pause")
    resumed = await served.post(f"{place}:resume")
    promoted = await served.post(f"{place}:promote")
    shown = await served.get(place, headers=EYE)
    aborted = await served.post(f"{place}:abort", json={"reason": "no"})
    listed = (await served.get(f"{VISITS}/rollouts", headers=EYE)).json()["rollouts"]

    assert begun.status_code == 201
    assert place == f"{VISITS}/rollouts/{begun.json()['rollout']['rollout_id']}"
    assert [step["weight_percent"] for step in begun.json()["rollout"]["plan"]["steps"]] == [5, 50, 100]
    assert (begun.json()["rollout"]["started_by"], begun.json()["rollout"]["reason_for_it"]) == ("ops", "retrain")
    assert len(begun.json()["rollout"]["salt"]) == 8
    assert [(said.status_code, said.json()["changed"]) for said in (paused, again, resumed, promoted, aborted)] == [
        (200, True), (200, False), (200, True), (200, False), (200, True),
    ]  # fmt: skip
    assert paused.json()["event"] == "paused by ops: lunch"
    assert paused.json()["rollout"]["phase"] == "WAITING"
    assert [event["actor"] for event in shown.json()["events"]] == ["ops"] * 3
    assert [(one["phase"], one["weight_percent"]) for one in listed] == [("FAILED", 0)]
    (signed,) = await sql(database_url, "SELECT actor, via, reason FROM PolicyAudit WHERE generation = 2")
    assert tuple(signed) == ("ops", "http", "retrain")


async def test_an_approval_has_a_reason_and_its_moment_and_is_not_the_starters_where_the_plan_says_so(
    served,
):
    plan = {"steps": [5, 50, 100], "gates": {"before_start": {"approval": "another"}}}
    begun = await served.post(f"{VISITS}/rollouts", json={**START, "plan": plan})
    approve = f"{begun.headers['location']}:approve"

    bare = await served.post(approve, json={})
    unseen = await served.post(approve, json={"reason": "looked at it"}, headers=EYE)
    early = await served.post(approve, json={"reason": "looked at it"})
    another = await served.post(approve, json={"reason": "looked at it", "ahead": True, "to_percent": 50})
    own = await served.post(approve, json={"reason": "looked at it", "ahead": True, "to_percent": 5})

    assert begun.json()["rollout"]["plan"]["gates"] == plan["gates"]
    assert (bare.status_code, pointers_of(bare)) == (422, ["/reason"])
    assert unseen.status_code == 403
    assert (early.status_code, early.json()["changed"]) == (200, False)
    assert early.json()["event"].startswith("not at a gate")
    assert another.json()["event"].startswith("not approved: version 2 goes from 0 to 5 % next")
    assert (own.status_code, own.json()["code"]) == (409, "E203")
    assert "was started by ops" in own.json()["detail"]


async def test_different_scores_are_expected_from_the_start_on_or_by_a_resume_and_by_no_other_command(
    served, database_url
):
    begun = await served.post(f"{VISITS}/rollouts", json={**START, "expect_different_scores": True})
    place = begun.headers["location"]
    paused = await served.post(f"{place}:pause", json={"expect_different_scores": True})
    await served.post(f"{place}:pause", json={"reason": "lunch"})
    resumed = await served.post(
        f"{place}:resume", json={"reason": "it ranks by profit", "expect_different_scores": True}
    )

    assert begun.json()["rollout"]["plan"]["expect_different_scores"] is True
    assert (paused.status_code, pointers_of(paused)) == (422, ["/expect_different_scores"])
    assert resumed.json()["event"] == "goes on by ops: it ranks by profit; different scores are expected"
    stored = await sql(database_url, "SELECT inputs::text FROM RolloutEvent ORDER BY id DESC LIMIT 1")
    assert [row["inputs"] for row in stored] == ['{"expect_different_scores": true}']


async def test_a_rollout_begins_on_no_other_policy_than_the_one_it_was_prepared_for(
    proxy, registry, database_url, model_port
):
    target = f"127.0.0.1:{model_port('visits:2,latency_ms=300')}"
    await sql(database_url, "UPDATE ModelEndpoint SET target = $1 WHERE model_version_id = $2", target, registry["2"])

    starting = asyncio.create_task(proxy.post(f"{VISITS}/rollouts", json=START))
    number = 0
    while not starting.done():  # one change falls between the preparation and the end of the warm-up
        number += 1
        await sql(database_url, "UPDATE ServingPolicy SET salt = $1", f"salt {number}")
    refused = await starting

    assert (refused.status_code, refused.json()["code"]) == (412, "E409")
    assert await sql(database_url, "SELECT id FROM Rollout") == []


async def test_the_answers_are_the_documents_that_the_command_line_prints(served, database_url):
    place = (await served.post(f"{VISITS}/rollouts", json=START)).headers["location"]

    async def is_confirmed() -> bool:
        return bool((await served.get(place)).json()["presence"]["proxies_on_generation"])

    number = place.rpartition("/")[2]
    await until(is_confirmed)
    assert (await served.get(place)).json() == await printed(database_url, "rollout", "show", "visits", number)
    assert (await served.get(f"{VISITS}/rollouts")).json() == await printed(database_url, "rollout", "list", "visits")
    changed = (await served.get("/v1/audit?model=visits")).json()
    assert changed.pop("next_cursor") is None
    assert changed == await printed(database_url, "audit", "list", "visits")
    planned = (await served.post(f"{VISITS}/rollouts?dry_run=true", json={"version": "3"})).json()
    assert planned["plan"] == (await printed(database_url, "plan", "visits", "3"))["plan"]


async def test_a_version_whose_inputs_no_caller_sends_gets_no_rollout(served, registry, database_url):
    await sql(
        database_url,
        """UPDATE ModelVersion SET input_schema = jsonb_set(input_schema, '{features}', input_schema -> 'features'
           || '[{"name": "basket", "dtype": "float32"}]') - 'tensors' WHERE id = $1""",
        registry["3"],
    )

    refused = await served.post(f"{VISITS}/rollouts", json={**START, "version": "3"})
    planned = await served.post(f"{VISITS}/rollouts?dry_run=true", json={**START, "version": "3"})

    assert (refused.status_code, refused.json()["code"]) == (409, "E207")
    assert "would fail at 3: basket: new and required" in refused.json()["detail"]
    assert planned.status_code == 200
    assert planned.json()["plan"]["input_differences"]["breaking"] == [
        "basket: new and required, and the champion refuses calls that have it"
    ]


async def test_only_one_rollout_is_open_and_a_version_that_does_not_answer_gets_none(served, database_url):
    unready = await served.post(f"{VISITS}/rollouts", json={**START, "version": "3"})
    first, second = await asyncio.gather(*(served.post(f"{VISITS}/rollouts", json=START) for _ in range(2)))

    assert (unready.status_code, unready.json()["code"]) == (409, "E207")
    assert "version 3 is not ready: " in unready.json()["detail"]
    assert sorted((first.status_code, second.status_code)) == [201, 409]
    refused = first if first.status_code == 409 else second
    assert "has an open rollout" in refused.json()["detail"]
    assert len(await sql(database_url, "SELECT 1 FROM Rollout")) == 1


async def test_a_dry_run_tells_the_plan_the_risk_and_the_time_and_writes_nothing(proxy, database_url):
    before = await rows_of(database_url)

    planned = await proxy.post(f"{VISITS}/rollouts?dry_run=true", json={"version": "2"})
    tried = await proxy.patch(
        f"{VISITS}/policy?dry_run=true", json={"challenger": "2", "challenger_weight": 7}, headers={"if-match": '"1"'}
    )

    assert planned.status_code == tried.status_code == 200
    assert planned.json()["plan"]["risk"] == "high"
    assert planned.json()["plan"]["risk_reason"].startswith("versions 1 and 2 have no base model recorded")
    assert planned.json()["plan"]["forecast"]["sentence"]
    assert planned.json()["rollout"] is None
    assert tried.json()["policy"]["challenger_weight"] == 7
    assert (tried.json()["changed"], tried.json()["dry_run"]) == (False, True)
    assert await rows_of(database_url) == before


IMPOSSIBLE: Sequence[tuple[str, str, Any, int, str]] = [
    ("POST", f"{VISITS}/rollouts", {"version": "9", "reason": "x"}, 404, "E206"),
    ("POST", f"{VISITS}/rollouts", {"version": "1", "reason": "x"}, 409, "E203"),
    ("POST", f"{VISITS}/rollouts", {"version": "2"}, 422, "E108"),
    ("POST", f"{VISITS}/rollouts", {"version": "2", "plan": "5,3", "reason": "x"}, 422, "E108"),
    ("POST", "/v1/models/nobody/rollouts", START, 404, "E206"),
    ("POST", "/v1/models/a%00b/rollouts", START, 404, "E206"),
    ("GET", f"/v1/models/{'x' * 300}/rollouts", None, 404, "E206"),
    ("GET", "/v1/models/nobody/rollouts", None, 404, "E206"),
    ("GET", f"{VISITS}/rollouts?limit=101", None, 400, "E106"),
    ("GET", f"{VISITS}/rollouts/1", None, 404, "E206"),
    ("GET", f"{VISITS}/rollouts/latest", None, 404, "E206"),
    ("GET", f"{VISITS}/rollouts/{'9' * 30}", None, 404, "E206"),
    ("POST", f"{VISITS}/rollouts/1:pause", None, 404, "E206"),
    ("POST", f"{VISITS}/rollouts/1:sing", None, 405, "E405"),
    ("POST", f"{VISITS}/rollouts/1:pause", {"why": "x"}, 422, "E108"),
    ("POST", "/v1/models/nobody:rollback", None, 404, "E206"),
    ("POST", f"{VISITS}:rollback", {"why": "x"}, 422, "E108"),
    ("GET", "/v1/models/nobody/policy", None, 404, "E206"),
    ("GET", "/v1/audit?limit=0", None, 400, "E106"),
    ("GET", "/v1/audit?model=%00", None, 400, "E106"),
    ("GET", f"{VISITS}/reports/ab", None, 400, "E106"),
    ("GET", f"{VISITS}/reports/ab?metric=converted&within=long", None, 400, "E106"),
    ("GET", f"{VISITS}/reports/ab?metric=converted", None, 404, "E206"),
    ("GET", f"{VISITS}/reports/ab?metric=converted&version=99", None, 404, "E206"),
    ("GET", f"{VISITS}/reports/ab?metric=converted&version=1", None, 400, "E106"),
    ("GET", f"{VISITS}/reports/ab?metric=converted&quantiles=mean", None, 400, "E106"),
    ("GET", f"{VISITS}/reports/shadow?since=tomorrow", None, 400, "E106"),
    ("GET", f"{VISITS}/reports/drift?since=400d", None, 400, "E106"),
    ("GET", f"{VISITS}/reports/drift?policy=mood", None, 400, "E106"),
    ("GET", f"{VISITS}/reports/drift?version=99", None, 404, "E206"),
    ("GET", f"{VISITS}/reports/skew?version=99", None, 404, "E206"),
    ("GET", f"{VISITS}/reports/shadow", None, 404, "E206"),
    ("GET", f"{VISITS}/reports/tea", None, 404, "E404"),
]


async def test_what_cannot_be_done_says_why_and_what_next_and_changes_nothing(proxy, database_url):
    before = await rows_of(database_url)

    for method, path, body, status, code in IMPOSSIBLE:
        answer = await proxy.request(method, path, json=body) if body is not None else await proxy.request(method, path)

        assert (answer.status_code, answer.json()["code"]) == (status, code), (path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["next"]
    assert await rows_of(database_url) == before


# -- rollback ----------------------------------------------------------------------------------------------------------


@pytest.mark.timed
async def test_a_rollback_needs_no_body_and_doing_it_again_changes_nothing(proxy, database_url):
    await until(lambda: is_reported(database_url))
    await proxy.patch(
        f"{VISITS}/policy", json={"challenger": "2", "challenger_weight": 20}, headers={"if-match": '"1"'}
    )

    first = await proxy.post(f"{VISITS}:rollback")
    second = await proxy.post(f"{VISITS}:rollback", json={"reason": "it still burns"})

    done, again = first.json()["rollback"], second.json()["rollback"]
    assert (first.status_code, second.status_code) == (200, 200)
    assert (done["did"], done["changed"], done["generation"], done["champion"]) == ("weight 0", True, 3, "1")
    assert (again["changed"], again["generation"]) == (False, 3)
    for told in (done, again):
        assert (told["confirmed"]["proxies"], told["confirmed"]["proxies_on_generation"]) == (1, 1)
        assert told["confirmed"]["seconds"] < 2
        assert (told["in_flight"], told["dry_run"]) == ({}, False)
    assert done["versions_without_calls"] == ["2", "3"]
    (weight,) = await sql(database_url, "SELECT challenger_weight FROM ServingPolicy")
    assert weight["challenger_weight"] == 0
    (signed,) = await sql(database_url, "SELECT actor, via FROM PolicyAudit WHERE generation = 3")
    assert tuple(signed) == ("ops", "http")


async def test_a_rollback_is_tried_before_it_is_made_and_its_reach_is_asked_for(proxy, database_url):
    await until(lambda: is_reported(database_url))
    await proxy.patch(
        f"{VISITS}/policy", json={"challenger": "2", "challenger_weight": 20}, headers={"if-match": '"1"'}
    )
    before = await rows_of(database_url)

    tried = (await proxy.post(f"{VISITS}:rollback", json={"dry_run": True})).json()["rollback"]

    assert await rows_of(database_url) == before
    assert (tried["did"], tried["changed"], tried["dry_run"], tried["confirmed"]) == ("weight 0", True, True, None)

    async def has_heard() -> bool:
        reach = (await proxy.get(f"{VISITS}/policy/reach?generation=2", headers=EYE)).json()["reach"]
        assert (reach["generation"], reach["proxies"], reach["in_flight"]) == (2, 1, {})
        return bool(reach["proxies_on_generation"] == 1)

    await until(has_heard)
    assert (await proxy.get(f"{VISITS}/policy/reach?generation=3")).json()["reach"]["proxies_on_generation"] == 0


async def test_long_lists_come_in_pages_that_are_the_whole_list_together(proxy, database_url):
    async def paged(path: str, member: str, place: str, limit: int) -> list[Any]:
        found: list[Any] = []
        cursor: str | None = ""
        while cursor is not None:
            asked = {"limit": str(limit)} | ({"cursor": cursor} if cursor else {})
            page = (await proxy.get(path, params=asked)).json()
            assert len(page[member]) <= limit
            found, cursor = found + [one[place] for one in page[member]], page["next_cursor"]
        return found

    await register(database_url, 4, [1])
    await register(database_url, 1, [1], model_name="digits")

    for path, member, place in (
        ("/v1/registry/versions", "versions", "id"),
        ("/v1/registry/models/visits/versions", "versions", "version"),
        ("/v1/registry/models", "models", "model_name"),
        ("/v1/keys", "keys", "id"),
        ("/v1/audit", "audit", "changed_at"),
    ):
        whole = [one[place] for one in (await proxy.get(path, params={"limit": "1000"})).json()[member]]
        assert await paged(path, member, place, 2) == whole, path
        assert len(set(whole)) >= 2, path
    of_one = [one["version"] for one in (await proxy.get("/v1/registry/versions?model=digits")).json()["versions"]]
    wrong = await proxy.get("/v1/registry/versions?cursor=x")
    assert of_one == ["1"]
    assert (wrong.status_code, wrong.json()["code"], pointers_of(wrong)) == (400, "E106", ["/query/cursor"])
    assert pointers_of(await proxy.get("/v1/audit?cursor=9")) == ["/query/cursor"]


async def test_the_audit_is_searched_by_actor_tool_time_and_generation(proxy):
    await proxy.patch(f"{VISITS}/policy", json={"fallback": False}, headers={"if-match": '"1"'})

    async def found(query: str) -> list[tuple[str, str, int | None]]:
        entries = (await proxy.get(f"/v1/audit?model=visits&subject=policy&{query}")).json()["audit"]
        return [(one["actor"], one["via"], one["generation"]) for one in entries]

    assert await found("actor=ops") == await found("via=http") == await found("generation=2") == [("ops", "http", 2)]
    assert await found("actor=dana") == await found("since=1s&via=console") == []
    assert len(await found("since=1h")) == 2


async def test_what_changed_and_why_an_entity_gets_its_answer_are_told_as_on_the_command_line(served, database_url):
    changed = (await served.get(f"{VISITS}/changes", headers=EYE)).json()
    explained = (await served.get(f"{VISITS}/explanation?entity_id=c-1", headers=EYE)).json()
    drawn = (await served.get(f"{VISITS}/explanation?entity_id=c-1&columns=80", headers=EYE)).json()
    nothing = await served.get(f"{VISITS}/explanation", headers=EYE)

    printed_changes = await printed(database_url, "explain", "visits")
    assert changed["changed_within_an_hour"]["changes"] == printed_changes["changed_within_an_hour"]["changes"]
    assert explained == await printed(database_url, "explain", "visits", "c-1")
    assert "md5(visits:c-1) mod 100 = bucket" in drawn["text"]
    assert (nothing.status_code, nothing.json()["code"]) == (400, "E106")


@pytest.mark.timed
async def test_a_rollback_says_which_proxies_have_not_heard_of_it(proxy, database_url):
    await until(lambda: is_reported(database_url))
    await proxy.patch(
        f"{VISITS}/policy", json={"challenger": "2", "challenger_weight": 20}, headers={"if-match": '"1"'}
    )
    await sql(
        database_url,
        "INSERT INTO ProxyInstance (instance, generations, in_flight)"
        " SELECT 'frozen:1', '{\"visits\": 2}', jsonb_build_object(id::text, 3) FROM ModelVersion WHERE version = '2'",
    )

    began = time.monotonic()
    told = (await proxy.post(f"{VISITS}:rollback")).json()["rollback"]

    none_stale = {"count": 0, "first": []}
    assert told["confirmed"] == {"proxies": 2, "proxies_on_generation": 1, "seconds": None, "silent": none_stale}
    assert told["in_flight"] == {"2": 3}
    assert 2 <= time.monotonic() - began < 10


async def test_a_rollback_that_no_live_proxy_can_confirm_says_so_and_names_the_stale(proxy, registry, database_url):
    await until(lambda: is_reported(database_url))
    freeze = "NEW.generations = OLD.generations; NEW.seen_at = now() - INTERVAL '2 minutes'; RETURN NEW;"
    for statement in (
        f"CREATE FUNCTION frozen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {freeze} END $$",
        "CREATE TRIGGER frozen BEFORE UPDATE ON ProxyInstance FOR EACH ROW EXECUTE FUNCTION frozen()",
        "UPDATE ProxyInstance SET in_flight = '{}'",
    ):
        await sql(database_url, statement)
    await sql(database_url, "UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 5", registry["2"])

    told = (await proxy.post(f"{VISITS}:rollback")).json()["rollback"]

    confirmed = told["confirmed"]
    assert told["changed"]
    assert (confirmed["proxies"], confirmed["proxies_on_generation"], confirmed["seconds"]) == (0, 0, None)
    assert confirmed["silent"]["count"] == 1
    (silent,) = confirmed["silent"]["first"]
    assert silent["instance"].endswith(f":{os.getpid()}")
    assert silent["seconds"] >= 120
    assert told["in_flight"] is None, "no live proxy reports calls under way"


async def test_a_rollback_is_done_while_a_proxys_login_keeps_the_reports_locked(proxy, registry, database_url):
    await sql(database_url, "UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 5", registry["2"])
    rollout = (await sql(database_url, "SELECT id FROM Rollout"))[0]["id"]

    async with locked_reports(database_url):
        told = (await proxy.post(f"{VISITS}:rollback")).json()["rollback"]
        shown = (await proxy.get(f"{VISITS}/rollouts/{rollout}")).json()

    assert (told["did"], told["changed"]) == ("weight 0", True)
    assert (told["confirmed"], told["in_flight"]) == (None, None)
    assert (shown["presence"]["proxies"], shown["presence"]["proxies_hidden"]) == (0, True)


async def test_rollbacks_do_not_wait_for_the_proxies_that_another_one_waits_for(proxy, registry, database_url):
    await until(lambda: is_reported(database_url))
    await sql(
        database_url, "INSERT INTO ProxyInstance (instance, seen_at) VALUES ('frozen', now() + INTERVAL '1 hour')"
    )
    await sql(database_url, "UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 5", registry["2"])

    answers = await asyncio.gather(*(proxy.post(f"{VISITS}:rollback") for _ in range(8)))

    assert {answer.status_code for answer in answers} == {200}
    assert sum(answer.json()["rollback"]["changed"] for answer in answers) == 1


async def test_a_rollback_that_is_done_is_no_failure_because_a_proxy_is_late(proxy, registry, database_url):
    await until(lambda: is_reported(database_url))
    await sql(
        database_url, "INSERT INTO ProxyInstance (instance, seen_at) VALUES ('frozen', now() + INTERVAL '1 hour')"
    )
    await sql(database_url, "UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 5", registry["2"])

    answer = await proxy.post(f"{VISITS}:rollback", headers={"x-request-timeout-ms": "1500"})

    assert answer.status_code == 200
    assert answer.json()["rollback"]["changed"]


async def test_a_rollback_reaches_every_worker_of_a_real_proxy(registry, tmp_path, database_url):
    with a_stack(tmp_path, database_url) as stack:
        stack.start_proxy(workers=2, wait_ready=False)

        async def are_present() -> bool:
            return len(await sql(database_url, "SELECT 1 FROM ProxyInstance")) == 2

        await until(are_present, seconds=60)
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{stack.proxy_port}", headers=OPS, timeout=30
        ) as proxy:
            changed = await proxy.patch(
                f"{VISITS}/policy", json={"challenger": "2", "challenger_weight": 20}, headers={"if-match": '"1"'}
            )
            told = (await proxy.post(f"{VISITS}:rollback")).json()["rollback"]

    assert changed.status_code == 200
    assert (told["did"], told["generation"]) == ("weight 0", 3)
    assert (told["confirmed"]["proxies"], told["confirmed"]["proxies_on_generation"]) == (2, 2)


# -- policies ----------------------------------------------------------------------------------------------------------


async def test_a_policy_is_changed_by_the_one_who_saw_it(proxy, database_url):
    seen = await proxy.get(f"{VISITS}/policy", headers=EYE)
    changed = await proxy.patch(
        f"{VISITS}/policy",
        json={"challenger": "2", "challenger_weight": 10, "reason": "a first look"},
        headers={"if-match": seen.headers["etag"]},
    )
    same = await proxy.patch(
        f"{VISITS}/policy", json={"challenger_weight": 10}, headers={"if-match": changed.headers["etag"]}
    )
    now = await proxy.get(f"{VISITS}/policy")
    (entry, *_) = (await proxy.get("/v1/audit?model=visits&limit=1", headers=EYE)).json()["audit"]

    assert (seen.headers["etag"], seen.json()["policy"]["champion"]) == ('"1"', "1")
    assert (changed.status_code, changed.json()["changed"], changed.headers["etag"]) == (200, True, '"2"')
    assert (same.status_code, same.json()["changed"], same.headers["etag"]) == (200, False, '"2"')
    assert now.json()["policy"]["challenger"] == "2"
    assert now.json()["policy"]["challenger_weight"] == 10
    assert (entry["actor"], entry["via"], entry["reason"]) == ("ops", "http", "a first look")
    assert entry["changes"] == {"challenger": [None, "2"], "challenger_weight": [0, 10]}


async def test_of_two_people_at_once_one_is_told_that_the_policy_moved(proxy):
    answers = await asyncio.gather(
        *(
            proxy.patch(
                f"{VISITS}/policy",
                json={"challenger": "2", "challenger_weight": weight},
                headers={"if-match": '"1"'},
            )
            for weight in (10, 20)
        )
    )

    assert sorted(answer.status_code for answer in answers) == [200, 412]
    (refused,) = (answer for answer in answers if answer.status_code == 412)
    assert refused.json()["code"] == "E409"
    assert "the policy is at generation 2 since " in refused.json()["detail"]
    assert refused.json()["detail"].endswith("by ops")


REFUSED_CHANGES: Sequence[tuple[str | None, Any, int, str]] = [
    (None, {"challenger_weight": 5}, 428, "E428"),
    ("*", {"challenger_weight": 5}, 400, "E104"),
    ('"9"', {"challenger_weight": 5}, 412, "E409"),
    ('"1"', {"challenger_weight": 5}, 409, "E203"),
    ('"1"', {"challenger": "9"}, 404, "E206"),
    ('"1"', {"challenger": "2", "wait": 5, "challenger_weight": "many"}, 422, "E108"),
    ('"1"', {}, 422, "E108"),
]


async def test_a_change_that_cannot_be_made_is_refused(proxy, database_url):
    before = await rows_of(database_url)

    for if_match, body, status, code in REFUSED_CHANGES:
        headers = {} if if_match is None else {"if-match": if_match}
        answer = await proxy.patch(f"{VISITS}/policy", json=body, headers=headers)

        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        if "wait" in body:
            assert pointers_of(answer) == ["/wait", "/challenger_weight"]
    assert await rows_of(database_url) == before


async def test_a_model_without_policy_gets_its_first_one_with_generation_0(proxy, database_url):
    await sql(database_url, UNSERVED)

    missing = await proxy.get("/v1/models/good/policy")
    stale = await proxy.patch("/v1/models/good/policy", json={"champion": "1"}, headers={"if-match": '"1"'})
    made = await proxy.patch("/v1/models/good/policy", json={"champion": "1"}, headers={"if-match": '"0"'})

    assert (missing.status_code, '"0"' in missing.json()["next"]) == (404, True)
    assert stale.status_code == 412
    assert (made.status_code, made.json()["policy"]["champion"], made.headers["etag"]) == (200, "1", '"1"')


# -- who may do it -----------------------------------------------------------------------------------------------------

MOVING = (Scope.OPERATE, Scope.REGISTER)
MOVES = sorted(path for (_, path), scope in ACCESS.items() if scope in MOVING and "predict" not in path)


async def test_who_has_no_scope_for_it_moves_no_traffic(proxy, database_url):
    before = await rows_of(database_url)
    told: dict[str, set[int]] = defaultdict(set)

    for path in MOVES:
        method = next(method for method, listed in ACCESS if listed == path and method != "GET")
        may_not = {"anonymous": {"authorization": ""}, "eye": EYE, "shop": SHOP}
        if ACCESS[method, path] is Scope.REGISTER:
            may_not["mover"] = MOVER
        for name, headers in may_not.items():
            request = proxy.build_request(
                method,
                path.format(model="visits", rollout_id=1, version="2", target="127.0.0.1:1", test_id=1),
                headers=headers,
            )
            if name == "anonymous":
                del request.headers["authorization"]
            told[name].add((await proxy.send(request)).status_code)

    assert len(MOVES) == 20
    assert told == {"anonymous": {403}, "eye": {403}, "shop": {403}, "mover": {403}}
    assert await rows_of(database_url) == before
    assert (await proxy.get("/v1/audit", headers=SHOP)).status_code == 403


async def test_a_key_that_may_makes_others_that_have_no_more_than_it_has_and_end_no_later(proxy, database_url):
    soon, later = (f"2999-01-0{day}T00:00:00Z" for day in (1, 2))
    await sql(
        database_url,
        "INSERT INTO ApiKey (id, sha256, scopes, expires_at) VALUES ('maker', $1, '{keys,read}', '2999-01-01T12:00Z')",
        sha256(b"secret").hexdigest(),
    )
    maker = {"authorization": "Bearer maker.secret"}

    async def is_known() -> bool:
        return bool((await proxy.get("/v1/keys", headers=maker)).status_code == 200)

    await until(is_known)
    told = {
        why: await proxy.post("/v1/keys", json=body, headers=maker)
        for why, body in {
            "good": {"scopes": ["read:visits"], "expires_at": soon, "note": "CI"},
            "more": {"scopes": ["operate"], "expires_at": soon},
            "longer": {"scopes": ["read"], "expires_at": later},
            "for good": {"scopes": ["read"]},
        }.items()
    }
    made = told["good"].json()
    child = {"authorization": f"Bearer {made['credential']}"}

    async def is_admitted() -> bool:
        return bool((await proxy.get(f"{VISITS}/policy", headers=child)).status_code == 200)

    await until(is_admitted)
    await sql(database_url, "UPDATE ApiKey SET expires_at = now() WHERE id = $1", made["key"]["id"])
    await until(lambda: _is_refused(proxy, child))
    ended = [await proxy.post(f"/v1/keys/{key}:revoke", headers=maker) for key in ("ops", made["key"]["id"], "maker")]

    assert {why: answer.status_code for why, answer in told.items()} == {
        "good": 201, "more": 403, "longer": 403, "for good": 403,
    }  # fmt: skip
    assert [answer.status_code for answer in ended] == [403, 200, 200]
    signed = await sql(
        database_url, "SELECT DISTINCT actor, via FROM RegistryAudit WHERE subject = 'key' AND via = 'http'"
    )
    assert [tuple(entry) for entry in signed] == [("maker", "http")]


async def _is_refused(proxy: httpx2.AsyncClient, headers: Mapping[str, str]) -> bool:
    answer = await proxy.get(f"{VISITS}/policy", headers=headers)
    return bool(answer.status_code == 401 and "expired" in answer.json()["detail"])


async def test_a_key_for_one_model_is_told_nothing_of_the_others(served, database_url):
    begun = (await served.post(f"{VISITS}/rollouts", json=START)).json()["rollout"]["rollout_id"]
    await register(database_url, 1, [1], model_name="digits")
    await sql(
        database_url,
        "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('other', $1, $2)",
        sha256(b"secret").hexdigest(),
        [f"{scope}:{model}" for scope in ("read", "operate") for model in ("digits", "ghost")],
    )
    other = {"authorization": "Bearer other.secret"}

    async def told(path: str, method: str = "GET") -> dict[str, Any]:
        document: dict[str, Any] = (await served.request(method, path, headers=other)).json()
        return document

    async def is_known() -> bool:
        return bool((await served.get("/v1/models", headers=other)).status_code == 200)

    await until(is_known)
    existing, missing = await told(f"/v1/models/digits/rollouts/{begun}"), await told("/v1/models/digits/rollouts/99")
    paused = await told(f"/v1/models/digits/rollouts/{begun}:pause", "POST")
    unknown = [await told("/v1/models/ghost/rollouts"), await told("/v1/models/ghost/policy")]

    assert existing["status"] == missing["status"] == paused["status"] == 404
    assert existing["detail"].replace(str(begun), "99") == missing["detail"]
    for document in (existing, missing, paused, *unknown):
        assert document["code"] == "E206"
        assert not any(name in str(document) for name in ("visits", "there are"))
    assert not any("digits" in str(document) for document in unknown)


async def test_a_key_for_one_model_reads_operates_and_tells_outcomes_of_that_one_alone(proxy, database_url):
    digits = await register(database_url, 1, [1], model_name="digits")
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('digits', $1)", digits)
    scopes = ["read:visits", "operate:visits", "outcomes:visits"]
    await sql(
        database_url,
        "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('clerk', $1, $2)",
        sha256(b"secret").hexdigest(),
        scopes,
    )
    clerk = {"authorization": "Bearer clerk.secret"}

    async def names() -> list[str]:
        found = await proxy.get("/v1/models", headers=EYE)
        return [model["model"] for model in found.json()["models"]]

    async def is_known() -> bool:
        return await names() == ["digits", "visits"] and (await proxy.get(VISITS, headers=clerk)).status_code == 200

    async def status_of(method: str, path: str, document: Any = None) -> int:
        answer = await proxy.request(method, path, json=document, headers=clerk)
        return int(answer.status_code)

    def outcome(number: int, model: str) -> dict[str, Any]:
        known = {"event_id": f"e{number}", "model": model, "entity_id": "c", "name": "bought", "value": 1}
        return {**known, "occurred_at": "2026-11-20T13:02:11Z"}

    await until(is_known)
    own = [
        await status_of("GET", f"{VISITS}/policy"),
        await status_of("GET", "/v1/audit?model=visits"),
        await status_of("POST", f"{VISITS}:rollback"),
        await status_of("POST", "/v1/outcomes", {"events": [outcome(1, "visits")]}),
        await status_of("GET", "/problems/E403"),
    ]
    before = await rows_of(database_url)
    others = [
        await status_of("GET", "/v1/models/digits"),
        await status_of("GET", "/v1/models/digits/policy"),
        await status_of("GET", "/v1/audit"),
        await status_of("GET", "/v1/audit?model=digits"),
        await status_of("GET", "/v1/audit?model=visits&model=digits"),
        await status_of("GET", "/v1/audit?subject=key"),
        await status_of("GET", "/v1/experiments?model=digits"),
        await status_of("GET", "/v1/models/digits/changes"),
        await status_of("GET", "/v1/models/digits/policy/reach"),
        await status_of("POST", "/v1/models/digits:rollback"),
        await status_of("POST", "/v1/models/digits/versions/1/predict", {"inputs": {}}),
        await status_of("POST", "/v1/outcomes", {"events": [outcome(2, "visits"), outcome(3, "digits")]}),
        await status_of("POST", f"{VISITS}/predict", {"inputs": {}}),
    ]

    listed = (await proxy.get("/v1/models", headers=clerk)).json()
    assert own == [200, 200, 200, 202, 200]
    assert others == [403] * len(others)
    assert [model["model"] for model in listed["models"]] == ["visits"]
    assert await rows_of(database_url) == before
    assert [row[0] for row in await sql(database_url, "SELECT event_id FROM OutcomeEvent")] == ["e1"]


async def test_where_keys_are_needed_no_caller_reads_without_one(registry, tmp_path, database_url):
    async with a_proxy(tmp_path, database_url, auth=True) as proxy:
        request = proxy.build_request("GET", "/v1/audit")
        del request.headers["authorization"]

        assert (await proxy.send(request)).status_code == 401
        assert (await proxy.get("/v1/audit", headers=EYE)).status_code == 200


# -- reports -----------------------------------------------------------------------------------------------------------


async def a_finished_test(world: World) -> None:
    """Twenty days at half and half, with a shadow; a fifth of A's entities convert, and two fifths of B's."""
    await world.add_versions("6", "7", "8")
    generation = await world.set_policy("6", "7", 50, shadow="8")
    await world.backdate(20 * DAY)
    began = time.time() - 20 * DAY + 1
    calls, told = [], []
    for number in range(1_200):
        entity, at = f"cust-{number}", began + number * 11 * DAY / 1_200
        assigned = arm_by_bucket(world.versions, entity, 50, ("6", "7"))
        calls.append(Call(entity, at, assigned, generation, score=number % 100 / 100))
        if number % 5 < (2 if assigned == world.versions["7"] else 1):
            told.append(Told(at + HOUR, entity))
    named = await world.call(calls)
    await world.call(
        call._replace(assigned=world.versions["8"], role="shadow", score=min(1.0, (call.score or 0) + 0.1))
        for call in named
        if call.assigned == world.versions["6"]
    )
    await world.tell(told)


def without_now(document: dict[str, Any]) -> dict[str, Any]:
    """Return a report without what depends on the moment it was asked for."""
    report: dict[str, Any] = document["report"]
    return {name: value for name, value in report.items() if name not in ("since", "until")}


async def test_reports_are_those_of_the_command_line(proxy, database: asyncpg.Connection, database_url):
    await a_finished_test(World(database))

    ab = (await proxy.get(f"/v1/models/{MODEL}/reports/ab?metric=converted", headers=EYE)).json()
    named = (await proxy.get(f"/v1/models/{MODEL}/reports/ab?metric=converted&version=7", headers=EYE)).json()
    shadow = (await proxy.get(f"/v1/models/{MODEL}/reports/shadow?since=20d", headers=EYE)).json()
    ab_printed = await printed(database_url, "ab", "report", MODEL, "--metric", "converted")
    shadow_printed = await printed(database_url, "shadow", "report", MODEL, "--since", "20d")

    assert (ab["report"]["champion"], ab["report"]["challenger"]) == ("6", "7")
    assert ab["report"]["difference"]["difference"] == pytest.approx(0.2, abs=0.06)
    assert without_now(ab) == without_now(named) == without_now(ab_printed)
    assert ab["report"]["quantiles"] is None
    drift = (await proxy.get(f"/v1/models/{MODEL}/reports/drift", headers=EYE)).json()
    drift_printed = await printed(database_url, "drift", "report", MODEL)
    next_step = drift_printed["report"]["next"]

    assert drift["report"] == drift_printed["report"]
    assert {version["verdict"] for version in drift["report"]["versions"]} == {"no_baseline"}
    assert next_step.startswith("understudy drift baseline set")
    assert shadow["report"]["calls"] > 500
    assert without_now(shadow) == without_now(shadow_printed)
    assert ab["schema"] == shadow["schema"] == "understudy/v1"


async def test_a_report_has_the_quantiles_that_the_query_names(proxy, database: asyncpg.Connection, database_url):
    await a_finished_test(World(database))
    path = f"/v1/models/{MODEL}/reports/ab?metric=converted"

    of_latency = (await proxy.get(f"{path}&quantiles=latency", headers=EYE)).json()
    of_a_share = (await proxy.get(f"{path}&quantiles=value", headers=EYE)).json()
    latency_printed = await printed(
        database_url, "ab", "report", MODEL, "--metric", "converted", "--quantiles", "latency"
    )

    found = of_latency["report"]["quantiles"]
    assert (found["of"], found["gap"]) == ("latency", "")
    assert found["entities_a"] + found["entities_b"] == 1_200
    assert [own["probability"] for own in found["differences"]] == [0.5, 0.9, 0.95, 0.99]
    assert all(own["low"] <= own["difference"] <= own["high"] for own in found["differences"])
    assert without_now(of_latency) == without_now(latency_printed)
    assert of_a_share["report"]["quantiles"]["differences"] == []
    assert "has no quantiles" in of_a_share["report"]["quantiles"]["gap"]


DECLARED = {
    "wanted": {"amount": 0.05},
    "choice": {"within_seconds": 604_800},
    "is_share": True,
    "difference": 0.01,
    "entities_per_arm": 300,
    "looks": 5,
    "alpha": 0.05,
}
CRAFTED_ROWS = [
    ({**DECLARED, "looks": 30_000_000}, None, "plan.looks"),
    ({**DECLARED, "beside": [[]] * 100_000}, None, "plan: expected an object, of at most 64 KiB"),
    (DECLARED, "[" * 1_500 + "]" * 1_500, "result: expected an object"),
    (DECLARED, '{"looks": [{"at": 1, "fraction": "a", "state": "zzz", "sentence": 5}]}', "result.looks[0]"),
]


async def test_a_declared_test_that_is_unreadable_is_one_clear_error_and_stops_nothing_else(
    proxy, database: asyncpg.Connection, database_url
):
    world = World(database)
    await a_finished_test(world)
    path = f"/v1/models/{MODEL}/reports/ab"

    for plan, result, place in CRAFTED_ROWS:
        row = await database.fetchval(
            """
            INSERT INTO Experiment (model_name, name, champion_version, challenger_version, metric, plan, result)
            VALUES ($1, 't', $2, $3, 'converted', $4, $5) RETURNING id
            """,
            MODEL,
            world.versions["6"],
            world.versions["7"],
            orjson.dumps(plan).decode(),
            result,
        )
        refused = await proxy.get(f"{path}?metric=converted", headers=EYE)
        told = await CommandLine(database_url).beside("ab", "report", MODEL, "--metric", "converted")
        beside = await proxy.get(f"{path}?metric=visited", headers=EYE)

        problem = refused.json()
        assert (refused.status_code, problem["code"]) == (503, "E511"), place
        assert f"row {row} of Experiment" in problem["detail"]
        assert place in problem["detail"]
        assert f"DELETE FROM Experiment WHERE id = {row}" in problem["next"]
        assert told.code == 1
        assert "E511" in told.err
        assert beside.status_code == 200
        await database.execute("DELETE FROM Experiment WHERE id = $1", row)
    assert (await proxy.get(f"{path}?metric=converted", headers=EYE)).status_code == 200


# -- when things are away ----------------------------------------------------------------------------------------------


async def test_without_postgres_control_calls_say_so_at_once_and_tell_no_address(registry, tmp_path, database_url):
    async def is_saved() -> bool:
        return bool((tmp_path / "policy.json").exists())

    async with a_proxy(tmp_path, database_url):
        await until(is_saved)

    async with a_proxy(tmp_path, "postgresql://nobody@127.0.0.1:1/nothing", database_timeout_seconds=1) as proxy:
        answers = [await proxy.post(f"{VISITS}:rollback"), await proxy.get("/v1/audit")]

    for answer in answers:
        assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "E510", "1")
        assert "127.0.0.1" not in answer.text


# -- the description ---------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A good call of an operation."""

    operation: str
    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = {}


REGISTERED = "/v1/registry/models/visits"
DESCRIBED = {
    "artifact_path": "s3://m",
    "framework": "sklearn",
    "input_schema": {"features": [{"name": "age", "dtype": "float32"}]},
    "output_schema": {"tensor": "probabilities", "dtype": "float32", "shape": [2], "score_index": 1},
}
ASKED_AB = {"metric": "converted"}
THE_CHAMPION_BY_AGENTS = """
    INSERT INTO VersionLoading (model_version_id, group_name)
    SELECT id, 'onnx' FROM ModelVersion WHERE model_name = 'visits' AND version = '1'
"""


def registry_calls() -> list[Asked]:
    """Each call about the registry, keys and tests, as one that is answered well the first time."""
    version = f"{REGISTERED}/versions/3"
    return [
        Asked("declareTest", "POST", f"/v1/models/{MODEL}/experiments", {**ASKED_AB, "looks": 2}),
        Asked("askReportAb", "POST", f"/v1/models/{MODEL}/reports/ab", ASKED_AB),
        Asked("listTests", "GET", f"/v1/models/{MODEL}/experiments"),
        Asked("listAllTests", "GET", "/v1/experiments?model=visits"),
        Asked("stopTest", "POST", f"/v1/models/{MODEL}/experiments/999:stop"),
        Asked("planTest", "GET", f"/v1/models/{MODEL}/reports/ab-plan?metric=converted"),
        Asked("listRegisteredModels", "GET", "/v1/registry/models"),
        Asked("getRegisteredModel", "GET", REGISTERED),
        Asked("listAllVersions", "GET", "/v1/registry/versions"),
        Asked("listApplied", "GET", "/v1/registry/applied"),
        Asked("listVersions", "GET", f"{REGISTERED}/versions"),
        Asked("getVersion", "GET", version),
        Asked("registerVersion", "POST", f"{REGISTERED}/versions", {"version": "9", **DESCRIBED}),
        Asked("checkVersion", "POST", f"{version}:check"),
        Asked("validateVersion", "POST", f"{version}:validate", {"robustness": True}),
        Asked("retireVersion", "POST", f"{version}:retire"),
        Asked("restoreVersion", "POST", f"{version}:restore"),
        Asked("addEndpoint", "PUT", f"{version}/endpoints/127.0.0.1:2"),
        Asked("removeEndpoint", "DELETE", f"{version}/endpoints/127.0.0.1:2"),
        Asked("listServers", "GET", "/v1/registry/servers"),
        Asked("getLoading", "GET", f"{version}/loading"),
        Asked("loadVersion", "POST", f"{version}:load?group=onnx"),
        Asked("unloadVersion", "POST", f"{version}:unload"),
        Asked("listAllRollouts", "GET", "/v1/rollouts"),
        Asked("checkOutcomes", "POST", "/v1/outcomes:check", {"models": ["visits"]}),
        Asked("listKeys", "GET", "/v1/keys"),
        Asked("createKey", "POST", "/v1/keys", {"scopes": ["read"]}),
        Asked("revokeKey", "POST", "/v1/keys/spare:revoke"),
    ]


async def ask_the_rest(by_name: Mapping[str, Asked], ask: Callable[..., Awaitable[None]]) -> None:
    """Reach what only some calls about the registry, keys and tests answer."""
    register, sizes = by_name["registerVersion"], by_name["planTest"]
    await ask(register._replace(path=f"{register.path}?dry_run=true", body={"version": "10", **DESCRIBED}))
    await ask(register)
    load, unload = by_name["loadVersion"], by_name["unloadVersion"]
    await ask(register._replace(body={"version": "11", "group_name": "onnx", **DESCRIBED}))
    await ask(load._replace(path=f"{REGISTERED}/versions/11:load"))
    await ask(unload._replace(path=f"{REGISTERED}/versions/11:unload"))
    await ask(unload._replace(path=f"{REGISTERED}/versions/1:unload"))
    await ask(by_name["validateVersion"]._replace(path=f"{REGISTERED}/versions/1:validate"))
    await ask(by_name["createKey"]._replace(body={"scopes": ["read:"]}))
    await ask(by_name["revokeKey"]._replace(path="/v1/keys/none:revoke"))
    await ask(by_name["retireVersion"]._replace(path=f"{REGISTERED}/versions/1:retire"))
    await ask(by_name["addEndpoint"]._replace(path=f"{REGISTERED}/versions/3/endpoints/169.254.169.254:80"))
    await ask(by_name["removeEndpoint"]._replace(path=f"{REGISTERED}/versions/1/endpoints/127.0.0.1:1"))
    for call in (by_name["declareTest"], by_name["askReportAb"]):
        await ask(call._replace(body={**call.body, "effect": "much"}))
        await ask(call._replace(body={**call.body, "within_seconds": 60.0, "given": ["--within"]}))
    await ask(sizes._replace(path=f"{sizes.path}&effect=much"))
    for _ in range(2):
        await ask(by_name["stopTest"]._replace(path=f"/v1/models/{MODEL}/experiments/1:stop"))


async def test_a_wrong_number_of_servers_is_refused_with_what_may_be_said(served):
    named = {"version": "12", "group_name": "onnx", "replicas": "many", **DESCRIBED}
    answers = [
        await served.post(f"{REGISTERED}/versions/1:load", params={"group": "onnx", "replicas": "9..1"}),
        await served.post(f"{REGISTERED}/versions", json=named),
    ]

    for answer, said in zip(answers, ("9..1", "many"), strict=True):
        assert answer.status_code == 422, answer.text
        assert f"replicas: '{said}' is no number of servers: say 2, 1..4, or all; from 1 to 64" in answer.text


def content_of(answer: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """Return an answer's bodies by content type, also where the answer is one of those that operations share."""
    whole = shared[answer["$ref"].rpartition("/")[2]] if "$ref" in answer else answer
    return dict(whole["content"])


@pytest.mark.exhaustive
async def test_every_status_that_the_description_names_is_reached_and_no_other_is(
    served, registry, tmp_path, database_url, database
):
    await a_finished_test(World(database))
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for statement in (UNSERVED, THE_CHAMPION_BY_AGENTS):
        await sql(database_url, statement)
    await sql(database_url, "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('spare', repeat('a', 64), '{read}')")
    gated = {"steps": [5, 50, 100], "gates": {"before_start": {"approval": "another"}}}
    place = (await served.post(f"{VISITS}/rollouts", json={**START, "plan": gated})).headers["location"]
    bodies = {CommandKind.APPROVE: {"reason": "looked at it"}}
    commands = [Asked(f"{kind}Rollout", "POST", f"{place}:{kind}", bodies.get(kind)) for kind in CommandKind]
    own = Asked("approveRollout", "POST", f"{place}:approve", {"reason": "looked at it", "ahead": True})
    calls = [
        Asked("startRollout", "POST", f"{VISITS}/rollouts", START),
        Asked("listRollouts", "GET", f"{VISITS}/rollouts"),
        Asked("getRollout", "GET", place),
        *commands,
        Asked("rollBack", "POST", f"{VISITS}:rollback"),
        Asked("getPolicy", "GET", f"{VISITS}/policy"),
        Asked("changePolicy", "PATCH", f"{VISITS}/policy", {"fallback": False}, {"if-match": '"2"'}),
        Asked("getReach", "GET", f"{VISITS}/policy/reach"),
        Asked("getChanges", "GET", f"{VISITS}/changes"),
        Asked("getExplanation", "GET", f"{VISITS}/explanation?entity_id=c-1"),
        Asked("listAudit", "GET", "/v1/audit"),
        Asked("reportAb", "GET", f"/v1/models/{MODEL}/reports/ab?metric=converted"),
        Asked("reportShadow", "GET", f"/v1/models/{MODEL}/reports/shadow?since=20d"),
        Asked("reportDrift", "GET", f"/v1/models/{MODEL}/reports/drift"),
        Asked("reportSkew", "GET", f"/v1/models/{MODEL}/reports/skew"),
        *registry_calls(),
    ]
    async with (
        a_proxy(tmp_path / "up", database_url, auth=True, docs=True, receive_seconds=0.3) as up,
        a_proxy(tmp_path / "down", "postgresql://nobody@127.0.0.1:1/nothing") as down,
    ):

        async def ask(
            call: Asked, headers: Mapping[str, str] = OPS, *, proxy: httpx2.AsyncClient = up, content: Any = None
        ) -> None:
            body = content if content is not None else b"" if call.body is None else orjson.dumps(call.body)
            request = proxy.build_request(call.method, call.path, content=body, headers={**call.headers, **headers})
            if headers.get("authorization") == "":
                del request.headers["authorization"]
            answer = await proxy.send(request)
            found[call.operation][str(answer.status_code)] = answer.headers["content-type"]

        async def slowly() -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.sleep(0.6)

        await ask(own)
        for call in calls:
            await ask(call)
            await ask(call, proxy=down)
            await ask(call, {"authorization": ""})
            await ask(call, SHOP)
            await ask(call, BAD_DEADLINE)
            await ask(call, NO_TIME)
            await ask(call._replace(path=call.path.replace("visits", "nobody").replace(MODEL, "nobody")))
            if call.method == "GET":
                continue
            await ask(call, content=b" " * 1_100_000)
            await ask(call, content=b'{"tea":1}')
            await ask(call, content=slowly())
        by_name = {call.operation: call for call in calls}
        start, change = by_name["startRollout"], by_name["changePolicy"]
        await ask(start._replace(path=f"{start.path}?dry_run=true"))
        await ask(start)
        await ask(by_name["rollBack"]._replace(path="/v1/models/good:rollback"))
        now = (await up.get(change.path)).headers["etag"]
        await ask(change, {"if-match": now})
        now = (await up.get(change.path)).headers["etag"]
        await ask(change._replace(body={"challenger": "1"}), {"if-match": now})
        await ask(change._replace(headers={}))
        await ask_the_rest(by_name, ask)
        document = (await up.get("/openapi.json")).json()

    operations = [call for path in document["paths"].values() for call in path.values()]
    shared = document["components"]["responses"]
    named = {
        call["operationId"]: {
            status: next(iter(content_of(answer, shared)))
            for status, answer in call["responses"].items()
            if status != "default"
        }
        for call in operations
        if call["tags"] == ["control"]
    }
    assert found == named
