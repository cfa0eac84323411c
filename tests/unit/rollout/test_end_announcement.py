"""When the end of a rollout is announced, what it says, and what is counted with it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Kind, Phase, new_rollout_state
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.rollout.rollout_store import (
    NewRolloutEvent,
    RolloutEventRecord,
    RolloutRecord,
    RolloutStore,
    RolloutView,
)
from understudy.rollout.end_announcement import DRAIN_SECONDS, EndAnnouncement
from understudy.rollout.metrics import NO_CHECK, RolloutMetrics
from understudy.rollout.verdicts.verdict_event import ACTOR

EPOCH = cast("Epoch", None)
POLICY = PolicySeen("1", None, 0, 5, 1)
STATE = new_rollout_state(7, "churn", NAMED_PLANS["default"], PolicySeen("1", "2", 0, 4, 7), 0.0)
END = 1_000.0


class Ended:
    """A store of one rollout that an actor ended, which keeps what is announced."""

    def __init__(self, actor: str = ACTOR) -> None:
        self.announced: list[tuple[str, NewRolloutEvent]] = []
        self._events = [RolloutEventRecord(1, END, 0, Phase.FAILED, None, "", (), {}, {}, "1", actor)]

    async def announce(self, _view: RolloutView, reason: str, event: NewRolloutEvent, *, epoch: Epoch) -> None:
        assert epoch is EPOCH
        self.announced.append((reason, event))

    async def events(self, _rollout_id: int) -> Sequence[RolloutEventRecord]:
        return self._events


def a_view(
    seconds: float, *, phase: Phase = Phase.FAILED, kind: Kind = Kind.ROLLOUT, left: int = 0, **changed: Any
) -> RolloutView:
    state = replace(STATE, phase=phase, kind=kind)
    record = RolloutRecord(7, state, 3, 1, 2, "salt", 9_000, None, "dana", END, None)
    return RolloutView(record, POLICY, {}, 2, 2, {2: left}, END + seconds)._replace(**changed)


async def announced(view: RolloutView, store: Ended | None = None) -> tuple[list[str], MemoryTelemetry]:
    store, telemetry = store or Ended(), MemoryTelemetry()
    await EndAnnouncement(cast("RolloutStore", store), RolloutMetrics(telemetry)).announce(view, EPOCH)
    return [reason for reason, _ in store.announced], telemetry


async def test_an_end_that_every_live_proxy_confirms_without_a_call_in_flight_is_announced_at_once():
    said, telemetry = await announced(a_view(1.5))

    assert said == ["2 of 2 live proxies have confirmed the end after 1.5 s; 0 calls in flight at version 2"]
    assert telemetry.observed == {("rollback_duration_seconds", "churn"): [1.5]}


@pytest.mark.parametrize("waits_for", [{"proxies_on_generation": 1}, {"left": 3}])
async def test_what_has_not_come_is_waited_for_and_said_after_the_time_of_draining(waits_for):
    early, _ = await announced(a_view(DRAIN_SECONDS - 1, **waits_for))
    late, _ = await announced(a_view(DRAIN_SECONDS, **waits_for))

    assert early == []
    assert len(late) == 1


async def test_the_calls_of_a_challenger_that_is_champion_now_are_not_waited_for():
    said, telemetry = await announced(a_view(0.5, phase=Phase.SUCCEEDED, left=9))

    assert said == ["2 of 2 live proxies have confirmed the end after 0.5 s"]
    assert telemetry.observed == {}


async def test_without_a_live_proxy_an_end_is_unconfirmed_at_once():
    said, telemetry = await announced(a_view(0.0, proxies=0, proxies_on_generation=0))

    assert said == ["no live proxy: the end is unconfirmed"]
    assert telemetry.observed == {}


@pytest.mark.parametrize(
    ("actor", "kind", "counted"),
    [
        (ACTOR, Kind.ROLLOUT, []),
        ("dana", Kind.ROLLOUT, [("rollbacks_total", "churn", "order", NO_CHECK)]),
        ("dana", Kind.GUARD, [("rollbacks_total", "churn", "by_hand", NO_CHECK)]),
    ],
)
async def test_an_end_by_an_operator_is_counted_when_it_is_announced(actor, kind, counted):
    _, telemetry = await announced(a_view(0.5, kind=kind), Ended(actor))

    assert list(telemetry.counts) == counted
