"""The console over HTTP with a real Postgres: sign-in, scopes, forms, pages of a rollout, acts and their audit."""

import asyncio
import re
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from html import unescape
from importlib.abc import MetaPathFinder
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from contract.servers import TcpRelay
from pydantic import SecretStr
from worlds.console import RunningConsole, a_key, closed_port, is_sound, running_console, texts_of
from worlds.rollout import PLAN, TWINS, WORSE, PastRollout, two_versions

from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.bootstrap import console as parts
from understudy.core.rollout.plan import Approver, Gate, GatePlace
from understudy.entrypoints.console import connections
from understudy.entrypoints.console.access import login_tries, visitors
from understudy.ports.registry.registry import Actor
from understudy.registry.changes import create_key
from understudy.settings import Settings

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}\u202e"
SHOWN = HOSTILE.replace("\u202e", "\ufffd")
CHURN = "/models/churn"


@pytest.fixture
async def console(database_url: str) -> AsyncIterator[RunningConsole]:
    async with running_console(database_url) as running:
        yield running


@pytest.fixture
async def rollout(database: asyncpg.Connection, database_url: str) -> PastRollout:
    """At 10 %, two minutes in."""
    past = PastRollout(database, database_url, TWINS, 600)
    await past.begin()
    await past.go_on(2)
    return past


A_MONITOR_LEADS = """
    INSERT INTO MonitorLease (name, holder, epoch) VALUES ('monitor', 'm-1', 1)
    ON CONFLICT (name) DO UPDATE SET renewed_at = now()
"""


async def audited(database: asyncpg.Connection) -> list[Any]:
    rows = await database.fetch("SELECT actor, via, reason FROM PolicyAudit ORDER BY id DESC")
    return [tuple(row) for row in rows]


async def test_who_is_not_signed_in_is_led_to_the_login_and_a_wrong_key_gets_no_session(console):
    async with console.visit() as visit:
        led = await visit.get(f"{CHURN}/acts/pause?rollout=1")
        refused = await visit.sign_in("nokey.nosecret")
        good = await visit.sign_in(f"Bearer {await console.key('read')}")

    assert (led.status_code, led.headers["location"]) == (
        303,
        "/login?next=%2Fmodels%2Fchurn%2Facts%2Fpause%3Frollout%3D1",
    )
    assert (refused.status_code, refused.headers.get("set-cookie")) == (401, None)
    assert "The key is unknown" not in refused.text
    assert "the key is unknown, revoked, or may neither read nor operate" in refused.text
    cookie = good.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}


async def test_few_wrong_keys_a_minute_are_looked_at_and_the_right_one_waits_then_too(console, monkeypatch):
    monkeypatch.setattr(login_tries, "TRIES_OF_ADDRESS", 5)
    async with console.visit() as visit:
        codes = [(await visit.sign_in(f"k{number}.wrong")).status_code for number in range(6)]
        late = await visit.sign_in(await console.key("read"))

    assert codes == [401] * 5 + [429]
    assert late.status_code == 429
    assert 0 < int(late.headers["retry-after"]) <= 60
    assert "E600" in late.text


async def test_the_sixth_wrong_secret_of_a_key_within_a_minute_is_not_looked_at(console):
    credential = await console.key("read")
    key_id = credential.partition(".")[0]
    async with console.visit() as visit:
        answers = [await visit.sign_in(f"{key_id}.wrong{number}") for number in range(6)]
        late = await visit.sign_in(credential)
        other = await visit.sign_in(await console.key("read"))

    assert [answer.status_code for answer in answers] == [401] * 5 + [429]
    assert 0 < int(answers[-1].headers["retry-after"]) <= 60
    assert (late.status_code, other.status_code) == (429, 303)


async def test_idle_connections_give_way_to_a_browser_that_has_a_key(database_url):
    async with AsyncExitStack() as idle, running_console(database_url, max_connections=8) as console:
        for _ in range(16):
            _, writer = await asyncio.open_connection("127.0.0.1", console.port)
            idle.callback(writer.close)
        async with console.visit("read") as visit:
            page = await visit.get("/")

    assert (page.status_code, "Models" in texts_of(page.text)) == (200, True)


HALF_HEAD = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"


@pytest.mark.parametrize("sent", [HALF_HEAD, HALF_HEAD + b"\r\n", HALF_HEAD + b"\r\nkey="])
async def test_half_requests_on_all_connections_keep_no_browser_out_for_long(database_url, sent):
    async with AsyncExitStack() as half, running_console(database_url, max_connections=8) as console:
        credential = await console.key("read")
        for _ in range(8):
            _, writer = await asyncio.open_connection("127.0.0.1", console.port)
            half.callback(writer.close)
            writer.write(sent)
            await writer.drain()
        began = asyncio.get_running_loop().time()
        async with console.visit() as visit:
            while (page := await visit.get("/login", connection="close")).status_code == 503:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.1)
            seconds = asyncio.get_running_loop().time() - began
            entered = await visit.sign_in(credential)

    assert (page.status_code, entered.status_code) == (200, 303)
    assert seconds < connections.HEAD_SECONDS + 1


async def test_over_https_the_cookie_is_sent_over_nothing_else(database_url):
    async with running_console(database_url, console_https=True) as console, console.visit() as visit:
        cookie = (await visit.sign_in(await console.key("read"))).headers["set-cookie"]

    assert cookie.startswith("__Host-understudy_console=")
    assert "Secure" in cookie


async def test_every_answer_has_the_strict_headers_and_no_page_holds_script_or_style(console, rollout):
    async with console.visit("read", "operate") as visit:
        pages = [await visit.get(path) for path in ("/login", "/", f"{CHURN}/rollouts/{rollout.id}", "/nothing")]
        pages.append(await visit.get(f"{CHURN}/acts/promote?rollout={rollout.id}"))
        style = await visit.get(next(part for part in pages[0].text.split('"') if part.endswith("console.css")))

    assert [page.status_code for page in pages] == [200, 200, 200, 404, 200]
    for page in pages:
        policy = page.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert page.headers["cache-control"] == "no-store"
        assert is_sound(page.text)
    assert "immutable" in style.headers["cache-control"]


async def test_a_rollout_page_says_what_the_command_line_says(console, rollout):
    path = f"{CHURN}/rollouts/{rollout.id}"
    async with console.visit("read") as visit:
        led = await visit.get(CHURN)
        carried = await visit.get(f"{CHURN}?did=n%201")
        page = await visit.get(path)
        models = await visit.get("/")

    shown = texts_of(page.text)
    assert led.headers["location"] == path
    assert carried.headers["location"] == f"{path}?did=n%201"
    assert any(text.startswith("Stays at 10 %, then version 7 gets 50 %: ") for text in shown)
    assert {"error rate", "Checks", "What happens next", "What would take it back"} <= set(shown)
    assert "dana@laptop" in shown
    assert "You may look; a key with scope operate is needed to act." in shown
    assert "PROGRESSING 10 %" in texts_of(models.text)


async def test_a_rollback_takes_two_clicks_and_the_audit_names_the_key(console, rollout, database):
    async with console.visit("operate") as visit:
        path = f"{CHURN}/acts/rollback?rollout={rollout.id}"
        asked = await visit.get(path)
        fields = await visit.form(path)
        both = await asyncio.gather(*(visit.post(path, {**fields, "reason": HOSTILE}) for _ in range(2)))
        after = await visit.get(both[0].headers["location"])
        needless = await visit.get(path)

    assert "Every call goes back at once." in asked.text
    assert "There is nothing to roll back" in needless.text
    assert ["autofocus" in page.text for page in (asked, needless)] == [True, False]
    assert ["button danger" in page.text for page in (asked, needless)] == [True, False]
    assert [answer.status_code for answer in both] == [303, 303]
    done = next(text for text in texts_of(after.text) if text.startswith("Rolled back"))
    assert "weight 0" in done
    assert "1 of 1 live proxies act on it" in done
    [(actor, via, reason), *_] = await audited(database)
    assert (len(actor), via, reason) == (12, "console", HOSTILE)
    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 0
    assert "<script>alert" not in after.text
    assert SHOWN in texts_of(after.text)


async def test_a_keys_note_stands_behind_its_id_wherever_it_is_an_actor(console, rollout, database, database_url):
    made = await create_key(PostgresRegistry(database_url), ("operate", "read"), "ana, on call", Actor("test", "test"))
    named = f"{made.record.id} (ana, on call)"
    path = f"{CHURN}/acts/pause?rollout={rollout.id}"
    async with console.visit() as visit:
        await visit.sign_in(made.credential)
        await visit.post(path, {**await visit.form(path), "reason": "lunch"})
        paused = texts_of((await visit.get(f"{CHURN}/rollouts/{rollout.id}")).text)
        back = path.replace("pause", "rollback")
        await visit.post(back, {**await visit.form(back), "reason": "its mean moved"})
        async with asyncio.timeout(30):  # a page is what it was for as long as viewers share it
            while "its mean moved" not in (after := await visit.get(f"{CHURN}/rollouts/{rollout.id}")).text:
                pass
        audit, models = [texts_of((await visit.get(one)).text) for one in (f"{CHURN}/audit", "/")]

    assert f"Waits for a person: paused by {named}: lunch" in paused
    assert named in paused  # who, of what happened
    shown = [text for text in texts_of(after.text) if f"by {named} (via console)" in text]
    assert any(text.endswith(": its mean moved") for text in shown)
    assert any(f" {named} (console)" in text for text in audit)
    assert any(text.endswith(f"by {named}") for text in models)
    assert (await audited(database))[0][0] == made.record.id


async def test_pause_resume_and_promote_do_what_the_commands_do(console, rollout, database):
    async with console.visit("operate") as visit:

        async def act(kind: str, **fields: str) -> Any:
            path = f"{CHURN}/acts/{kind}?rollout={rollout.id}"
            return await visit.post(path, {**await visit.form(path), **fields})

        refused = [
            await act("pause"),
            await act("promote", reason="go", name="chur"),
            await act("promote", reason="go", name="churn", revision=""),
        ]
        stale = await visit.form(f"{CHURN}/acts/promote?rollout={rollout.id}")
        paused = await act("pause", reason="lunch")
        page = await visit.get(paused.headers["location"])
        moved = await visit.post(f"{CHURN}/acts/promote", {**stale, "reason": "go", "name": "churn"})
        resumed = await act("resume")
        promoted = await act("promote", reason="go", name="churn")

    assert [(one.status_code, "E602" in one.text) for one in refused] == [(422, True)] * 3
    assert any(text.startswith("Waits for a person: paused by") for text in texts_of(page.text))
    assert (moved.status_code, "E409" in moved.text) == (412, True)
    assert (resumed.status_code, promoted.status_code) == (303, 303)
    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 50
    assert (await audited(database))[0][1] == "console"
    actors = await database.fetch(
        "SELECT DISTINCT actor FROM RolloutEvent WHERE actor NOT IN ('monitor', 'dana@laptop')"
    )
    assert len(actors) == 1


async def test_a_step_is_approved_as_it_was_seen_with_a_reason_and_its_gate_is_shown(console, database, database_url):
    past = PastRollout(database, database_url, TWINS, 600)
    await past.begin(replace(PLAN, gates={GatePlace.BEFORE_START: Gate(Approver.ANOTHER)}))
    await past.go_on(1)
    path = f"{CHURN}/acts/approve?rollout={past.id}"
    async with console.visit("operate") as visit:
        page = await visit.get(f"{CHURN}/rollouts/{past.id}")
        fields = await visit.form(path)
        refused = [await visit.post(path, {**fields, **wrong}) for wrong in ({}, {"reason": "ok", "revision": ""})]
        approved = await visit.post(path, {**await visit.form(path), "reason": "looked at it"})
        late = await visit.post(path, {**fields, "nonce": "another", "reason": "me too"})
    await past.go_on(1)

    shown = texts_of(page.text)
    assert any(text.startswith("Waits for a person: version 7 goes from 0 to 10 % once another") for text in shown)
    assert {"Approve", "Stop it"} <= set(shown)
    assert "Resume" not in shown
    assert [one.status_code for one in refused] == [422, 422]
    assert approved.status_code == 303
    assert late.status_code == 412
    assert (await past.store.view(past.id)).record.state.weight_percent == 10


CHANGE = "/models/churn/acts/set"


async def test_a_policy_is_changed_after_its_dry_run_by_who_confirms_it(console, database):
    await two_versions(database)
    async with console.visit("operate") as visit:
        form = await visit.get(f"{CHURN}/policy")
        query = f"{CHANGE}?generation=1&challenger=7&challenger_weight=30&guard=alert&arms="
        asked, fields = await visit.get(query), await visit.form(query)
        named = {**fields, "reason": HOSTILE, "name": "churn"}
        refused = [
            await visit.post(CHANGE, {**named, "reason": ""}),
            await visit.post(CHANGE, {**named, "name": "chur"}),
            await visit.post(CHANGE, {**named, "generation": ""}),
            await visit.post(CHANGE, {**named, "nonce": "other", "generation": "9"}),
        ]
        before = await database.fetchval("SELECT generation FROM ServingPolicy")
        both = await asyncio.gather(*(visit.post(CHANGE, named) for _ in range(2)))
        after = await visit.get(both[0].headers["location"])
        stale = await visit.get(query)

    assert is_sound(form.text)
    shown = texts_of(asked.text)
    assert {"Would change churn; nothing was changed.", "challenger_weight", "30"} <= set(shown)
    assert any("This moves production traffic: challenger - → 7, challenger_weight 0 → 30" in text for text in shown)
    moves = "understudy model set churn --challenger 7 --weight 30 --guard alert --reason '…'"
    assert moves in shown
    assert [one.status_code for one in refused] == [422, 422, 422, 412]
    assert (before, [one.status_code for one in both], stale.status_code) == (1, [303, 303], 412)
    assert any(text.startswith("Done: challenger - → 7") for text in texts_of(after.text))
    assert is_sound(after.text)
    [(actor, via, reason), *_] = await audited(database)
    assert (len(actor), via, reason) == (12, "console", HOSTILE)
    policy = await database.fetchrow("SELECT challenger_weight, guard, generation FROM ServingPolicy")
    assert tuple(policy) == (30, "alert", 2)


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        (
            {"challenger_weight": "101"},
            "challenger_weight",
            "challenger_weight of churn is a percentage from 0 to 100, not 101.",
        ),
        (
            {"challenger_weight": "5 %"},
            "challenger_weight",
            "challenger_weight is a whole percentage from 0 to 100, not '5 %'.",
        ),
        ({"shadow_percent": ""}, "shadow_percent", "shadow_percent is a whole percentage from 0 to 100, not ''."),
        ({"champion": " "}, "champion", "no version ' '"),
        ({"arms": "7=5,7=6"}, "arms", "is no share of a version"),
        ({"arms": "6=5"}, "arms", "further arms cannot have that"),
        ({"shadow": "99"}, "shadow", "no version"),
        ({"challenger": "6"}, "challenger", "challenger"),
    ],
)
async def test_what_is_refused_is_said_at_its_field_and_kept_as_it_was_typed(console, database, asked, field, words):
    await two_versions(database)
    async with console.visit("operate") as visit:
        page = await visit.client.get(CHANGE, params={"generation": "1", **asked})

    assert page.status_code in {404, 409}
    told = page.text.partition(f'<p id="{field}-told" class="problem">')[2].partition("</p>")[0]
    assert words in unescape(told)
    assert page.text.count('aria-invalid="true"') == 1
    assert all(f'value="{value}"' in page.text for value in asked.values())
    assert is_sound(page.text)


async def test_a_rollout_is_started_with_the_plan_that_was_shown(console, database, monkeypatch):
    await two_versions(database)
    start, query = f"{CHURN}/acts/start", f"{CHURN}/acts/start?version=7&plan=5,100"
    async with console.visit("operate") as visit:
        form, shown = await visit.get(f"{CHURN}/start"), await visit.get(query)
        wrong = await visit.get(f"{start}?version=7&plan=nonsense")
        fields = {**await visit.form(query), "reason": "retrain"}
        unready = await visit.post(start, {**fields, "name": "churn"})
        monkeypatch.setattr(parts, "require_ready", answers)
        refused = [
            await visit.post(start, {**fields, "name": "chur"}),
            await visit.post(start, {**fields, "name": "churn", "nonce": "n", "generation": "7"}),
        ]
        begun = await visit.post(start, {**fields, "name": "churn"})
        page = await visit.get(begun.headers["location"])
        second = await visit.get(f"{CHURN}/start")

    assert [one.status_code for one in (form, shown, wrong, unready, page, second)] == [200, 200, 409, 409, 200, 200]
    assert all(is_sound(one.text) for one in (form, shown, wrong, unready, page, second))
    assert {"This sends 5 % of churn to version 7 first.", "becomes champion"} <= set(texts_of(shown.text))
    assert '<p id="plan-told" class="problem">the plan cannot be used' in wrong.text
    assert '<p id="version-told" class="problem">version 7 is not ready' in unready.text
    assert [one.status_code for one in refused] == [422, 412]
    number = await database.fetchval("SELECT max(id) FROM Rollout")
    told = texts_of(page.text)
    assert f"Done: rollout {number} has begun: the warm-up comes first." in told
    assert any(text.startswith("Warming up since ") for text in told)
    assert any(text.endswith(" has answered:") for text in told)
    assert {"error rate above the champion's", "typical latency above 1.1x the champion's"} <= set(told)
    assert {"understudy rollout abort churn --reason '…'", "understudy rollback churn --reason '…'"} <= set(told)
    assert f"Rollout {number} is open, and one at a time is enough: end it before another begins." in texts_of(
        second.text
    )
    [(_, via, reason), *_] = await audited(database)
    assert (via, reason) == ("console", "retrain")


async def test_a_rollback_before_an_open_rollout_is_told_quietly_with_its_version(console, rollout, monkeypatch):
    monkeypatch.setattr(parts, "require_ready", answers)
    back, start = f"{CHURN}/acts/rollback?rollout={rollout.id}", f"{CHURN}/acts/start?version=7&plan=5,100"
    async with console.visit("operate") as visit:
        await visit.post(back, {**await visit.form(back), "reason": "slow"})
        await rollout.go_on(1)
        fields = {**await visit.form(start), "name": "churn", "reason": "again"}
        begun = await visit.post(f"{CHURN}/acts/start", fields)
        page, models = await visit.get(begun.headers["location"]), await visit.get("/")

    assert begun.status_code == 303
    for shown in (page.text, models.text):
        assert re.search(r'class="remark">Earlier, calls of version 7 were taken back by \w+ via console at ', shown)
        assert "! Earlier" not in shown


async def test_an_older_policy_is_restored_from_the_audit(console, database):
    await two_versions(database)
    await database.execute("UPDATE ServingPolicy SET guard = 'alert'")
    await database.execute("UPDATE ServingPolicy SET guard = 'off', shadow_percent = 5")
    restore = f"{CHURN}/acts/restore"
    async with console.visit("operate") as visit, console.visit("read") as reader:
        audit, looked = await visit.get(f"{CHURN}/audit"), await reader.get(f"{CHURN}/audit")
        none, wrong = await visit.get(f"{CHURN}/audit?who=kim"), await visit.get(f"{CHURN}/audit?since=x")
        asked, fields = await visit.get(f"{restore}?from=2"), await visit.form(f"{restore}?from=2")
        done = await visit.post(restore, {**fields, "reason": "as it was"})
        after = await visit.get(done.headers["location"])
        unknown = await visit.get(f"{restore}?from=99")

    assert all(is_sound(page.text) for page in (audit, none, wrong, asked, after, unknown))
    assert f"{restore}?from=2" in audit.text
    assert f"{restore}?from=3" not in audit.text
    assert restore not in looked.text
    assert "No change is like that." in texts_of(none.text)
    assert (wrong.status_code, unknown.status_code) == (404, 404)
    assert {"Would change churn; nothing was changed.", "guard", "off", "alert"} <= set(texts_of(asked.text))
    assert any(text.startswith("Done: shadow_percent 5 → 100, guard off → alert.") for text in texts_of(after.text))
    assert (await audited(database))[0][1:] == ("console", "as it was")


async def test_the_nonce_of_one_act_does_not_take_another_act_for_done(console, database):
    await two_versions(database)
    change, restore = f"{CHANGE}?generation=1&guard=alert", f"{CHURN}/acts/restore?from=1"
    async with console.visit("operate") as visit:
        first = {**await visit.form(change), "reason": "calm"}
        await visit.post(CHANGE, first)
        other = {**await visit.form(restore), "reason": "as it was", "nonce": first["nonce"]}
        done = await visit.post(f"{CHURN}/acts/restore", other)

    assert done.status_code == 303
    assert await database.fetchval("SELECT guard FROM ServingPolicy") == "rollback"


async def test_the_health_page_says_what_doctor_finds_to_a_key_for_all_models(console, database):
    async with console.visit("read") as visit, console.visit("read:churn", "operate:churn") as other:
        page, refused = await visit.get("/health"), await other.get("/health")
        digest = page.text.rpartition('name="seen" id="seen" value="')[2].partition('"')[0]
        same, away = await visit.get(f"/live/health?seen={digest}"), await other.get("/live/health")

    assert is_sound(page.text)
    shown = texts_of(page.text)
    assert {"postgres", "monitor", "none leads"} <= {text.lstrip("✔ ") for text in shown}
    assert any(text.startswith("Next: understudy serve monitor runs one.") for text in shown)
    assert (refused.status_code, same.status_code, away.status_code) == (403, 204, 403)


async def test_the_pages_of_the_audit_have_every_change_also_those_of_one_transaction(console, database):
    await two_versions(database)
    async with database.transaction():
        for percent in range(1, 61):
            await database.execute("UPDATE ServingPolicy SET input_sample_percent = $1", percent)
    generations, path = [], f"{CHURN}/audit"
    async with console.visit("read") as visit:
        while path:
            page = await visit.get(path)
            generations += re.findall(r"policy, generation ([0-9]+)", " ".join(texts_of(page.text)))
            older = re.search(r'href="([^"]*)">Older changes', page.text)
            path = unescape(older[1]) if older else ""

    assert [int(one) for one in generations] == list(range(61, 0, -1))


class Imports(MetaPathFinder):
    """Notes in which thread one module is imported."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.threads: list[threading.Thread] = []

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> None:
        if fullname == self._name:
            self.threads.append(threading.current_thread())


async def test_what_health_needs_is_imported_beside_the_event_loop(monkeypatch):
    imports = Imports("understudy.bootstrap.checkup")
    monkeypatch.delitem(sys.modules, "understudy.bootstrap.checkup", raising=False)
    monkeypatch.setattr(sys, "meta_path", [imports, *sys.meta_path])
    away = SecretStr(f"postgresql://understudy@127.0.0.1:{closed_port()}/none")
    async with parts.open_console(Settings(database_url=away)) as opened:
        findings = await opened.examine()

    assert [thread is threading.main_thread() for thread in imports.threads] == [False]
    assert "postgres" in [one.name for one in findings]


async def answers(_probe: object, _model: str, _version: str) -> None:
    """Take any version to be ready."""


async def test_a_form_of_another_session_or_site_changes_nothing(console, rollout, database):
    path = f"{CHURN}/acts/rollback?rollout={rollout.id}"
    async with console.visit("operate") as visit, console.visit("operate") as other:
        fields, foreign = await visit.form(path), await other.form(path)
        refused = [
            await visit.post(path, {**fields, "token": foreign["token"]}),
            await visit.post(path, {name: value for name, value in fields.items() if name != "token"}),
            await visit.post(path, fields, origin="http://evil.example"),
            await visit.post(path, fields, **{"sec-fetch-site": "cross-site"}),
            await visit.post(path, {**fields, "nonce": ""}),
            await visit.post("/login", {f"field{number}": "" for number in range(40)}),
        ]
        hosts = [(await visit.get("/", host=name)).status_code for name in ("evil.example", "[")]

    assert [answer.status_code for answer in refused] == [403, 403, 403, 403, 422, 422]
    assert hosts == [421, 400]
    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 10


ACTS = ("rollback", "pause", "resume", "promote", "approve", "abort", "set", "start", "restore")


async def test_scopes_hold_for_pages_and_for_acts(console, rollout, database):
    await database.execute(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, artifact_digest, framework, input_schema)"
        " VALUES ('fraud', '1', 'file:///m', 'sha256:1', 'sklearn', '{}')"
    )
    path = f"{CHURN}/rollouts/{rollout.id}"
    async with (
        console.visit("read") as reader,
        console.visit("operate:fraud", "read:fraud") as stranger,
        console.visit("operate:churn") as operator,
        console.visit() as caller,
    ):
        looks = [(await visit.get(path)).status_code for visit in (reader, stranger, operator)]
        asks = [(await reader.get(f"{CHURN}/acts/{act}?rollout={rollout.id}")).status_code for act in ACTS]
        page = (await operator.get(path)).text
        token = page.partition('name="token" value="')[2].partition('"')[0]
        posts = [(await reader.post(f"{CHURN}/acts/{act}", {"nonce": "n", "token": token})).status_code for act in ACTS]
        models = [texts_of((await visit.get("/")).text) for visit in (stranger, operator)]
        entered = await caller.sign_in(await console.key("predict"))

    assert looks == [200, 403, 200]
    assert "(operate)" in page
    assert (asks, posts) == ([403] * len(ACTS), [403] * len(ACTS))
    assert [("fraud" in one, "churn" in one) for one in models] == [(True, False), (False, True)]
    assert "/acts/rollback" in page
    assert entered.status_code == 401


async def test_a_revoked_key_and_a_sign_out_end_the_session(console, rollout, database, monkeypatch):
    monkeypatch.setattr(visitors, "KEPT_SECONDS", 0.0)
    async with console.visit("read") as visit, console.visit("operate") as other:
        before = (await visit.get("/")).status_code
        await database.execute("UPDATE ApiKey SET revoked_at = now() WHERE scopes = ARRAY['read']")
        live = await visit.get("/live/models")
        page = await visit.get("/")
        cookies = dict(other.client.cookies)
        token = (await other.get("/")).text.partition('name="token" value="')[2].partition('"')[0]
        out = await other.post("/logout", {"token": token})
        other.client.cookies.update(cookies)
        stolen = await other.get("/")

    assert (before, live.status_code, live.headers["hx-redirect"]) == (200, 401, "/login")
    assert (page.status_code, out.status_code, stolen.status_code) == (303, 303, 303)


async def test_a_rollout_of_a_newer_release_is_named_and_can_be_taken_back(console, rollout, database):
    await database.execute("ALTER TABLE Rollout DISABLE TRIGGER rollout_guard")
    await database.execute("UPDATE Rollout SET plan = plan || '{\"tempo\": 3}'")
    async with console.visit("operate") as visit:
        models, page = await visit.get("/"), await visit.get(f"{CHURN}/rollouts/{rollout.id}")
        back = f"{CHURN}/acts/rollback"
        done = await visit.post(back, await visit.form(back))

    words = f"rollout {rollout.id} of churn cannot be read by this release: "
    assert "of a newer release" in texts_of(models.text)
    assert any(text.startswith(words) for text in texts_of(models.text))
    assert page.status_code == 503
    assert any(text.startswith(words) for text in texts_of(page.text))
    assert f'href="{back}"' in page.text
    assert done.status_code == 303
    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 0


async def test_names_versions_and_reasons_with_markup_are_shown_as_text(console, database):
    name = f"m/{HOSTILE}"
    version = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, artifact_digest, framework, input_schema)"
        " VALUES ($1, $2, 'file:///m', 'sha256:1', 'sklearn', '{}') RETURNING id",
        name,
        HOSTILE,
    )
    await database.execute("SELECT set_config('understudy.reason', $1, FALSE)", HOSTILE)
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)", name, version)
    async with console.visit("operate") as visit:
        models = await visit.get("/")
        href = next(part for part in models.text.split('"') if part.startswith("/models/"))
        page = await visit.get(href)
        asked = await visit.get(f"{href}/acts/rollback")
        others = [await visit.get(f"{href}{path}") for path in ("/policy", "/start", "/audit", "/audit?who=%3Cb%3E%22")]
        others.append(await visit.get(f"{href}/acts/set?generation=1&shadow_percent=7"))
        health = await visit.get("/health")

    for answer in (models, page, asked, *others, health):
        assert answer.status_code == 200
        assert is_sound(answer.text)
        assert "<script>alert" not in answer.text
    assert f"m/{SHOWN}" in texts_of(models.text)
    assert {f"m/{SHOWN}", SHOWN} <= set(texts_of(page.text))


def digest_of(page: str) -> str:
    """Return what a page asks with for what is new."""
    return page.rpartition('name="seen" id="seen" value="')[2].partition('"')[0]


async def test_a_verdict_that_fails_has_its_colour_and_its_page_is_not_sent_again(console, database, database_url):
    past = PastRollout(database, database_url, WORSE, 1_800)
    await past.begin()
    await past.go_on(8)
    async with console.visit("read") as visit:
        path = f"{CHURN}/rollouts/{past.id}"
        page, other = await visit.get(path), await visit.get(f"/live{path}?seen=x")
        async with asyncio.timeout(30):  # figures that came late change the page once more
            digest = digest_of(page.text)
            while (same := await visit.get(f"/live{path}?seen={digest}")).status_code != 204:
                digest = digest_of(same.text)
        models = await visit.get("/")

    assert other.status_code == 200
    assert '<section class="card bad"' in page.text
    assert '<span class="badge bad"><span aria-hidden="true">✖</span> fail</span>' in page.text
    assert '<span class="badge bad">rolled back</span>' in models.text


async def test_while_postgres_is_away_the_last_picture_stays_and_says_its_age(
    database, database_url, rollout, monkeypatch
):
    await database.execute(A_MONITOR_LEADS)
    where = urlsplit(database_url)
    async with TcpRelay(where.port or 0) as relay:
        through = where._replace(netloc=f"{where.username}@{relay.endpoint}").geturl()
        async with running_console(through) as console, console.visit() as visit, console.visit() as late:
            credential = await a_key(database_url, "operate")
            await visit.sign_in(credential)
            seen = await visit.get(f"{CHURN}/rollouts/{rollout.id}")
            relay.lead_to(closed_port())
            relay.cut()
            await asyncio.sleep(visitors.KEPT_SECONDS)
            async with asyncio.timeout(30):
                while "Figures of" not in (kept := await visit.get(f"{CHURN}/rollouts/{rollout.id}")).text:
                    pass
            asked = await visit.get(f"{CHURN}/acts/rollback?rollout={rollout.id}")
            path = f"{CHURN}/acts/rollback?rollout={rollout.id}"
            acted = await visit.post(path, await visit.form(path))
            unseen = await visit.get("/")
            monkeypatch.setattr(login_tries, "TRIES_OF_ADDRESS", 1)
            entered = [(await late.sign_in(credential)).status_code for _ in range(2)]
            again = await visit.get(f"{CHURN}/rollouts/{rollout.id}")

    assert (seen.status_code, kept.status_code) == (200, 200)
    assert "Figures of" not in seen.text
    assert ["✔</span> pass</span>" in page.text for page in (seen, kept)] == [True, False]
    assert "Postgres cannot be reached" in again.text
    assert "can be tried all the same" in asked.text
    assert (unseen.status_code, entered) == (503, [503, 503])
    assert "SELECT understudy_rollback" in unseen.text
    assert acted.status_code == 503
    shown = texts_of(acted.text)
    assert {"understudy rollback churn --reason '…'", "SELECT understudy_rollback('churn', 'why');"} <= set(shown)
    assert "Try again" in shown
    assert "look at the model's page before you repeat it" in acted.text
    assert relay.endpoint not in unseen.text
    assert is_sound(unseen.text)
