"""Hostile texts as names, versions, reasons, entities, metrics and errors: shown as text, wherever they are shown."""

import re
import time
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from console.browser_world import Heard, signed_in
from console.hostile_strings import HOSTILE, MARK
from playwright.async_api import expect
from worlds.console import Visit, is_sound, running_console
from worlds.report import SCHEMA

import understudy.entrypoints.console as console_package
from understudy.core.prediction_log.prediction_id import prediction_id
from understudy.entrypoints import charts
from understudy.entrypoints.cli.shared.rendering import with_marks
from understudy.entrypoints.console.views.links import entity_path, model_path, prediction_path

CHURN = "/models/churn"
LIVE_MS = 20_000
LONGEST = {"version": 90, "name": 200, "reason": 1_000, "metric": 90, "entity": 250, "error": 900}
_ADD_CALL = """
    INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms, predicted_at,
        prediction_id, assigned_version_id, score, latency_us, role, reason, status, bucket, policy_generation,
        cache_hit)
    SELECT v.id, $1, repeat('0', 64), jsonb_build_object('score', 0.8, 'label', $2::text), 12, to_timestamp($3),
           $4::text::uuid, v.id, 0.8, 11800, 'champion', 'bucket', 'ok', 37, 1, FALSE
    FROM ModelVersion AS v WHERE v.model_name = 'churn' AND v.version = '6'
"""
_ADD_VERSION = """
    INSERT INTO ModelVersion (model_name, version, artifact_path, artifact_digest, framework, input_schema)
    VALUES ($1, $2, 'file:///m', $3, 'sklearn', '{}') RETURNING id
"""


class Shape(HTMLParser):
    """Which elements and attributes a page has, and what its htmx attributes ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.asks: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.asks += [value or "" for name, value in attrs if name in {"hx-get", "hx-post", "src", "action"}]


def shape_of(text: str) -> Shape:
    shape = Shape()
    shape.feed(text)
    return shape


def written() -> Shape:
    """Return the elements and attributes that templates have, and those that charts are written with."""
    folder = Path(next(iter(console_package.__path__))) / "templates"
    sources = (path.read_text(encoding="utf-8") for path in folder.glob("*.html"))
    shape = shape_of(
        "".join(re.sub(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", "", source, flags=re.DOTALL) for source in sources)
    )
    drawn = "".join(path.read_text(encoding="utf-8") for path in Path(next(iter(charts.__path__))).glob("*.py"))
    shape.tags |= set(re.findall(r"<([a-z]+)", drawn))
    shape.attributes |= {name.lower() for name in re.findall(r"""\s([A-Za-z][\w-]*)=["']""", drawn)}
    return shape


OURS = written()


def is_ours(page: str, *shown: str) -> bool:
    """Whether a page has nothing but our own elements, and the texts as texts."""
    assert is_sound(page)
    shape = shape_of(page)
    assert (shape.tags - OURS.tags, shape.attributes - OURS.attributes) == (set(), set())
    assert not any(MARK in asked for asked in shape.asks if not asked.startswith(("/models/", "/live/models/")))
    words = unescape(page)
    assert [text for text in shown if with_marks(text) not in words] == []
    return True


def cut(text: str, what: str) -> str:
    return text[: LONGEST[what]]


@pytest_asyncio.fixture(loop_scope="session")
async def world(rollout, database: asyncpg.Connection) -> list[str]:
    """Every text in every place that takes one; returns the ids of the calls."""
    calls = []
    await database.execute("ALTER TABLE ModelVersion DISABLE TRIGGER USER")  # it has served: its schema would stay
    await database.execute("UPDATE ModelVersion SET input_schema = $1", SCHEMA)
    await database.execute("ALTER TABLE ModelVersion ENABLE TRIGGER USER")
    for number, text in enumerate(HOSTILE):
        name = f"{number} {cut(text, 'name')}"
        first = await database.fetchval(_ADD_VERSION, name, cut(text, "version"), f"sha256:{number}")
        await database.fetchval(_ADD_VERSION, "churn", cut(text, "version"), f"sha256:c{number}")
        await database.execute("SELECT set_config('understudy.reason', $1, FALSE)", cut(text, "reason"))
        await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)", name, first)
        await database.execute(
            "UPDATE ServingPolicy SET input_sample_percent = $1 WHERE model_name = 'churn'", number + 1
        )
        await database.execute(
            "INSERT INTO RolloutEvent (rollout_id, step, phase, reason, code_version, actor)"
            " VALUES ($1, 0, 'PROGRESSING', $2, '0', $3)",
            rollout.id,
            cut(text, "reason"),
            cut(text, "name"),
        )
        await database.execute(
            "INSERT INTO Experiment (model_name, name, champion_version, challenger_version, metric)"
            " SELECT 'churn', $1, $2, $3, $4",
            f"{number}",
            rollout.versions["6"],
            rollout.versions["7"],
            cut(text, "metric"),
        )
        at = time.time() - 1 - number
        calls.append(prediction_id(round(at * 1_000), number))
        await database.execute(_ADD_CALL, cut(text, "entity"), text, at, calls[-1])
    return calls


def test_no_attribute_of_ours_runs_a_script():
    assert [name for name in OURS.attributes if name.startswith("on") or name == "style"] == []


def test_there_are_forty_and_all_differ():
    assert len(set(HOSTILE)) == 40


async def test_pages_of_stored_texts_show_them_as_text(world, rollout, database_url):
    async with running_console(database_url) as console, console.visit("read", "operate") as visit:
        models = (await visit.get("/")).text
        assert is_ours(models, *(f"{number} {cut(text, 'name')}" for number, text in enumerate(HOSTILE)))
        audit = (await visit.get(f"{CHURN}/audit?subject=policy")).text
        assert is_ours(audit, *(cut(text, "reason") for text in HOSTILE))
        versions = (await visit.get(f"{CHURN}/versions")).text
        assert is_ours(versions, *(cut(text, "version") for text in HOSTILE))
        tests = (await visit.get(f"{CHURN}/experiments")).text
        assert is_ours(tests, *(cut(text, "metric") for text in HOSTILE))
        happened = (await visit.get(f"{CHURN}/rollouts/{rollout.id}")).text
        assert is_ours(happened, *(cut(text, "reason") for text in HOSTILE[-30:]))
        assert is_ours((await visit.get(f"{CHURN}/rollouts/{rollout.id}/verdicts")).text)
        for number, text in enumerate(HOSTILE):
            await have_their_pages(visit, number, text, world[number])


async def have_their_pages(visit: Visit, number: int, text: str, call: str) -> None:
    """Go on only where the pages of one model, one entity and one call are ours."""
    name, entity = f"{number} {cut(text, 'name')}", cut(text, "entity")
    model = await visit.get(model_path(name))
    assert is_ours(model.text, name, cut(text, "version"), cut(text, "reason"))
    found, told = await visit.get(entity_path("churn", entity)), await visit.get(prediction_path(call))
    assert (found.status_code, told.status_code) == (200, 200), text
    assert is_ours(found.text, entity)
    assert is_ours(told.text, entity)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/find", {"q": "entity"}),
        ("/login", {"next": "name"}),
        (f"{CHURN}/audit", {"who": "name"}),
        (f"{CHURN}/acts/set?generation=1", {"champion": "version", "arms": "name"}),
        (f"{CHURN}/acts/start", {"version": "version", "plan": "name"}),
        (f"{CHURN}/acts/declare", {"metric": "metric", "effect": "name"}),
        ("/{}", {}),
    ],
)
async def test_what_an_address_says_is_shown_as_text(rollout, database_url, path, fields):
    async with running_console(database_url) as console, console.visit("read", "operate") as visit:
        for text in (*HOSTILE, "a\0b"):
            asked = {name: cut(text, what) for name, what in fields.items()}
            here = path.replace(
                "{}", re.sub(r"[^\w]", lambda one: f"%{ord(one[0]) % 256:02x}", text[:200], flags=re.ASCII)
            )
            page = await visit.client.get(here, params={**dict(re.findall(r"(\w+)=(\w+)", here)), **asked} or None)
            assert page.status_code < 500, (path, text)
            assert page.status_code == 303 or is_ours(page.text), (path, text)


async def test_a_browser_asks_for_nothing_that_a_text_names(browser, world, rollout, database_url):
    async with running_console(database_url) as console, signed_in(browser, console) as page:
        heard = Heard(page, console.origin)
        for path in (
            f"{CHURN}/audit",
            f"{CHURN}/versions",
            f"{CHURN}/experiments",
            f"{CHURN}/rollouts/{rollout.id}",
            "/",
        ):
            await page.goto(console.origin + path)
            await expect(page.locator("h1")).to_have_count(1)
        await expect(page.locator("#heard")).to_have_text("live", timeout=LIVE_MS)

    own = ("/models/", "/live/", "/static/")
    assert [url for url in heard.asked if MARK in url and not url.startswith(own)] == []
    assert (heard.complaints, heard.elsewhere) == ([], [])
