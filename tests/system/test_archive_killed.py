"""``understudy db archive`` as a process, killed at random moments of its work: nothing is lost, nothing is doubled."""

import random

import pytest
from traffic import chance
from worlds.archive import fill, month_ago, versions_of

from loadtests.archive import ask, kill_again_and_again, sums_of

ROWS = 60_000
KILLS = 3
MAX_SECONDS = 1.5
"""After its beginning; archiving all of it takes about two."""


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_killed_at_three_random_moments_it_finishes_and_queries_answer_the_same(database, database_url, tmp_path):
    seed = chance.seed()
    months = [month_ago(number) for number in (5, 4, 3, 2)]
    await fill(database, months, ROWS // 4, await versions_of(database))
    before = ask(database_url, tmp_path)

    killed = await kill_again_and_again(database_url, tmp_path / "archive", KILLS, random.Random(seed), MAX_SECONDS)

    assert killed.kills >= 1, seed
    assert ask(database_url, tmp_path / "archive") == before, (seed, killed)
    assert (await sums_of(database_url))[0] == 0, (seed, killed)
    assert before.count(b"\n") == 3
