"""What the judge of a verdict has said, as it is stored with it."""

from collections.abc import Mapping
from typing import Any

from understudy.core.canary.judgement_records import NO_JUDGEMENTS, Judgements


def stored_judgements(judgements: Judgements) -> dict[str, Any]:
    """Return what is stored of a verdict's judge; nothing where its plan names none, or none was asked yet."""
    return {} if judgements == NO_JUDGEMENTS else {"judgements": judgements.to_json()}


def judgements_in(inputs: Mapping[str, Any]) -> Judgements:
    """Return the judgements that a stored verdict rests on.

    Raises:
        LookupError, TypeError, ValueError: They are not what was written.
    """
    return Judgements.from_json(inputs["judgements"]) if "judgements" in inputs else NO_JUDGEMENTS
