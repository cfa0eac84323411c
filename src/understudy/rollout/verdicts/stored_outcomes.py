"""The outcomes that a verdict rests on, as they are stored with it."""

from collections.abc import Mapping
from typing import Any

from understudy.core.canary.evidence.check_input import Outcomes
from understudy.core.canary.limits import CanaryPolicy
from understudy.core.statistics.difference import Difference


def stored_outcomes(policy: CanaryPolicy, outcomes: Outcomes) -> dict[str, Any]:
    """Return what is stored of the outcomes of a verdict; of a plan that names one alone, what releases before read."""
    documents = [None if outcome is None else outcome._asdict() for outcome in outcomes]
    return {"outcomes": documents} if policy.outcomes else {"outcome": next(iter(documents), None)}


def outcomes_of(inputs: Mapping[str, Any]) -> Outcomes:
    """Return the outcomes that a stored verdict rests on.

    Raises:
        TypeError: They are not what was written.
    """
    documents = inputs["outcomes"] if "outcomes" in inputs else [inputs.get("outcome")]
    return tuple(None if document is None else Difference(**document) for document in documents)
