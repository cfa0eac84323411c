"""What a canary analysis says to people: the reason of a verdict, and the figures it rests on.

What holds a step is said first as what is missing, then by its figures.
"""

from collections.abc import Sequence
from math import exp, isfinite

from understudy.core.canary.decision import Check, CheckState, Evidence, Unit
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.durations import clock_words, duration_words
from understudy.core.statistics.trend import Trend

_UNCOUNTED = 1e6
"""Evidence beyond it is said to be beyond it."""
UNDECIDED = "no check takes the version back: an operator decides"
_WHOLE = 100.0
"""A multiple from which on its two digits are followed by zeros."""
_FALLING_Z = 2.0
"""Standard errors from which on a sentence says that the latency falls."""


def place_of(stage: Stage, now: float) -> str:
    """Return whom a verdict is about, and when: ``fraud v42 at 10 % (minute 69)``."""
    minute = int(max(0.0, now - stage.starts[0]) // 60)
    return f"{stage.model_name} v{stage.version} at {stage.weight_percent:g} % (minute {minute})"


def roll_back_reason(failing: Sequence[Evidence]) -> str:
    """Say which checks failed and by how much."""
    checks = "; ".join(f"{comparison_of(row)}, evidence {_evidence_of(row)}" for row in failing)
    return f"{checks}, {failing[0].challenger_requests:,} challenger requests"


def invalid_reason(split: Evidence) -> str:
    """Say that the traffic is not split as the policy says."""
    share = "" if split.change is None else f", {split.change:.2f} times the policy's share"
    return (
        f"the challenger met {split.challenger or 0:,.0f} of "
        f"{(split.challenger or 0) + (split.champion or 0):,.0f} entities{share}, evidence {_evidence_of(split)}; "
        "the versions cannot be compared until the split is what the policy says"
    )


def advance_reason(checks: Sequence[Evidence], detectable_ratio: float, least_rate: float) -> str:
    """Say what was compared, what would have been detected, and of which checks nothing is known.

    ``least_rate`` is what stands in for the champion's error rate where that is lower.
    """
    passed = ", ".join(row.title for row in checks if row.state is CheckState.OK)
    unknown = ", ".join(row.title for row in checks if row.state is CheckState.TOO_EARLY and not row.check.needs_past)
    not_known = f"; not known yet: {unknown}" if unknown else ""
    unproven = "".join(f"; worse, not proven yet: {comparison_of(row)}" for row in checks if _is_unproven(row))
    found = f"nothing found in {passed}; " if passed else ""
    seen = _seen_words(checks[0], detectable_ratio, least_rate)
    requests = f"in {checks[0].challenger_requests:,} challenger requests"
    return f"{found}{requests} {seen} would have been seen{unproven}{not_known}"


def _seen_words(errors: Evidence, detectable_ratio: float, least_rate: float) -> str:
    """Say which error rate would have been seen; a multiple of no errors at all would say nothing."""
    rate = errors.champion or 0.0
    times = f"an error rate of {_ratio_words(detectable_ratio)} times "
    if rate > least_rate:
        return f"{times}the champion's {value_words(errors.check, rate)}"
    had = "the champion had none" if not rate else f"the champion had {value_words(errors.check, rate)}"
    return f"{times}{value_words(errors.check, least_rate)} ({had}, which counts as that)"


def hold_reason(parts: Sequence[str], *, needs_human: bool) -> str:
    """Say what is missing."""
    asked = "; the stage's time is over: a person has to decide" if needs_human else ""
    return f"{'; '.join(parts)}{asked}"


def traffic_words(requests: tuple[int, int], stage: Stage) -> str | None:
    """Say which side has no traffic, if one has none."""
    champion, challenger = requests
    if challenger == 0:
        return f"no challenger requests yet at {stage.weight_percent:g} %"
    return "no champion requests to compare with" if champion == 0 else None


def hurried_words(hurried: int) -> str:
    """Say how many of the challenger's calls were left out for their callers' deadlines."""
    return f"{hurried:,} challenger requests were left out: their callers' deadlines are too short to judge it by"


def dwell_words(policy: CanaryPolicy, stage: Stage, now: float) -> str | None:
    """Say how much of the stage's time is over, unless all of it is."""
    passed = now - stage.starts[-1]
    if passed >= policy.dwell_seconds:
        return None
    asked = duration_words(policy.dwell_seconds)
    return f"{duration_words(int(max(0.0, passed)))} of {asked} at {stage.weight_percent:g} %"


def detectable_words(detectable_ratio: float, asked_ratio: float, missing_requests: int) -> str:
    """Say which regression could have been seen, which one has to be, and how many requests that takes."""
    more = f"about {_rounded(missing_requests):,} more requests are missing"
    asked = f"one to {_ratio_words(asked_ratio)} times has to be before the step ends"
    if not isfinite(detectable_ratio):
        return f"{more}: so far no rise of the error rate would have been seen, and {asked}"
    least = f"only a rise of the error rate to {_ratio_words(detectable_ratio)} times or more"
    return f"{more}: so far {least} would have been seen, and {asked}"


def _ratio_words(ratio: float) -> str:
    """Return a multiple with two digits that count, and no power of ten: ``1.3``, ``36``, ``120``."""
    return f"{float(f'{ratio:.2g}'):,.0f}" if ratio >= _WHOLE else f"{ratio:.2g}"


def few_entities_words(row: Evidence) -> str:
    """Say that a check's evidence comes from too few entities."""
    return (
        f"proven for too few entities, {row.evidence_across_entities or 0:.2g} of "
        f"{row.evidence_across_entities_needed or 0:.2g}: {comparison_of(row)}, evidence {_evidence_of(row)}"
    )


def unproven_words(row: Evidence) -> str:
    """Say that a check looks worse, and how much evidence it lacks."""
    return f"not proven yet, evidence {_evidence_of(row)}: {comparison_of(row)} looks worse"


def recent_regression_words(check: Check, champion: float, challenger: float) -> str:
    """Say that the last minute looks worse, which is not proven but holds the step."""
    sides = f"{value_words(check, challenger)} vs {value_words(check, champion)}"
    return f"until the last minute has passed, or back when it is proven: {check.title} {sides} in it"


def shared_errors_words(row: Evidence, shared: int, errors: int) -> str:
    """Say that a check would fail only with errors that the champion had as well."""
    return (
        f"{comparison_of(row)}, evidence {_evidence_of(row)}, but {shared:,} of {errors:,} failed calls also "
        "failed on the champion that stood in, and the others are not enough; no check takes the version back: "
        "an operator decides"
    )


def lone_latency_words(row: Evidence, lone_ratio: float) -> str:
    """Say that the typical latency alone is worse, but not by enough to roll back."""
    return f"below {lone_ratio:g}x, which alone does not roll back: {comparison_of(row)}"


def warming_words(rows: Sequence[Evidence], trend: Trend, ends_at: float) -> str:
    """Say that the challenger's latency would fail, and why it is waited for."""
    checks = " and ".join(comparison_of(row) for row in rows)
    then, now = (exp(value) for value in trend.ends)
    seen = (
        f"the ratio falls, {then:.3g}x to {now:.3g}x in {duration_words(int(trend.seconds))}"
        if trend.z <= -_FALLING_Z
        else "too few calls yet to say that it does not fall"
    )
    return f"warming, as a cold server does ({seen}), until {clock_words(ends_at)} at the longest: {checks}"


def cold_start_words(requests: int, asked: int) -> str:
    """Say that a server was cold until lately, so that its latency is hardly compared."""
    return f"{requests:,} of {asked:,} answered challenger requests since its server is no longer cold"


def comparison_of(row: Evidence) -> str:
    """Return a check's figures: ``error rate 0.854 % vs 0.495 % = 1.73x (at least 1.09x)``, the challenger's first."""
    check = row.check
    sides = f"{row.title} {value_words(check, row.challenger)} vs {value_words(check, row.champion)}"
    if check.is_in_deviations:
        return f"{sides} = {row.change or 0:+.2f} sd (limit {row.limit or 0:.2g} sd)"
    if check.has_interval and row.change_low is not None and row.change_high is not None:
        return f"{sides} = {row.change or 0:.3g}x ({row.change_low:.3g} to {row.change_high:.3g}x)"
    ratio = f" = {row.change:.3g}x" if row.change is not None and isfinite(row.change) else ""
    least = f" (at least {row.change_low:.3g}x)" if row.change_low else ""
    return f"{sides}{ratio}{least}{since_words(row)}"


def since_words(row: Evidence) -> str:
    """Say since when a row's figures are counted, where that is not the rollout's start: `` since 01:23``, in UTC."""
    if row.since is None:
        return ""
    return f" since {clock_words(row.since)}"


def value_words(check: Check, value: float | None) -> str:
    """Return a side's value in its unit: ``0.854 %``, ``42.2 ms``, ``0.321``, ``1,413``; ``unknown`` for ``None``."""
    if value is None:
        return "unknown"
    return _IN_UNITS[check.unit].format(value * _SCALES.get(check.unit, 1))


_IN_UNITS = {Unit.RATE: "{:.3g} %", Unit.SECONDS: "{:.3g} ms", Unit.NUMBER: "{:.3g}", Unit.COUNT: "{:,.0f}"}
_SCALES = {Unit.RATE: 100, Unit.SECONDS: 1_000}


def _is_unproven(row: Evidence) -> bool:
    return row.state is CheckState.UNPROVEN


def evidence_words(evidence: float, needed: float) -> str:
    """Return how much evidence there is, and how much proves it: ``29,702 (400 is enough)``."""
    found = f"{evidence:,.0f}" if evidence < _UNCOUNTED else "over a million"
    return f"{found} ({needed:,.0f} is enough)"


def _evidence_of(row: Evidence) -> str:
    evidence, needed = row.evidence or 0.0, row.evidence_needed or 0.0
    return evidence_words(evidence, needed)


def _rounded(number: int) -> int:
    """Return a number with two significant digits."""
    return int(float(f"{number:.1e}"))
