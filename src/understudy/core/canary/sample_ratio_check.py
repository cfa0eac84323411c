"""The check of the split itself: a sample-ratio mismatch makes every other comparison mean nothing."""

from math import log

from understudy.core.canary.decision import Check, CheckState, Evidence, Unit
from understudy.core.canary.evidence.check_input import CheckInput, Comparison
from understudy.core.statistics.sample_ratio import ratios_of, split_evidence
from understudy.core.statistics.sequential_evidence import finite_exp

SAMPLE_RATIO = Check("sample_ratio", "sample ratio", Unit.COUNT, is_drawn=False)


def judge_sample_ratio(inputs: CheckInput) -> Evidence:
    """Return whether entities are split as the policy says; ``INVALID`` when not."""
    arrivals = inputs.strata.arrivals.where(inputs.strata.arrivals.start >= inputs.stage.split_from)
    ratios = {generation: percent / 100 for generation, percent in inputs.stage.weights_percent.items()}
    found = split_evidence(arrivals, ratios)
    needed = -log(inputs.policy.sample_ratio_alpha)
    is_challenger = arrivals.is_challenger > 0
    challenger = float(arrivals.new_entities[is_challenger].sum())
    champion = float(arrivals.new_entities[~is_challenger].sum())
    expected = float(ratios_of(arrivals, ratios) @ arrivals.new_entities)
    return Evidence(
        SAMPLE_RATIO,
        CheckState.INVALID if found >= needed else CheckState.OK if expected else CheckState.TOO_EARLY,
        *Comparison(champion, challenger, challenger / expected if expected else None, None, None),
        limit=1.0,
        evidence=finite_exp(found),
        evidence_needed=finite_exp(needed),
        evidence_across_entities=None,
        evidence_across_entities_needed=None,
        champion_requests=inputs.requests[0],
        challenger_requests=inputs.requests[1],
    )
