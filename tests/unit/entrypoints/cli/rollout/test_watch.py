"""Following a rollout: until it ends, also while Postgres is away for a while."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live

from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Kind, Phase, new_rollout_state
from understudy.entrypoints.cli.rollout.watch import ProxyReader, Screen, Seen, follow
from understudy.errors import ControlPlaneAway, RegistryUnavailable
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord, RolloutView
from understudy.rollout.status import RolloutStatus

POLICY = PolicySeen("6", "7", 0, 4, 1)
EVENTS = [
    RolloutEventRecord(number, float(number), 0, "PROGRESSING", None, f"event {number}", (), {}, {}, "1", "monitor")
    for number in range(40)
]


def a_status(*, is_over: bool = False) -> RolloutStatus:
    state = new_rollout_state(1, "churn", NAMED_PLANS["fast"], POLICY, 0.0)
    if is_over:
        state = replace(state, phase=Phase.FAILED)
    record = RolloutRecord(1, state, 1, 1, 2, "salt", None, None, "dana", None, None)
    return RolloutStatus(RolloutView(record, POLICY, {}, 1, 1, {}, 60.0), EVENTS, None)


class Looks:
    """An reader that sees the same moments every time; ``None`` stands for a Postgres that is away."""

    def __init__(self, moments: Sequence[RolloutStatus | None]) -> None:
        self._moments = iter(moments)

    async def read(self) -> RolloutStatus:
        moment = next(self._moments)
        if moment is None:
            raise RegistryUnavailable
        return moment


def a_reader(*moments: RolloutStatus | None) -> Looks:
    return Looks(moments)


def is_final(status: RolloutStatus) -> bool:
    return status.view.record.state.phase.is_final


async def test_a_rollout_is_followed_to_its_end_and_a_postgres_that_is_away_is_waited_for():
    told: list[RolloutStatus] = []
    away: list[float] = []
    running, over = a_status(), a_status(is_over=True)

    reader = a_reader(running, None, None, running, over)
    last = await follow(reader, told.append, away.append, is_final, pause_seconds=0.0)

    assert last is over
    assert told == [running, running, over]
    assert len(away) == 2
    assert 0 <= away[0] <= away[1]


async def test_a_postgres_that_is_away_from_the_first_look_on_is_a_failure():
    with pytest.raises(RegistryUnavailable):
        await follow(a_reader(None), lambda _: None, lambda _: None, is_final)


def a_screen(height: int) -> tuple[io.StringIO, Screen, Live]:
    shown = io.StringIO()
    console = Console(file=shown, width=80, height=height, color_system=None, force_terminal=True)
    live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
    return shown, Screen(console, live), live


def test_older_events_make_room_on_a_low_screen_and_the_next_command_stays():
    shown, low, live = a_screen(24)

    with live:
        low.tell(a_status())

    assert "event 39" in shown.getvalue()
    assert "event 28" not in shown.getvalue()
    assert "understudy rollout abort churn" in shown.getvalue()


def test_while_postgres_is_away_the_last_picture_stays_under_one_line_that_says_so():
    shown, wide, live = a_screen(60)

    with live:
        wide.tell(a_status())
        shown.truncate(0)
        wide.away(12.3)

    assert shown.getvalue().count("Postgres does not answer for 12 s; this is from before.") >= 1
    assert "event 39" in shown.getvalue()


class Proxy:
    """A proxy that has a rollout for so many looks; it keeps what it was asked. ``None``: it is away."""

    def __init__(self, *phases: str | None) -> None:
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self._phases = iter(phases)

    async def look(self, path: str, parameters: Mapping[str, str]) -> Mapping[str, Any]:
        self.asked.append((path, parameters))
        phase = next(self._phases)
        if phase is None:
            raise ControlPlaneAway
        rollout = {"rollout_id": 118, "phase": phase, "kind": "rollout"}
        return {"schema": 1, "rollout": rollout, "text": f"churn is {phase}\n"}


async def test_a_proxy_is_asked_for_the_rollout_that_was_the_newest_at_first():
    proxy = Proxy("PROGRESSING", None, "PROGRESSING", "FAILED")
    told: list[Seen] = []
    away: list[float] = []
    reader = ProxyReader(proxy.look, "a/b", 80)

    last = await follow(reader, told.append, away.append, lambda seen: seen.phase.is_final, pause_seconds=0.0)

    assert (last.phase, last.kind) == (Phase.FAILED, Kind.ROLLOUT)
    assert [path for path, _ in proxy.asked] == [
        "/v1/models/a%2Fb/rollouts/newest",
        *["/v1/models/a%2Fb/rollouts/118"] * 3,
    ]
    assert {tuple(parameters.items()) for _, parameters in proxy.asked} == {(("columns", "80"),)}
    assert told[-1].document == {"rollout": {"rollout_id": 118, "phase": "FAILED", "kind": "rollout"}}
    assert len(away) == 1


def test_what_a_proxy_drew_is_shown_with_how_long_it_is_away():
    shown, screen, live = a_screen(20)

    with live:
        screen.tell_seen(Seen({}, "churn is at 10 %\n"))
        screen.away(7.0)

    assert "churn is at 10 %" in shown.getvalue()
    assert "does not answer for 7 s" in shown.getvalue()
