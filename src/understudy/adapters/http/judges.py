"""Judges over HTTP, by the names that a setting gives their addresses."""

from collections.abc import Mapping
from http import HTTPStatus

from understudy.adapters.http.judged_endpoint import Fetched, FetchProblem
from understudy.adapters.http.name_resolver import Resolve, addresses_of
from understudy.adapters.http.named_endpoints import NamedEndpoints
from understudy.core.canary.judge_question import read_judgement
from understudy.core.canary.judgement_records import JudgeOutcome
from understudy.ports.rollout.judges import JudgeAnswer

MAX_ANSWER_BYTES = 65_536
_FETCH_PROBLEMS = {
    FetchProblem.LATE: JudgeOutcome.SLOW,
    FetchProblem.HUGE: JudgeOutcome.HUGE,
    FetchProblem.UNREACHED: JudgeOutcome.DOWN,
}
_STATUSES: Mapping[int, JudgeOutcome] = {
    HTTPStatus.UNAUTHORIZED: JudgeOutcome.DENIED,
    HTTPStatus.FORBIDDEN: JudgeOutcome.DENIED,
}


class HttpJudges:
    """Implements ``ports.Judges``.

    Args:
        addresses: Of the judges, by their names; treated as secrets, because many contain a token.
        tokens: Sent as ``authorization: Bearer`` to the judges of these names.
        timeout_seconds: Longest time of one question, resolving and connecting included.
        resolve: Returns the addresses of a name; called in a thread.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        tokens: Mapping[str, str],
        *,
        timeout_seconds: float,
        resolve: Resolve = addresses_of,
    ) -> None:
        self._judges = NamedEndpoints(addresses, tokens, timeout_seconds=timeout_seconds, resolve=resolve)

    @property
    def names(self) -> frozenset[str]:
        """The judges that this process knows."""
        return self._judges.names

    async def ask(self, judge: str, question_id: str, body: bytes) -> JudgeAnswer:
        """Ask once, within the deadline; every problem is an answer without a difference."""
        headers = {"content-type": "application/json", "idempotency-key": question_id}
        fetched = await self._judges.fetch(judge, body, headers, MAX_ANSWER_BYTES)
        if fetched is None:
            return JudgeAnswer(JudgeOutcome.UNKNOWN_JUDGE, detail=f"there is no judge {judge}")
        answer = _answer_of(fetched, question_id)
        return answer._replace(detail=self._judges.detail(judge, answer.detail))

    async def close(self) -> None:
        """Close the connections."""
        await self._judges.close()


def _answer_of(fetched: Fetched, question_id: str) -> JudgeAnswer:
    if fetched.problem is not None:
        return JudgeAnswer(_FETCH_PROBLEMS[fetched.problem], detail=fetched.detail)
    status = fetched.status
    if status != HTTPStatus.OK:
        is_redirect = HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST
        usual = JudgeOutcome.REDIRECTS if is_redirect else JudgeOutcome.FAILED
        said = fetched.body.decode(errors="replace")
        return JudgeAnswer(_STATUSES.get(status, usual), detail=f"{status} {said}")
    try:
        difference = read_judgement(fetched.body, question_id)
    except (RecursionError, ValueError) as problem:
        return JudgeAnswer(JudgeOutcome.UNREADABLE, detail=f"its answer cannot be read: {problem}")
    if difference is None:
        return JudgeAnswer(JudgeOutcome.OTHER_ID, detail="its answer has the id of another question")
    return JudgeAnswer(JudgeOutcome.ANSWERED, difference)
