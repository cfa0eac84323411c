"""Findings about policies that were applied from files."""

from collections.abc import Sequence
from shlex import quote

from understudy.ports.registry.registry import AppliedFile
from understudy.registry.findings.finding import Finding, State
from understudy.registry.policy_files import Contradiction, value_words


def judge_files(judged: Sequence[tuple[AppliedFile, Sequence[Contradiction]]]) -> list[Finding]:
    """Judge policies that were applied from files: a warning for each that others changed since, and one line."""
    good = sum(not contradictions for _, contradictions in judged)
    words = "1 policy is as its file says" if good == 1 else f"{good} policies are as their files say"
    summary = [Finding("policy files", State.GOOD, words)] if good else []
    return summary + [_warning(applied, contradictions) for applied, contradictions in judged if contradictions]


def _warning(applied: AppliedFile, contradictions: Sequence[Contradiction]) -> Finding:
    fields = [f"{one.field} {value_words(one.said)} in the file, {value_words(one.now)} now" for one in contradictions]
    return Finding(
        f"{applied.model_name} policy file",
        State.WARNING,
        f"not as {applied.path} says: {'; '.join(fields)}",
        f"understudy model show {quote(applied.model_name)} says by whom. Write it into the file, or undo it with "
        "understudy apply --overwrite.",
        applied.model_name,
    )
