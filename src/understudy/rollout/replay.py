"""A stored verdict, judged again from what it rests on."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from understudy import __version__
from understudy.core.ab import Difference
from understudy.core.canary import judge
from understudy.core.canary_policy import CanaryPolicy, Stage
from understudy.core.decision import Check, CheckState, Decision, Evidence
from understudy.core.strata_text import strata_from_text
from understudy.ports import RolloutEventRecord


class Replay(NamedTuple):
    """What a stored verdict comes to today."""

    decision: Decision
    agrees: bool
    """Whether the verdict and what it rests on are the stored ones."""


def replayed(event: RolloutEventRecord) -> Replay | None:
    """Judge a stored verdict again; ``None`` for an event that holds none.

    Raises:
        ValueError: Its inputs cannot be read.
    """
    if event.verdict is None or "strata" not in event.inputs:
        return None
    inputs: dict[str, Any] = dict(event.inputs)
    stage = dict(inputs["stage"])
    stage["starts"] = tuple(stage["starts"])
    stage["weights_percent"] = {int(key): weight for key, weight in stage["weights_percent"].items()}
    policy = CanaryPolicy.from_json(event.thresholds)
    outcome = None if inputs.get("outcome") is None else Difference(**inputs["outcome"])
    decision = judge(strata_from_text(inputs["strata"]), policy, Stage(**stage), inputs["now"], outcome)
    return Replay(decision, _agrees(decision, event))


def _agrees(decision: Decision, event: RolloutEventRecord) -> bool:
    """Whether the verdict and the checks that decide are the stored ones; the same code also says the same."""
    stored = [Evidence.from_json(row) for row in event.evidence]
    if decision.verdict is not event.verdict or _deciding(decision.evidence) != _deciding(stored):
        return False
    return event.code_version != __version__ or decision.reason == event.inputs.get("decision")


def _deciding(rows: Sequence[Evidence]) -> dict[Check, CheckState]:
    # What decides nothing has had other names in other versions: unproven was once a pass.
    return {row.check: row.state for row in rows if row.state in (CheckState.FAIL, CheckState.INVALID)}
