"""Following the log: each call is told once, in whatever order calls reach it."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from understudy.entrypoints.cli.log.tail import MAX_CALLS, Told, follow
from understudy.errors import RegistryUnavailable
from understudy.ports.prediction_log.live_log import CallLine, LiveResult, NewestAsked
from understudy.ports.prediction_log.log_archive import WantedRows

AT = 1_795_000_000.0
FIRST = NewestAsked(AT - 86_400, 2)


def a_call(number: int, seconds: float) -> CallLine:
    return CallLine(number, None, AT + seconds, "visits", "2", "champion", "ok", None, 0.5, 2_000, False, "c")


class Looks:
    """A log that has other calls at each look; ``None`` stands for a Postgres that is away."""

    def __init__(self, *looks: Sequence[CallLine] | None) -> None:
        self._looks = iter(looks)
        self.asked: list[NewestAsked] = []

    def ask(self, statement: str, wanted: WantedRows) -> AbstractAsyncContextManager[LiveResult]:
        raise AssertionError

    async def newest(self, asked: NewestAsked) -> Sequence[CallLine]:
        self.asked.append(asked)
        calls = next(self._looks)
        if calls is None:
            raise RegistryUnavailable
        return calls


async def followed(log: Looks, turns: int) -> tuple[list[list[int]], list[str]]:
    told: list[list[int]] = []
    said: list[str] = []
    teller = Told(
        lambda calls: told.append([call.id for call in calls]),
        lambda: said.append("skipped"),
        lambda: said.append("away"),
    )
    await follow(log, FIRST, teller, pause_seconds=0.0, turns=turns)
    return told, said


async def test_the_newest_calls_are_told_and_then_what_comes_late_ones_too_and_none_twice():
    one, two, three, four, late = (a_call(number, number) for number in (1, 2, 3, 4, 0))
    log = Looks([one, two, three], [one, two, three], [one, two, three, four], [late, one, two, three, four])

    told, said = await followed(log, 3)

    assert told == [[2, 3], [], [4], [0]]
    assert said == []
    assert log.asked[1] == NewestAsked(AT + 3 - 30, MAX_CALLS)


async def test_a_postgres_that_is_away_is_asked_again_and_calls_that_are_not_read_are_said():
    crowd = [a_call(number, number / 1_000) for number in range(10, 10 + MAX_CALLS)]

    told, said = await followed(Looks([], None, crowd), 2)

    assert said == ["away", "skipped"]
    assert [len(calls) for calls in told] == [0, MAX_CALLS]
