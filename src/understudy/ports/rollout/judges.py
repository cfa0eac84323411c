"""Port of judges: who compares both versions' answers, over HTTP, under names that plans give."""

from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from understudy.core.canary.judgement_records import JudgeOutcome


class JudgeAnswer(NamedTuple):
    """What a judge said of one question."""

    outcome: JudgeOutcome
    difference: float | None = None
    """The points of the answer that stands first, less those of the second: -1 to 1; ``None`` where it said nothing."""
    detail: str = ""
    """For people, without secrets; empty where there is no problem."""


class Judges(Protocol):
    """The judges that this process knows the addresses of."""

    @property
    def names(self) -> AbstractSet[str]:
        """Their names."""

    async def ask(self, judge: str, question_id: str, body: bytes, /) -> JudgeAnswer:
        """Ask once, within a deadline. Never raises.

        Args:
            judge: Its name; one that is not known answers with a problem.
            question_id: What its answer has to name as well.
            body: The question, as JSON.
        """

    async def close(self) -> None:
        """Close the connections."""
