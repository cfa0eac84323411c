"""A thousand verdicts of the simulator, stored as the monitor does, are the same when the console judges them."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import orjson
import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World
from worlds.console import running_console
from worlds.rollout import TWINS, PastRollout

from understudy import __version__
from understudy.bootstrap import console as parts
from understudy.core.canary.analysis import judge
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.windows.strata import stratify
from understudy.core.windows.strata_codec import strata_to_text
from understudy.core.windows.window import WINDOW_SECONDS
from understudy.entrypoints.console.pages import reports

pytestmark = pytest.mark.timeout(900)
VERDICTS, LOOKS, MINUTES, WEIGHT_PERCENT = 1_000, 40, 20, 10.0
WORLDS = (
    TWINS,
    replace(TWINS, name="errors", error_factor=4.0),
    replace(TWINS, name="slow", latency_factor=1.5),
    replace(TWINS, name="scores", score_shift=0.4),
)
_ADD = """
    INSERT INTO RolloutEvent
        (rollout_id, step, phase, verdict, reason, evidence, inputs, thresholds, code_version, actor)
    VALUES ($1, 0, 'PROGRESSING', $2, $3, $4, $5, $6, $7, 'monitor')
"""
_DAMAGE = """
    UPDATE RolloutEvent SET inputs = jsonb_set(inputs, '{strata}', '"no strata"')
    WHERE id = (SELECT max(id) FROM RolloutEvent)
"""


def stored(world: World, seed: int) -> Iterator[tuple[Any, ...]]:
    """Return the verdicts of a rollout at each of its looks, as a row holds them."""
    windows = Traffic(world, seed).windows(0, MINUTES * PER_MINUTE, WEIGHT_PERCENT)
    strata, policy = stratify(windows, ROLLOUT), CanaryPolicy(dwell_seconds=600.0)
    stage = Stage("churn", "7", ROLLOUT, (0.0,), 1, WEIGHT_PERCENT, {1: WEIGHT_PERCENT})
    for look in range(1, LOOKS + 1):
        now = look * MINUTES * 60.0 / LOOKS + WINDOW_SECONDS
        seen = strata.until(now)
        decision = judge(seen, policy, stage, now)
        inputs = {"now": now, "stage": asdict(stage), "strata": strata_to_text(seen), "decision": decision.sentence}
        documents = ([row.to_json() for row in decision.evidence], inputs, policy.to_json())
        texts = (orjson.dumps(one, option=orjson.OPT_NON_STR_KEYS).decode() for one in documents)
        yield (decision.verdict.value, decision.reason[:1_000], *texts, __version__)


async def test_a_thousand_stored_verdicts_are_the_same_and_a_damaged_one_says_so(database, database_url, monkeypatch):
    # On a machine that does much else a thousand of them take longer than a page may.
    for module in (parts, reports):
        monkeypatch.setattr(module, "REPORT_SECONDS", 600.0)
    past = PastRollout(database, database_url, TWINS, 600)
    await past.begin()
    rows = [row for run in range(VERDICTS // LOOKS) for row in stored(WORLDS[run % len(WORLDS)], run)]
    await database.execute("ALTER TABLE RolloutEvent DISABLE TRIGGER USER")
    await database.executemany(_ADD, [(past.id, *row) for row in rows])
    path = f"/models/churn/rollouts/{past.id}/verdicts"
    async with running_console(database_url) as console, console.visit("read") as visit:
        whole = (await visit.client.get(path, headers={"accept": "application/json"}, timeout=600)).json()["view"]
    await database.execute(_DAMAGE)
    async with running_console(database_url) as console, console.visit("read") as visit:
        damaged = (await visit.client.get(path, headers={"accept": "application/json"}, timeout=600)).json()["view"]

    assert len({row[0] for row in rows}) >= 3  # advance, hold, roll back
    assert whole["sentence"] == f"Judged again, {VERDICTS} stored verdicts: each is the same."
    assert damaged["sentence"] == (
        f"Judged again, {VERDICTS} stored verdicts: {VERDICTS - 1} the same, 1 cannot be read any more."
    )
