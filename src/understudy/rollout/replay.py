"""A stored verdict, judged again from what it rests on."""

from typing import Any, NamedTuple

from understudy.core.ab import Difference
from understudy.core.canary import judge
from understudy.core.canary_policy import CanaryPolicy, Stage
from understudy.core.decision import Decision
from understudy.core.strata_text import strata_from_text
from understudy.ports import RolloutEventRecord


class Replay(NamedTuple):
    """What a stored verdict comes to today."""

    decision: Decision
    agrees: bool
    """Whether verdict and reason are the stored ones."""


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
    return Replay(decision, decision.verdict is event.verdict and decision.reason == inputs.get("decision"))
