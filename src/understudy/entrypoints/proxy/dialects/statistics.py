"""Statistics of versions as Triton has them: this process's calls since its start."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from understudy.core.routing.policy import ModelVersion
from understudy.entrypoints.proxy.dialects.catalogue import MAX_INDEXED
from understudy.serving.call_statistics import CallStatistics

_NOT_TOLD_APART = ("queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
"""Parts of a call that Triton measures, and that are zeros here."""


def statistics_document(statistics: CallStatistics, versions: Iterable[ModelVersion]) -> dict[str, Any]:
    """Return the statistics of these versions, one after another; of at most :data:`.MAX_INDEXED`."""
    return {"model_stats": [_of(statistics, version) for version in islice(versions, MAX_INDEXED)]}


def _of(statistics: CallStatistics, version: ModelVersion) -> dict[str, Any]:
    found = statistics.of(version)
    parts = {
        "success": _duration(found.succeeded, found.succeeded_seconds),
        "fail": _duration(found.failed, found.failed_seconds),
        **{name: _duration(0, 0.0) for name in _NOT_TOLD_APART},
    }
    return {
        "name": version.model_name,
        "version": version.version,
        "last_inference": round(found.last_at * 1_000),
        "inference_count": found.succeeded,
        "execution_count": found.succeeded,
        "inference_stats": parts,
        "batch_stats": [],
    }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * 1e9)}
