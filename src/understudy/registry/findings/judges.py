"""What a checkup says of judges that rollouts and guards ask."""

from shlex import quote

from understudy.core.canary.judge_limits import JudgeLimit
from understudy.core.canary.judgement_records import Judgements, JudgeOutcome
from understudy.core.canary.judgements.judge_check import idle_words, unreadable_words
from understudy.registry.findings.finding import Finding, State

_FOR_A_PERSON = (JudgeOutcome.NO_INPUTS, JudgeOutcome.NOT_SENT_AGAIN, JudgeOutcome.NO_ANSWERS)
"""Why nothing is asked, and never will be until a person changes something."""


def judge_asked(model: str, challenger: str, limit: JudgeLimit, said: Judgements, *, is_guard: bool) -> Finding:
    """Judge whether the judge of an open rollout or guard can be relied on, and is asked at all.

    Args:
        model: Its model.
        challenger: The label of the version that it compares with the champion.
        limit: The judge.
        said: What it has said.
        is_guard: Whether it is a guard, which nothing else would miss it in: no step waits for it.
    """
    name = f"judge {model} {challenger}"
    unreadable = unreadable_words(said, limit)
    lacking = idle_words(said)
    if not unreadable and said.idle not in _FOR_A_PERSON:
        words = f"{len(said.times):,} judgements by {limit.name}"
        return Finding(name, State.GOOD, f"{words}; {lacking}" if lacking else words)
    meanwhile = "the guard judges by its other checks alone" if is_guard else "the step waits"
    advice = f"understudy rollout show {quote(model)}; docs/how-to/ask-a-judge.md says what to do"
    return Finding(name, State.WARNING, f"{unreadable or lacking}; {meanwhile}", advice)
