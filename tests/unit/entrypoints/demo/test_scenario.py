"""The scenario: what is started when, and what of it is shown."""

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from rich.console import Console

from understudy.core.canary.decision import Verdict
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.state import Phase, new_rollout_state
from understudy.entrypoints.cli.demo.screen import DemoScreen
from understudy.entrypoints.demo.scenario import PLAN, Moment, play, steps_of
from understudy.entrypoints.demo.topology import SCENARIO, UNTOUCHED, Standing
from understudy.errors import PolicyRefused, RegistryUnavailable
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import (
    NewRollout,
    RolloutEventRecord,
    RolloutRecord,
    RolloutStore,
    RolloutView,
)

BEGAN = 1_700_000_000.0
BAD, GOOD = SCENARIO
TYPICAL_LATENCY = {
    "check": "typical_latency",
    "state": "fail",
    "champion": 0.003,
    "challenger": 0.042,
    "change": 14.0,
    "change_low": 11.7,
    "change_high": None,
    "limit": 1.5,
    "evidence": 31_939.2,
    "evidence_needed": 400.0,
    "evidence_across_entities": 90.0,
    "evidence_across_entities_needed": 20.0,
    "champion_requests": 1_090,
    "challenger_requests": 126,
}


def an_event(number: int, reason: str, phase: Phase = Phase.PROGRESSING, **values: Any) -> RolloutEventRecord:
    event = RolloutEventRecord(number, BEGAN + 10 * number, 0, phase, None, reason, (), {}, {}, "1.0", "monitor")
    return event._replace(**values)


def a_view(rollout_id: int, version: str, revision: int = 0, *, is_over: bool = False) -> RolloutView:
    policy = PolicySeen("1", version, 0, 2, rollout_id)
    state = new_rollout_state(rollout_id, "visits", PLAN, policy, BEGAN)
    if revision:
        state = replace(state, step_starts=(BEGAN + 1,))
    if is_over:
        state = replace(state, phase=Phase.FAILED)
    announced_at = BEGAN + 60 if is_over else None
    record = RolloutRecord(rollout_id, state, revision, 1, 3, "salt", None, None, "demo", announced_at, announced_at)
    return RolloutView(record, policy, {}, 1, 1, {}, BEGAN + 35)


class Rollouts:
    """A registry in which each rollout goes through the same three moments, the last of which is its end."""

    def __init__(self, *, is_away_once: bool = False) -> None:
        self.begun: list[str] = []
        self.said: list[str] = []
        self._looks = 0
        self._is_away = is_away_once

    async def start(self, new: NewRollout, actor: Actor) -> RolloutRecord:
        self.begun.append(new.challenger)
        self.said.append(f"begins {new.challenger}")
        self._looks = 0
        return a_view(len(self.begun), new.challenger).record

    async def view(self, rollout_id: int) -> RolloutView:
        self._looks += 1
        if self._looks == 2 and self._is_away:
            self._is_away = False
            raise RegistryUnavailable
        return a_view(rollout_id, self.begun[-1], min(self._looks, 3), is_over=self._looks >= 3)

    async def events(self, rollout_id: int) -> Sequence[RolloutEventRecord]:
        return [an_event(number, f"{rollout_id}.{number}") for number in range(1, self._looks + 1)]


async def told_by(rollouts: Rollouts) -> list[Moment]:
    store = cast("RolloutStore", rollouts)
    return [moment async for moment in play(store, SCENARIO, pause_seconds=0.0)]


async def test_each_event_is_told_once_and_the_next_version_starts_when_the_one_before_has_ended():
    rollouts = Rollouts()

    moments = await told_by(rollouts)

    assert rollouts.begun == ["3", "2"]
    assert [event.reason for moment in moments for event in moment.events] == ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3"]
    assert [moment.is_over for moment in moments] == [False, False, True] * 2


async def test_a_registry_that_is_away_is_waited_for():
    moments = await told_by(Rollouts(is_away_once=True))

    assert [event.reason for moment in moments for event in moment.events][-1] == "2.3"
    assert [moment.step for moment in moments if moment.is_over] == [BAD, GOOD]


async def test_a_moment_in_which_nothing_changed_tells_no_event_again():
    class Slow(Rollouts):
        async def view(self, rollout_id: int) -> RolloutView:
            return (await super().view(rollout_id)) if self._looks != 1 else self._same(rollout_id)

        def _same(self, rollout_id: int) -> RolloutView:
            self._looks += 1
            return a_view(rollout_id, self.begun[-1], 1)

    moments = await told_by(Slow())

    assert [len(moment.events) for moment in moments] == [1, 0, 2] * 2


@pytest.mark.parametrize(
    ("standing", "versions"),
    [
        (UNTOUCHED, ["3", "2"]),
        (Standing("2", is_new=False, candidates=frozenset({"3"})), ["3"]),
        (Standing("3", is_new=False, candidates=frozenset({"2"})), ["2"]),
    ],
)
def test_an_act_whose_version_cannot_be_rolled_out_is_left_out(standing, versions):
    assert [step.version for step in steps_of(standing)] == versions


def on_screen(*moments: Moment, **options: Any) -> list[str]:
    screen = io.StringIO()
    demo_screen = DemoScreen(Console(file=screen, width=80, color_system=None, **options), is_quiet=False)
    with demo_screen.live():
        for moment in moments:
            demo_screen.tell(moment)
    return screen.getvalue().splitlines()


def test_a_rollback_is_told_with_its_evidence_in_80_columns():
    reason = "version 3 rolled back at 10 %: ROLL BACK visits v3 at 10 % (minute 0): typical latency 42 ms vs 3 ms"
    rolled_back = an_event(
        3, reason, Phase.FAILED, verdict=Verdict.ROLL_BACK, evidence=[TYPICAL_LATENCY | {"change": None}]
    )
    confirmed = an_event(4, "1 of 1 live proxies have confirmed the end", Phase.FAILED)

    lines = on_screen(
        Moment(BAD, a_view(1, "3"), (an_event(0, "begins"),)),
        Moment(BAD, a_view(1, "3", 3, is_over=True), (rolled_back, confirmed)),
    )

    said = "\n".join(lines)
    assert "Rollout 1: version 3 against champion 1" in said
    assert "  0:30 ✖  version 3 rolled back at 10 %: ROLL BACK visits v3 at 10 %" in said
    assert "typical latency 42 ms vs 3 ms (at least" in said
    assert "31,939 / 400  ✖ fail" in said
    assert "  0:40    1 of 1 live proxies" in said, "only the first event of a phase is marked"
    assert "rollout show visits 1" in said
    assert "…" not in said
    assert max(map(len, lines)) <= 80


def test_evidence_beyond_counting_is_not_counted():
    rolled_back = an_event(
        1, "bad", Phase.FAILED, verdict=Verdict.ROLL_BACK, evidence=[TYPICAL_LATENCY | {"evidence": 1e250}]
    )

    said = "\n".join(on_screen(Moment(BAD, a_view(1, "3"), (rolled_back,))))

    assert ">1,000,000 / 400" in said


def test_on_a_terminal_the_step_under_way_is_in_the_line_that_is_renewed():
    lines = on_screen(Moment(BAD, a_view(1, "3", 1), ()), force_terminal=True)

    assert any("rollout 1  version 3   ● 10 % for 0:34  ○ 50 %  ○ champion" in line for line in lines)


def test_a_rollout_that_cannot_be_started_is_said_with_what_to_do():
    screen = io.StringIO()
    demo_screen = DemoScreen(Console(file=screen, width=80, color_system=None))

    demo_screen.refuse(PolicyRefused("visits has an open rollout", hint="End it: understudy rollout abort visits."))

    assert screen.getvalue() == (
        "! no rollout was started: visits has an open rollout\n  → End it: understudy rollout abort visits.\n"
    )
