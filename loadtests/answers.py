"""What a load test saw, answer by answer, and the figures that it comes to.

Nothing of the product and no library that patches sockets is imported: the locustfile uses this, and so do tests.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import orjson

LATE = 504
BROKEN = 0
"""The status of a request that no answer came to: refused, reset, or given up."""


class Answer(NamedTuple):
    """One request and what came of it; times are of the monotonic clock, in seconds."""

    due: float
    """When it should have been sent. A caller who was kept waiting sends later, and that counts as waiting."""
    sent: float
    ended: float
    status: int
    prediction_id: str = ""
    version: str = ""
    generation: int = 0
    cached: bool = False
    fallback: bool = False

    @property
    def ms(self) -> float:
        """How long it took from when it was due, in milliseconds."""
        return (self.ended - self.due) * 1000


class Change(NamedTuple):
    """A change of the policy: when it was ordered and when it was heard of, by the monotonic clock in seconds."""

    generation: int
    ordered: float
    heard: float
    versions: frozenset[str]
    """Labels of those who may answer from then on."""


class Recorded(NamedTuple):
    """A load as it was: ``lasted`` so many seconds from ``began`` on, with ``planned`` requests due in that time."""

    began: float
    lasted: float
    planned: int
    answers: list[Answer]


class BadRecord(Exception):
    """A file that holds no whole load; says which and why."""


def write_beginning(path: Path, began: float) -> None:
    """Say in the file that a load has begun, and when."""
    path.write_bytes(orjson.dumps({"began": began}) + b"\n")


def write_rest(path: Path, lasted: float, planned: int, answers: Iterable[Answer]) -> None:
    """Add the answers, one a line, and in the end how long it was and how many requests were due."""
    with path.open("ab") as file:
        file.writelines(orjson.dumps(tuple(answer)) + b"\n" for answer in answers)
        file.write(orjson.dumps({"lasted": lasted, "planned": planned}) + b"\n")


def read_record(path: Path) -> Recorded:
    """Return a load that was written.

    Raises:
        BadRecord: The load did not come to its end, or the file is of something else.
    """
    try:
        first, *middle, last = (orjson.loads(line) for line in path.read_bytes().splitlines())
        return Recorded(first["began"], last["lasted"], last["planned"], [Answer(*fields) for fields in middle])
    except (OSError, ValueError, TypeError, KeyError) as problem:
        raise BadRecord(f"{path}: not a load that came to its end ({problem}); see what locust said") from problem


def figures_of(recorded: Recorded, changes: Sequence[Change] = ()) -> dict[str, float]:
    """Return the figures of a load by the names of the objectives; what was not measured is not there.

    Args:
        recorded: The load.
        changes: Of the policy, in their order; the first one is in force before the load begins.
    """
    answers = recorded.answers
    count = len(answers)
    figures = {"asked_percent": _percent(count, recorded.planned)}
    if not answers:
        return figures
    took = sorted(answer.ms for answer in answers)
    statuses = Counter(answer.status for answer in answers)
    failed = sum(n for status, n in statuses.items() if status == BROKEN or status >= 500)
    figures |= {
        "availability_percent": _percent(count - failed, count),
        "refused_percent": _percent(sum(n for status, n in statuses.items() if 400 <= status < 500), count),
        "late_percent": _percent(statuses[LATE], count),
        "fallback_percent": _percent(sum(answer.fallback for answer in answers), count),
        "cache_hit_percent": _percent(sum(answer.cached for answer in answers), count),
        **{f"p{percent}_ms": percentile(took, percent) for percent in (50, 95, 99)},
    }
    if changes:
        figures["stale_ms"] = stale_ms(answers, changes)
    return figures


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the smallest value that so many percent of all do not exceed (nearest rank)."""
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]


def stale_ms(answers: Iterable[Answer], changes: Sequence[Change]) -> float:
    """Return how long after a change a request was last sent that was not answered as it says, in milliseconds.

    It was not, when an older policy answered it, or a version that the change no longer permits; the champion may
    answer for a challenger that failed. A change is known from when it was heard of, or an answer named it.
    """
    answers = [answer for answer in answers if answer.status == 200]
    seen: dict[int, float] = {}
    for answer in answers:
        seen[answer.generation] = min(seen.get(answer.generation, inf), answer.ended)
    ends = [later.ordered for _, later in pairwise(changes)] + [inf]
    worst = 0.0
    for change, end in zip(changes, ends, strict=True):
        known = min(change.heard, seen.get(change.generation, inf))
        for answer in answers:
            is_stale = answer.generation < change.generation or (
                answer.version not in change.versions and not answer.fallback
            )
            if is_stale and known < answer.sent < end:
                worst = max(worst, answer.sent - known)
    return worst * 1000


def log_figures(answers: Iterable[Answer], rows: Mapping[str, int]) -> dict[str, float]:
    """Return how many answered predictions a log lacks, and how many it has more than once.

    Args:
        answers: Of the load.
        rows: How many rows the log has of each prediction id.
    """
    identifiers = {answer.prediction_id for answer in answers if answer.prediction_id}
    return {
        "missing_rows": sum(identifier not in rows for identifier in identifiers),
        "doubled_rows": sum(rows.get(identifier, 0) > 1 for identifier in identifiers),
    }


def behind_ms(answers: Iterable[Answer]) -> float:
    """Return the p99 of how much later than due requests were sent, in milliseconds."""
    return percentile(sorted((answer.sent - answer.due) * 1000 for answer in answers) or [0.0], 99)


def answered_by(answers: Iterable[Answer]) -> dict[str, int]:
    """Return how many answers there were of each kind, for people."""
    return dict(Counter(kind_of(answer) for answer in answers).most_common())


def kind_of(answer: Answer) -> str:
    """Return in words who answered, or what went wrong."""
    if answer.status == BROKEN:
        return "no answer"
    if answer.status != 200:
        return f"status {answer.status}"
    how = " (fallback)" if answer.fallback else " (cached)" if answer.cached else ""
    return f"version {answer.version}{how}"


def body_of(line: Mapping[str, Any], entity: str) -> bytes:
    """Return the body of a predict call with inputs that a file holds; an entity of its own unless the line has one."""
    return orjson.dumps({"entity_id": entity, **line})


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0
