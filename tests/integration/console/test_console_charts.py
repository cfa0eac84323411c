"""The charts of a rollout's page: fetched by themselves, read aloud as their sentence, and readable without style."""

import re
from collections.abc import AsyncIterator
from html import unescape

import asyncpg
import pytest
from worlds.console import RunningConsole, is_sound, running_console, texts_of
from worlds.rollout import WORSE, PastRollout


@pytest.fixture
async def console(database_url: str) -> AsyncIterator[RunningConsole]:
    async with running_console(database_url) as running:
        yield running


async def test_each_chart_has_its_sentence_and_its_figures_and_comes_once(
    console: RunningConsole, database: asyncpg.Connection, database_url: str
):
    past = PastRollout(database, database_url, WORSE, 1_800)
    await past.begin()
    await past.go_on(3)
    path = f"/models/churn/rollouts/{past.id}"
    async with console.visit("read") as visit:
        page = await visit.get(path)
        part = await visit.get(f"/live{path}/charts")
        while "The charts are not ready yet" in part.text:
            part = await visit.get(f"/live{path}/charts")
        digest = part.text.rpartition('value="')[2].partition('"')[0]
        same = await visit.get(f"/live{path}/charts?seen={digest}")
        whole = await visit.get(path)
        absent = await visit.get("/live/models/churn/rollouts/99/charts")

    assert [answer.status_code for answer in (page, part, same, absent)] == [200, 200, 204, 404]
    assert is_sound(whole.text)
    figures = re.findall(r"<figure.*?</figure>", part.text, re.DOTALL)
    assert {"share of the challenger", "error rate: both versions"} <= set(texts_of(part.text))
    for figure in figures:
        said = re.findall(r"<desc [^>]+>(.*?)</desc>", figure)
        assert said == re.findall(r"<figcaption>(.*?)</figcaption>", figure)
        assert unescape(said[0]) in texts_of(figure)
        points = re.findall(r'<polyline class="challenger[^"]*" points="([^"]+)"', figure)
        assert all(len(line.split()) == figure.count("<tr>") - 1 for line in points)
    assert {"error rate", "too early"} <= set(texts_of(whole.text))
