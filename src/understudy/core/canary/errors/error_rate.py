"""The check of errors: entities with at least one, so that a storm of retries is one event."""

import numpy as np

from understudy.core.canary.decision import Check, CheckState, Evidence, Unit
from understudy.core.canary.errors.early_failure import EARLY_FAILURE_ALPHA_SHARE
from understudy.core.canary.evidence.check_input import CheckInput
from understudy.core.canary.evidence.rate_checks import RateCheck, judge_rate
from understudy.core.canary.limits import Rules
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


def own_error_rate(inputs: CheckInput) -> RateCheck:
    """Compare the same, without the challenger's errors that the champion had as well; rules before count all of them.

    A call that failed on both says nothing of their difference, and its caller sees which version an entity meets.
    """
    compared, challenger = error_rate(inputs), inputs.strata.challenger
    if not _has_shared(inputs):
        return compared
    own = np.maximum(compared.rates.bad_challenger - challenger["shared_error_entities"], 0.0)

    def buckets() -> BucketSums:
        every = compared.buckets()
        return every._replace(value_challenger=np.maximum(every.value_challenger - challenger.bucket_shared, 0.0))

    return compared._replace(rates=compared.rates._replace(bad_challenger=own), buckets=buckets)


def judge_error_rate(inputs: CheckInput, log_needed: float) -> Evidence:
    """Return whether more entities have errors than tolerated; ``pass`` once the policy's regression is detectable.

    Errors that the champion had as well hold nothing by themselves, but where the check would fail with them.
    """
    is_enough = inputs.is_error_detectable
    every = judge_rate(inputs, error_rate(inputs), log_needed, is_enough=is_enough, keys=inputs.early_failure)
    if inputs.early_failure is not None or not _has_shared(inputs):
        return every
    own = judge_rate(inputs, own_error_rate(inputs), log_needed, is_enough=is_enough)
    fails_with_them = every.state is CheckState.FAIL and own.state is not CheckState.FAIL
    return every._replace(state=CheckState.SHARED) if fails_with_them else own


def _has_shared(inputs: CheckInput) -> bool:
    return inputs.stage.rules >= Rules.SHARED_ERRORS and len(inputs.strata.challenger.shared) > 0
