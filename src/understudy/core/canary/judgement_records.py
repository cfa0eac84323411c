"""What a judge was asked and said, row by row, and what it comes to: paired differences, position bias, problems."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Self

LOST_SECONDS = 120.0
"""A question that nothing came of for this long is lost: the monitor that asked it is no more."""
FAILING_QUESTIONS = 5
"""So many of the newest questions without an answer, and the judge cannot be relied on now."""
BOTH_WAYS_RATIO = 0.05
"""Of the pairs, which are asked in both orders."""


class JudgeOutcome(StrEnum):
    """What came of a question, or of looking for one. The words are stored."""

    ANSWERED = "answered"
    EQUAL = "equal"
    """Both versions gave the same answer: a tie, which needs no question."""
    UNKNOWN_JUDGE = "unknown_judge"
    DOWN = "down"
    SLOW = "slow"
    REDIRECTS = "redirects"
    DENIED = "denied"
    FAILED = "failed"
    HUGE = "huge"
    UNREADABLE = "unreadable"
    OTHER_ID = "other_id"
    """It answers another question than it was asked."""
    NO_INPUTS = "no_inputs"
    """Why nothing is asked, this one and those below: no inputs of the champion's calls are logged."""
    NOT_SENT_AGAIN = "not_sent_again"
    NO_ANSWERS = "no_answers"
    ALL_ASKED = "all_asked"
    MONEY_SPENT = "money_spent"
    FULL = "full"

    @property
    def is_settled(self) -> bool:
        """Whether it is a judgement."""
        return self in (JudgeOutcome.ANSWERED, JudgeOutcome.EQUAL)


class JudgeQuestion(NamedTuple):
    """A question that was paid for, or a pair that needed none."""

    id: int
    pair: str
    """Digest of the inputs and both answers."""
    is_challenger_first: bool
    entity_bucket: int
    """The analysis bucket of the entity that called."""
    asked_at: float
    """In seconds since the epoch, as ``answered_at``."""
    cost_micros: int
    outcome: JudgeOutcome | None = None
    """``None`` while it is under way."""
    answered_at: float | None = None
    difference: float | None = None
    """The challenger's points less the champion's, -1 to 1."""


class JudgeRecord(NamedTuple):
    """All that is stored of a rollout's judge."""

    questions: Sequence[JudgeQuestion] = ()
    idle: JudgeOutcome | None = None
    """Why the last look for questions found none; ``None`` where it found some."""


class Judgements(NamedTuple):
    """What a rollout's judge has said: one difference for each pair of answers, in the order they were known."""

    times: tuple[float, ...] = ()
    differences: tuple[float, ...] = ()
    buckets: tuple[int, ...] = ()
    equal: int = 0
    """Pairs of equal answers among them, which were not asked about."""
    asked: int = 0
    """Questions."""
    answered: int = 0
    first_points: float = 0.0
    """What the answer that stood first got, of all that were answered: half of them where places do not matter."""
    both_ways: int = 0
    """Pairs that were answered in both orders."""
    contradicted: int = 0
    """Of these, pairs in which the same place won twice."""
    spent_micros: int = 0
    failing: int = 0
    """The newest questions, as far as none of them was answered."""
    problem: str = ""
    """What came of the newest of these."""
    idle: str = ""
    """Why no question is asked at the moment; empty where some are."""

    def until(self, moment: float) -> "Judgements":
        """Return it with the pairs that were known at a moment."""
        end = bisect_right(self.times, moment)
        if end == len(self.times):
            return self
        return self._replace(times=self.times[:end], differences=self.differences[:end], buckets=self.buckets[:end])

    def to_json(self) -> dict[str, Any]:
        """Return it as it is stored with a verdict."""
        return self._asdict()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return what was stored.

        Raises:
            LookupError, TypeError, ValueError: It is not what was written.
        """
        columns = {name: tuple(document[name]) for name in ("times", "differences", "buckets")}
        found = cls(**{**document, **columns})
        if len({len(column) for column in columns.values()}) != 1:
            raise ValueError("judgements: the columns have different lengths")
        return found


NO_JUDGEMENTS = Judgements()


def outcome_of(word: str | None) -> JudgeOutcome | None:
    """Return what came of a question; one that this release has no word for was not answered."""
    if word is None:
        return None
    try:
        return JudgeOutcome(word)
    except ValueError:
        return JudgeOutcome.UNREADABLE


def judgements_of(record: JudgeRecord, now: float) -> Judgements:
    """Return what a judge's questions come to; a pair counts once nothing of it is under way."""
    by_pair: dict[str, list[JudgeQuestion]] = {}
    for question in record.questions:
        by_pair.setdefault(question.pair, []).append(question)
    pairs = sorted(found for questions in by_pair.values() if (found := _pair_of(questions, now)) is not None)
    asked = [one for one in record.questions if one.outcome is not JudgeOutcome.EQUAL]
    answered = [one for one in asked if one.outcome is JudgeOutcome.ANSWERED]
    both = [found for found in map(_both_of, by_pair.values()) if found is not None]
    failing = _failing(asked, now)
    return Judgements(
        tuple(known_at for known_at, _, _ in pairs),
        tuple(difference for _, difference, _ in pairs),
        tuple(bucket for _, _, bucket in pairs),
        equal=len(record.questions) - len(asked),
        asked=len(asked),
        answered=len(answered),
        first_points=sum(map(_first_points, answered)),
        both_ways=len(both),
        contradicted=sum(one * other < 0 for one, other in both),
        spent_micros=sum(one.cost_micros for one in asked),
        failing=len(failing),
        problem=(failing[0].outcome or JudgeOutcome.SLOW).value if failing else "",
        idle="" if record.idle is None else record.idle.value,
    )


def _pair_of(questions: Sequence[JudgeQuestion], now: float) -> tuple[float, float, int] | None:
    """Return when a pair was known, its difference, and its entity's bucket; the two orders count as their mean."""
    if any(one.outcome is None and now - one.asked_at < LOST_SECONDS for one in questions):
        return None
    said = [one for one in questions if one.outcome is not None and one.outcome.is_settled]
    if not said:
        return None
    known_at = max(one.asked_at + LOST_SECONDS if one.answered_at is None else one.answered_at for one in questions)
    return known_at, sum(one.difference or 0.0 for one in said) / len(said), said[0].entity_bucket


def _both_of(questions: Sequence[JudgeQuestion]) -> tuple[float, float] | None:
    """Return a pair's differences in both orders, where both were answered."""
    said = {one.is_challenger_first: one.difference or 0.0 for one in questions if one.outcome is JudgeOutcome.ANSWERED}
    return (said[True], said[False]) if len(said) == len((True, False)) else None


def _first_points(question: JudgeQuestion) -> float:
    difference = question.difference or 0.0
    return (1 + (difference if question.is_challenger_first else -difference)) / 2


def _failing(asked: Iterable[JudgeQuestion], now: float) -> list[JudgeQuestion]:
    """Return the newest questions that came to nothing, newest first, up to the newest that was answered."""
    ended = [one for one in asked if one.outcome is not None or now - one.asked_at >= LOST_SECONDS]
    ended.sort(key=lambda one: (one.answered_at or one.asked_at + LOST_SECONDS, one.id), reverse=True)
    found = []
    for one in ended:
        if one.outcome is JudgeOutcome.ANSWERED:
            break
        found.append(one)
    return found
