"""Stored verdicts of a simulated rollout, judged again on the console's page."""

from worlds.console import is_sound, running_console, texts_of
from worlds.rollout import WORSE, PastRollout

DAMAGE = """
    UPDATE RolloutEvent SET inputs = jsonb_set(inputs, '{strata}', '"no strata"')
    WHERE id = (SELECT max(id) FROM RolloutEvent WHERE verdict IS NOT NULL AND inputs ? 'strata')
"""


async def test_each_stored_verdict_is_the_same_and_a_damaged_one_says_so(database, database_url):
    past = PastRollout(database, database_url, WORSE, 1_800)
    await past.begin()
    await past.go_on(8)
    path = f"/models/churn/rollouts/{past.id}/verdicts"
    async with running_console(database_url) as console, console.visit("read") as visit:
        whole = await visit.get(path)
    await database.execute("ALTER TABLE RolloutEvent DISABLE TRIGGER USER")
    await database.execute(DAMAGE)
    async with running_console(database_url) as console, console.visit("read") as visit:
        damaged, other = await visit.get(path), await visit.get("/models/none/rollouts/1/verdicts")

    assert is_sound(whole.text)
    assert is_sound(damaged.text)
    assert any(text.startswith("Judged again, ") and "the same" in text for text in texts_of(whole.text))
    assert "the same verdict" in texts_of(whole.text)
    assert not any("cannot be read" in text for text in texts_of(whole.text))
    assert any("1 cannot be read any more" in text for text in texts_of(damaged.text))
    assert any(" is damaged, and what rests on it is left out" in text for text in texts_of(damaged.text))
    assert other.status_code == 404
