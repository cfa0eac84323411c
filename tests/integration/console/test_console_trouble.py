"""What pages of models tell of Health: what is wrong now, to whom it concerns, by one examination for all viewers."""

import asyncio
from collections.abc import Sequence

import pytest
from pydantic import SecretStr
from worlds.console import RunningConsole, Visit, closed_port, is_sound, running_console, texts_of
from worlds.report import SCHEMA
from worlds.rollout import TWINS, PastRollout, two_versions

from understudy.bootstrap import checkup
from understudy.bootstrap.console import open_console
from understudy.entrypoints.console.pages import health
from understudy.registry.findings.finding import State
from understudy.settings import Settings

MODEL, ALL = "/live/models/churn/trouble", "/live/trouble"
PATIENCE_SECONDS = 30.0
A_MONITOR_LEADS = (
    "INSERT INTO MonitorLease (name, holder, epoch, renewed_at) VALUES ('monitor', 'pod-a', 1, now() + INTERVAL '1 h')"
)
IT_IS_SILENT = "UPDATE MonitorLease SET renewed_at = now() - INTERVAL '50 minutes'"
A_PROXY = "INSERT INTO ProxyInstance (instance, generations, seen_at) VALUES ('pod-9', $1, now() + INTERVAL '1 h')"
BEHIND = "behind: churn 0 instead of 1"
A_MINUTE_AGO = "UPDATE ServingPolicy SET updated_at = now() - INTERVAL '1 minute'"


@pytest.fixture(autouse=True)
def _examined_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "TROUBLE_SECONDS", 0.5)


async def told(visit: Visit, path: str = MODEL, *, until: str = "") -> Sequence[str]:
    """Return what a page tells once something is known and it has these words: an examination may be under way."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            answer = await visit.get(path)
            assert answer.status_code == 200
            assert is_sound(answer.text)
            if until in answer.text and "trouble-soon" not in answer.text:
                return texts_of(answer.text)


async def test_a_silent_monitor_and_a_proxy_with_an_old_policy_are_told_on_pages_of_models(database, database_url):
    await two_versions(database, SCHEMA)
    await database.execute(A_MONITOR_LEADS)
    await database.execute(A_PROXY, '{"churn": 0}')
    async with running_console(database_url) as console, console.visit("read") as visit:
        early = await told(visit, until="data-trouble")
        await database.execute(IT_IS_SILENT)
        await database.execute("ALTER TABLE ServingPolicy DISABLE TRIGGER USER")
        await database.execute(A_MINUTE_AGO)
        late, every, page = [await told(visit, path, until=BEHIND) for path in (MODEL, ALL, "/models/churn")]

    assert not any("pod-a" in text or "pod-9" in text for text in early)  # it leads, and had no time to catch up
    for texts in (late, every, page):
        assert any(text.startswith("none leads: pod-a was seen 30") for text in texts), texts
        assert any(text.endswith(BEHIND) for text in texts), texts
        assert "says what to do next." in texts


async def test_where_nothing_is_wrong_a_page_has_no_word_of_it(database, database_url, monkeypatch):
    monkeypatch.setattr(health, "TROUBLE_SECONDS", 3_600.0)
    await database.execute(A_MONITOR_LEADS)
    await database.execute(A_PROXY, "{}")
    async with running_console(database_url) as console, console.visit("read") as visit:
        await database.execute("UPDATE ApiKey SET expires_at = now() + INTERVAL '1 day'")
        findings = {text.lstrip("! ") for text in texts_of((await visit.get("/health")).text)}
        part, page = await told(visit, ALL), await visit.get("/")
        document = (await visit.get("/", accept="application/json")).json()

    assert "warning" in findings  # of a key that ends soon, which waits for daylight
    assert part == []
    assert "data-trouble" not in page.text
    assert document["trouble"]["rows"] == []


async def test_a_key_for_some_models_hears_nothing_of_others(database, database_url):
    await two_versions(database, SCHEMA)
    await database.execute(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, artifact_digest, framework, input_schema)"
        " VALUES ('fraud', '1', 'file:///m', 'sha256:1', 'sklearn', $1)",
        SCHEMA,
    )
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version) SELECT 'fraud', max(id) FROM ModelVersion"
    )
    await database.execute("ALTER TABLE ServingPolicy DISABLE TRIGGER USER")
    await database.execute(A_MINUTE_AGO)
    await database.execute(A_PROXY, '{"churn": 1, "fraud": 0}')
    async with (
        running_console(database_url) as console,
        console.visit("read") as all_of_them,
        console.visit("read:churn") as some,
    ):
        every = await told(all_of_them, "/health", until="fraud 0 instead of 1")
        mine, refused = await some.get(ALL), await some.get("/live/models/fraud/trouble")

    assert "fraud 1 champion" in every
    assert "churn 6 champion" in mine.text
    assert "has no model server" in mine.text
    assert "proxy pod-9" in mine.text
    assert "fraud" not in mine.text
    assert "/health" not in mine.text
    assert refused.status_code == 403


async def open_pages(console: RunningConsole, count: int) -> list[int]:
    async with console.visit("read") as visit:
        answers = await asyncio.gather(*(visit.get(path) for path in (ALL, MODEL) for _ in range(count // 2)))
    return [answer.status_code for answer in answers]


async def test_forty_open_pages_share_one_examination_which_no_page_waits_for(database, database_url, monkeypatch):
    await two_versions(database)
    monkeypatch.setattr(health, "TROUBLE_SECONDS", 3_600.0)
    begun, has_begun, may_end, examine = [], asyncio.Event(), asyncio.Event(), checkup.examine

    async def counted(settings: object) -> Sequence[object]:
        begun.append(settings)
        has_begun.set()
        await may_end.wait()
        return await examine(settings)  # type: ignore[arg-type]

    monkeypatch.setattr(checkup, "examine", counted)
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        running_console(database_url) as console,
        console.visit("read") as visit,
    ):
        answered = await open_pages(console, 40)
        await has_begun.wait()
        first = await visit.get("/models/churn")
        may_end.set()
        await told(visit, until="data-trouble")
        then = await visit.get("/models/churn")

    assert answered == [200] * 40
    assert len(begun) == 1
    assert ("data-trouble" in first.text, "data-trouble" in then.text) == (False, True)


async def test_what_cannot_be_examined_is_not_known_and_no_pass(database, database_url, monkeypatch):
    async def fails(_settings: object) -> Sequence[object]:
        raise RuntimeError("a defect of an examination")

    monkeypatch.setattr(checkup, "examine", fails)
    async with running_console(database_url) as console, console.visit("read") as visit:
        [said] = await told(visit, ALL, until="not known now")

    assert said.startswith("Whether anything else is wrong is not known now: ")


async def test_a_rollouts_first_screen_says_whether_all_is_healthy_once_it_was_looked_at(
    database, database_url, monkeypatch
):
    monkeypatch.setattr(health, "TROUBLE_SECONDS", PATIENCE_SECONDS)  # no page of this test finds it too old
    past = PastRollout(database, database_url, TWINS, 200)
    await past.begin()
    await past.go_on(1)
    path = f"/models/churn/rollouts/{past.id}"
    async with running_console(database_url) as console, console.visit("read") as visit:
        early = texts_of((await visit.get(path)).text)
        await told(visit)
        late = await visit.get(path)

    assert any(text.endswith("What Health finds comes in a few seconds.") for text in early)
    [row] = [text for text in texts_of(late.text) if "1 of 1 live proxies" in text]
    # What the one examination found stays: on a machine that has other work Postgres may have answered too slowly.
    assert "Postgres answers" in row or "Postgres is in trouble" in row
    assert "Redis is not seen from here." in row
    assert "Wrong now: " in row  # of this world's versions no model server answers, and no monitor leads


async def test_while_postgres_is_away_the_consoles_own_folder_says_nothing_of_proxies(tmp_path):
    spool = tmp_path / "spool/5f0c0000-0000-4000-8000-0000000000e1"
    spool.mkdir(parents=True)
    (spool / "001763661061.log").write_bytes(bytes(1_048_576))
    away = SecretStr(f"postgresql://me@127.0.0.1:{closed_port()}/understudy")
    async with open_console(Settings(database_url=away, state_dir=tmp_path)) as opened:
        found = {finding.name: finding for finding in await opened.examine()}

    assert found["postgres"].state is State.PROBLEM
    assert found["meanwhile"].what.startswith("if proxies do not reach Postgres either, ")
    assert not {"policy.json", "spool"} & set(found)
