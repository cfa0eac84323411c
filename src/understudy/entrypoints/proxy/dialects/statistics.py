"""Statistics of versions as Triton has them: this process's calls since its start."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

from understudy.core.routing.policy import ModelVersion
from understudy.entrypoints.proxy.dialects.catalogue import MAX_INDEXED
from understudy.entrypoints.proxy.dialects.handler import off_loop_if
from understudy.serving.call_statistics import CallStatistics

T = TypeVar("T")

INLINE_VERSIONS = 256
"""Whose statistics are worded on the event loop, in some five milliseconds; ten thousand take a fifth of a second."""
_NOT_TOLD_APART = ("queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
"""Parts of a call that Triton measures, and that are zeros here."""


async def worded_statistics(
    statistics: CallStatistics, versions: Iterable[ModelVersion], word: Callable[[dict[str, Any]], T]
) -> T:
    """Return the statistics of these versions in the words of a protocol; of many they are made beside the event loop.

    Args:
        statistics: Of this process.
        versions: Those to name, one after another; at most :data:`.MAX_INDEXED` are.
        word: Makes the answer of the document in Triton's words.
    """
    found = list(islice(versions, MAX_INDEXED))
    return await off_loop_if(len(found) > INLINE_VERSIONS, lambda: word(statistics_document(statistics, found)))


def statistics_document(statistics: CallStatistics, versions: Iterable[ModelVersion]) -> dict[str, Any]:
    """Return the statistics of these versions, one after another."""
    return {"model_stats": [_of(statistics, version) for version in versions]}


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
