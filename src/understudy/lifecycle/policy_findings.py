"""Findings about policies that were applied from files."""

from collections.abc import Sequence
from shlex import quote

from understudy.lifecycle.policy_files import Contradiction, value_words
from understudy.lifecycle.server_findings import Finding, State
from understudy.ports.registry.registry import AppliedFile


def judge_applied(applied: AppliedFile, contradictions: Sequence[Contradiction]) -> Finding:
    """Judge a policy that was applied from a file: a field that others changed since is a warning."""
    name = f"{applied.model_name} policy file"
    if not contradictions:
        return Finding(name, State.GOOD, f"as {applied.path} says")
    fields = [f"{one.field} {value_words(one.said)} in the file, {value_words(one.now)} now" for one in contradictions]
    return Finding(
        name,
        State.WARNING,
        f"not as {applied.path} says: {'; '.join(fields)}",
        f"understudy model show {quote(applied.model_name)} says by whom. Write it into the file, or apply again.",
    )
