"""Logged calls as JSON."""

from typing import Any

from understudy.entrypoints.documents.json_text import moment_of
from understudy.ports.prediction_log.live_log import CallLine


def call_document(call: CallLine) -> dict[str, Any]:
    """Return a call as JSON, under the names of the log's columns."""
    return {
        "prediction_id": call.prediction_id,
        "predicted_at": moment_of(call.predicted_at),
        "model": call.model_name,
        "version": call.version,
        "role": call.role,
        "status": call.status,
        "error_code": call.error_code,
        "score": call.score,
        "latency_us": call.latency_us,
        "cache_hit": call.is_cache_hit,
        "entity_id": call.entity_id,
    }
