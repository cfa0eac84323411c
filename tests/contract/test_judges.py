"""Judges and their twin: what each answer comes to, and that nothing raises."""

from collections.abc import AsyncIterator

import pytest
from loopback.judge import JudgeServer
from loopback.receiver import HANG

from understudy.adapters.http.judges import MAX_ANSWER_BYTES, HttpJudges
from understudy.adapters.memory.judges import MemoryJudges
from understudy.core.canary.judgement_records import JudgeOutcome
from understudy.ports.rollout.judges import Judges

QUESTION = b'{"id":"judge_1","inputs":{},"first":{"score":0.2},"second":{"score":0.4}}'


@pytest.fixture
async def server() -> AsyncIterator[JudgeServer]:
    async with JudgeServer() as found:
        found.opinion = lambda question: {"scores": {side: question[side]["score"] for side in ("first", "second")}}
        yield found


@pytest.fixture
async def judges(server: JudgeServer) -> AsyncIterator[HttpJudges]:
    found = HttpJudges({"quality": f"{server.url}/ask/s3cr3t"}, {"quality": "s3cr3t-token"}, timeout_seconds=0.5)
    yield found
    await found.close()


@pytest.fixture(params=["memory", "http"])
def either(request: pytest.FixtureRequest, judges: HttpJudges) -> Judges:
    if request.param == "http":
        return judges
    return MemoryJudges({"quality": lambda question: question["first"]["score"] - question["second"]["score"]})


async def test_an_answer_is_the_points_of_the_first_less_those_of_the_second(either: Judges):
    answer = await either.ask("quality", "judge_1", QUESTION)

    assert answer.outcome is JudgeOutcome.ANSWERED
    assert answer.difference == pytest.approx(-0.2)
    assert either.names == {"quality"}


async def test_a_judge_that_no_setting_names_is_not_asked(either: Judges):
    answer = await either.ask("invented", "judge_1", QUESTION)

    assert (answer.outcome, answer.difference) == (JudgeOutcome.UNKNOWN_JUDGE, None)


@pytest.mark.parametrize(
    ("instead", "outcome", "detail"),
    [
        ((307, "location: http://127.0.0.1:1/\r\n", b""), JudgeOutcome.REDIRECTS, "307 "),
        ((401, "", b"no s3cr3t-token"), JudgeOutcome.DENIED, "401 no ***"),
        ((429, "", b"later"), JudgeOutcome.FAILED, "429 later"),
        ((202, "", b'{"id":"judge_1","winner":"first"}'), JudgeOutcome.FAILED, None),
        ((200, "", b'{"id":"judge_2","winner":"first"}'), JudgeOutcome.OTHER_ID, None),
        ((200, "", b'{"id":"judge_1","winner":"mine"}'), JudgeOutcome.UNREADABLE, None),
        ((200, "", b"[" * 60_000), JudgeOutcome.UNREADABLE, None),
        ((200, "", b" " * (MAX_ANSWER_BYTES + 1)), JudgeOutcome.HUGE, None),
        (HANG, JudgeOutcome.SLOW, "no answer within 0.5 s"),
    ],
    ids=["redirect", "denied", "busy", "accepted", "other id", "nonsense", "deep", "huge", "hangs"],
)
async def test_whatever_else_comes_is_no_judgement(
    judges: HttpJudges, server: JudgeServer, instead: object, outcome: JudgeOutcome, detail: str | None
):
    server.instead = instead  # type: ignore[assignment]  # an answer, or HANG

    answer = await judges.ask("quality", "judge_1", QUESTION)

    assert (answer.outcome, answer.difference) == (outcome, None)
    assert "s3cr3t" not in answer.detail
    assert detail is None or answer.detail == detail


async def test_a_judge_that_is_down_is_told(judges: HttpJudges, server: JudgeServer):
    server._server.close()  # noqa: SLF001 - so that nothing listens any more
    await server._server.wait_closed()  # noqa: SLF001 - as above

    assert (await judges.ask("quality", "judge_1", QUESTION)).outcome is JudgeOutcome.DOWN
