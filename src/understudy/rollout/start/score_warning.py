"""Warns of a start that cannot compare scores: a version that is wrong without errors would become champion."""

from shlex import quote

from understudy.errors import SchemaInvalid
from understudy.ports.registry.registry import PolicyRecord, VersionRecord


def log_inputs_command(model_name: str) -> str:
    """Return the command after which scores can be compared: inputs are logged, and sent to a challenger again.

    Those of 5 % of the entities are enough within minutes of most traffic, and little beside what is logged anyway.
    """
    return f"understudy model set {quote(model_name)} --input-sample-percent 5"


def score_warnings(policy: PolicyRecord, champion: VersionRecord, challenger: VersionRecord) -> tuple[str, ...]:
    """Return in words why scores are not compared before the first share, and under it the command that helps.

    Nothing is returned where they can be compared, or there are none.
    A version that was a shadow is compared by what was logged of it then, so the warning makes an exception for it.
    """
    if policy.input_sample_percent or not (_has_score(champion) and _has_score(challenger)):
        return ()
    words = (
        f"no inputs of {policy.model_name} calls are logged, so {challenger.version}'s scores are not compared with "
        f"{champion.version}'s before its first share, unless it was the shadow: wrong scores without errors are not "
        f"seen\n→ {log_inputs_command(policy.model_name)}"
    )
    return (words,)


def _has_score(version: VersionRecord) -> bool:
    from understudy.core.schema.compile import compile_output_schema  # noqa: PLC0415 - numpy, which few commands need
    from understudy.core.schema.outputs import why_no_score  # noqa: PLC0415 - as above

    try:
        return why_no_score(compile_output_schema(version.output_schema)) is None
    except SchemaInvalid:
        return False
