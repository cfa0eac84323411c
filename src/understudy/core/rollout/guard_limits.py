"""What guards are judged by beside the usual checks, by model: metrics and a judge, from the monitors' settings.

The database makes a guard's plan when a share is set, and knows neither. So the monitor that begins a guard puts them
into its state, from where every process takes them into the plan: ``rollout show``, the console and the next leader
judge by the same ones.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from understudy.core.canary.judge_limits import read_judge
from understudy.core.canary.metric_limits import read_metrics
from understudy.core.rollout.plan import RolloutPlan
from understudy.errors import Violation

OTHERS = "*"
"""Names all models that are not named."""
_METRICS, _JUDGE = "metrics", "judge"


class GuardLimits(NamedTuple):
    """What one guard is judged by beside the usual checks."""

    metrics: Sequence[Mapping[str, Any]] = ()
    """As ``canary_limits.metrics`` of a plan has them."""
    judge: Mapping[str, Any] | None = None
    """As ``canary_limits.judge`` of a plan has it."""


NO_LIMITS = GuardLimits()


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """What the settings say, by model."""

    metrics: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    judges: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)

    def limits_of(self, model_name: str) -> GuardLimits:
        """Return what a model's guards are judged by; an empty list, or null, under its name keeps it free of any."""
        metrics = self.metrics.get(model_name, self.metrics.get(OTHERS, ()))
        return GuardLimits(metrics, self.judges.get(model_name, self.judges.get(OTHERS)))


def parse_guard_metrics(text: str) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Read a JSON object of lists of metrics by model.

    Raises:
        ValueError: Naming what is wrong, and where.
    """

    def problems(metrics: Any) -> Sequence[Violation]:
        return [] if metrics == [] else read_metrics(metrics)[1]

    return _by_model(text, problems, '[{"name": …, "source": …, "promql": …}]')


def parse_guard_judges(text: str, known: Collection[str]) -> Mapping[str, Mapping[str, Any] | None]:
    """Read a JSON object of judges by model.

    Args:
        text: The object.
        known: The judges that have an address.

    Raises:
        ValueError: Naming what is wrong, and where.
    """

    def problems(judge: Any) -> Sequence[Violation]:
        if judge is None:
            return []
        limit, violations = read_judge(judge)
        if limit is not None and limit.name not in known:
            return [Violation("/name", f"UNDERSTUDY_JUDGES has no judge {limit.name}")]
        return violations

    return _by_model(text, problems, '{"name": …}')


def _by_model(text: str, problems: Callable[[Any], Sequence[Violation]], example: str) -> Mapping[str, Any]:
    if not text.strip():
        return {}
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as problem:
        raise ValueError(f"expected a JSON object: {problem}") from None
    if not isinstance(document, Mapping):
        raise ValueError(f'expected a JSON object such as {{"*": {example}}}')  # noqa: TRY004 - one kind of error for a bad setting
    for model_name, value in document.items():
        for violation in problems(value):
            raise ValueError(f"/{model_name}{violation.pointer}: {violation.detail}")
    return document


def with_limits(plan: RolloutPlan, limits: GuardLimits) -> RolloutPlan:
    """Return the plan of a guard that is judged by these as well."""
    added: dict[str, Any] = {_METRICS: list(limits.metrics)} if limits.metrics else {}
    added |= {} if limits.judge is None else {_JUDGE: dict(limits.judge)}
    return replace(plan, canary_limits={**plan.canary_limits, **added}) if added else plan


def limits_in(plan: RolloutPlan) -> GuardLimits:
    """Return those that a guard's plan has."""
    return GuardLimits(plan.canary_limits.get(_METRICS, ()), plan.canary_limits.get(_JUDGE))


def limits_words(limits: GuardLimits) -> str:
    """Name them; empty where there are none."""
    parts = [f"the metrics {', '.join(metric['name'] for metric in limits.metrics)}"] if limits.metrics else []
    parts += [] if limits.judge is None else [f"the judge {limits.judge['name']}"]
    return " and ".join(parts)
