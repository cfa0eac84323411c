"""The check of errors: entities with at least one, so that a storm of retries is one event."""

from understudy.core.canary.check_input import CheckInput
from understudy.core.canary.decision import Check, Evidence, Unit
from understudy.core.canary.early_failure import EARLY_FAILURE_ALPHA_SHARE
from understudy.core.canary.limits import Rules
from understudy.core.canary.rate_checks import RateCheck, judge_rate
from understudy.core.statistics.cluster_test import BucketSums
from understudy.core.statistics.sequential_evidence import Rates
from understudy.core.windows.window import BucketColumn

ERROR_RATE = Check("error_rate", "error rate", Unit.RATE)


def error_rate(inputs: CheckInput) -> RateCheck:
    """Compare entities with at least one error, of the entities of each window."""
    champion, challenger = inputs.strata.champion, inputs.strata.challenger
    return RateCheck(
        ERROR_RATE,
        Rates(champion["error_entities"], champion["entities"], challenger["error_entities"], challenger["entities"]),
        lambda: BucketSums(
            *(side.bucket(c) for side in (champion, challenger) for c in (BucketColumn.ERRORS, BucketColumn.CALLS))
        ),
        inputs.processes(),
        inputs.policy.tolerated_error_ratio,
        1 - EARLY_FAILURE_ALPHA_SHARE,
        is_incident_bounded=inputs.stage.rules >= Rules.INCIDENTS,
    )


def judge_error_rate(inputs: CheckInput, log_needed: float) -> Evidence:
    """Return whether more entities have errors than tolerated; ``pass`` once the policy's regression is detectable."""
    is_enough = inputs.is_error_detectable
    return judge_rate(inputs, error_rate(inputs), log_needed, is_enough=is_enough, keys=inputs.early_failure)
