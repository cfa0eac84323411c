"""What must hold for every answer; each broken rule is a sentence."""

from typing import Any

from rigs.fuzz.answers import Answer, NoAnswer, parse_answers
from rigs.fuzz.cases import NAMED_FAILURES, Case
from rigs.fuzz.values import MARK
from rigs.fuzz.wire import Heard, WireCase
from understudy.errors import leaf_errors

CODES = frozenset(error.code for error in leaf_errors())
SLOW_SECONDS = 5.0
"""Of a whole request, among many: far beyond what any should take, so that a busy machine is no finding."""
_LAST_OF_CALLERS = 499
_BELOW_HTTP = {
    400: b"Invalid HTTP request received.",
    431: b"The head of the request is too long: at most 65536 bytes of target and headers.",
}
"""Answers in plain text: what is refused before there is a request."""


def judge_case(case: Case, answer: Answer, seconds: float) -> list[str]:
    """Return what is wrong with the answer to a whole request."""
    found = judge_answer(answer, in_form=case.is_dialect)
    if answer.status not in case.expected:
        found.append(f"status {answer.status}, expected one of {sorted(case.expected)}")
    if MARK.encode() in answer.body and not (answer.status == 200 and case.target.endswith("/rank")):  # noqa: PLR2004
        found.append("the answer repeats the caller's input")
    if seconds > SLOW_SECONDS:
        found.append(f"took {seconds:.1f} s")
    if case.members is not None and answer.status == 200:  # noqa: PLR2004 - an answered batch
        found += _judge_members(case.members, answer.document())
    return found


def judge_wire(case: WireCase, heard: Heard) -> list[str]:
    """Return what is wrong with what came over a connection of its own."""
    if case.ends == "resets":
        return []
    if not heard.is_over:
        return ["the connection is neither answered nor closed"]
    try:
        answers = parse_answers(heard.data)
    except NoAnswer as problem:
        return [str(problem)]
    most = case.requests + (case.ends == "asks")
    found = [f"{len(answers)} answers to {most} requests"] if len(answers) > most else []
    return found + [problem for answer in answers for problem in judge_answer(answer)]


def judge_answer(answer: Answer, *, in_form: bool = False) -> list[str]:
    """Return what is wrong with any answer, whatever was asked.

    Args:
        answer: The answer.
        in_form: Whether an error comes in the form of another server's protocol.
    """
    if answer.body == _BELOW_HTTP.get(answer.status):
        return []
    if answer.status < 400:  # noqa: PLR2004 - from there on it is a problem
        return []
    document = answer.document()
    found = []
    kind = b"application/json" if in_form else b"application/problem+json"
    if answer.headers.get("content-type") != kind or not isinstance(document, dict):
        found.append(f"status {answer.status} without a problem")
    elif document.get("code") not in CODES or document.get("status") != answer.status:
        found.append(f"a problem that the reference does not know: {document.get('code')}, {document.get('status')}")
    elif in_form and not isinstance(document.get("error"), str):
        found.append("an error without the sentence that these clients read")
    if answer.status > _LAST_OF_CALLERS and answer.status not in NAMED_FAILURES:
        found.append(f"status {answer.status}")
    return found


def prediction_ids(answer: Answer) -> list[str]:
    """Return the ids of all predictions that must be in the log: those that were made, and those that failed.

    A request that its caller must correct has an id too, and no row.
    """
    named = answer.headers.get("x-prediction-id")
    is_logged = answer.status == 200 or answer.status > _LAST_OF_CALLERS  # noqa: PLR2004 - answered
    ids = [named.decode()] if named is not None and is_logged else []
    document: Any = answer.document() if b'"predictions"' in answer.body else None
    members = document.get("predictions") if isinstance(document, dict) else None
    ids += [
        member["prediction_id"]
        for member in members or []
        if isinstance(member, dict)
        and member.get("error", {}).get("status", 500) > _LAST_OF_CALLERS
        and "prediction_id" in member
    ]
    return ids


def _judge_members(good: tuple[bool, ...], document: Any) -> list[str]:
    members = document["predictions"]
    if len(members) != len(good):
        return [f"{len(members)} answers for {len(good)} members"]
    if document["failed"] != sum("error" in member for member in members):
        return ["failed is not the number of failed members"]
    lost = [
        member["error"]["code"] for member, is_good in zip(members, good, strict=True) if is_good and "error" in member
    ]
    return [f"a good member of a batch got {code}" for code in lost if code not in ("E503", "E504", "E507")]
