"""What is stored of the windows that a verdict rests on."""

from dataclasses import replace
from typing import cast

import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World

from understudy.core.windows.strata import Side, Strata, stratify
from understudy.core.windows.strata_codec import strata_digest, strata_from_text
from understudy.rollout.verdicts.verdict_event import stored_strata


@pytest.fixture(scope="module")
def strata() -> Strata:
    world = World("any", requests_per_minute=60)
    return stratify(Traffic(world, 1).windows(0, 5 * PER_MINUTE, 20.0), ROLLOUT)


async def test_a_verdict_can_be_judged_again_from_what_is_stored(strata):
    stored = await stored_strata(strata)

    assert stored.keys() == {"strata"}
    assert strata_digest(strata_from_text(cast("str", stored["strata"]))) == strata_digest(strata)


async def test_a_decision_is_made_although_its_windows_cannot_be_stored(strata):
    stored = await stored_strata(replace(strata, champion=cast("Side", None)))

    assert stored == {"strata_windows": len(strata.starts)}
