"""The metrics of an operator's own that a verdict rests on, as they are stored with it."""

from collections.abc import Mapping
from typing import Any

from understudy.core.canary.evidence.check_input import Metrics
from understudy.core.canary.metric_samples import MetricSamples


def stored_metrics(metrics: Metrics) -> dict[str, Any]:
    """Return what is stored of the metrics of a verdict; nothing where its plan names none."""
    return {"metrics": [samples.to_json() for samples in metrics]} if metrics else {}


def metrics_of(inputs: Mapping[str, Any]) -> Metrics:
    """Return the metrics that a stored verdict rests on.

    Raises:
        LookupError, TypeError, ValueError: They are not what was written.
    """
    return tuple(MetricSamples.from_json(document) for document in inputs.get("metrics", ()))
