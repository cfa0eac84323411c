"""Stored verdicts are judged one by one, so that a deadline ends their judging."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from understudy.bootstrap.session import Session
from understudy.core.canary.decision import Verdict
from understudy.entrypoints.console.pages.verdicts import judge_stored
from understudy.ports.rollout.rollout_store import RolloutEventRecord

EVENT = RolloutEventRecord(4, 1.7e9, 0, "PROGRESSING", Verdict.HOLD, "too early", (), {}, {}, "0.1.0", "monitor")


async def test_a_deadline_ends_the_judging_between_two_verdicts():
    read: list[int] = []
    has_begun = asyncio.Event()

    def stored() -> Iterator[RolloutEventRecord]:
        for number in range(1_000):
            read.append(number)
            has_begun.set()
            yield EVENT._replace(id=number, damage="it is no list")

    async def view(rollout_id: int) -> object:
        return SimpleNamespace(record=SimpleNamespace(state=SimpleNamespace(model_name="churn")))

    async def events(rollout_id: int) -> object:
        return stored()

    session = cast("Session", SimpleNamespace(rollouts=SimpleNamespace(view=view, events=events)))
    judging = asyncio.create_task(judge_stored("churn", 3, session))
    await has_begun.wait()
    judging.cancel()

    with pytest.raises(asyncio.CancelledError):
        await judging
    assert len(read) < 10
