"""Metrics of an operator's own that guards judge by: the monitors' setting has them, by model.

The database makes a guard's plan when a share is set, and knows no metrics. So the monitor that begins a guard puts
them into its state, from where every process takes them into the plan: ``rollout show``, the console and the next
leader judge by the same ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from understudy.core.canary.metric_limits import read_metrics
from understudy.core.rollout.plan import RolloutPlan

GuardMetrics = Mapping[str, Sequence[Mapping[str, Any]]]
"""By model, as ``canary_limits.metrics`` of a plan has them."""
NO_METRICS: GuardMetrics = {}
OTHERS = "*"
"""Names all models that are not named."""
_METRICS = "metrics"


def parse_guard_metrics(text: str) -> GuardMetrics:
    """Read a JSON object of lists of metrics by model.

    Raises:
        ValueError: Naming what is wrong, and where.
    """
    if not text.strip():
        return {}
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as problem:
        raise ValueError(f"expected a JSON object: {problem}") from None
    if not isinstance(document, Mapping):
        raise ValueError('expected a JSON object such as {"*": [{"name": …, "source": …, "promql": …}]}')  # noqa: TRY004 - one kind of error for a bad setting
    for model_name, metrics in document.items():
        _, violations = ((), []) if metrics == [] else read_metrics(metrics)
        if violations:
            raise ValueError(f"/{model_name}{violations[0].pointer}: {violations[0].detail}")
    return document


def metrics_of_guard(known: GuardMetrics, model_name: str) -> Sequence[Mapping[str, Any]]:
    """Return the metrics that a model's guards are judged by; an empty list under its name keeps it free of any."""
    return known.get(model_name, known.get(OTHERS, ()))


def with_metrics(plan: RolloutPlan, metrics: Sequence[Mapping[str, Any]]) -> RolloutPlan:
    """Return the plan of a guard that is judged by metrics."""
    return replace(plan, canary_limits={**plan.canary_limits, _METRICS: list(metrics)}) if metrics else plan


def metrics_in(plan: RolloutPlan) -> Sequence[Mapping[str, Any]]:
    """Return the metrics that a plan has."""
    found: Sequence[Mapping[str, Any]] = plan.canary_limits.get(_METRICS, ())
    return found
