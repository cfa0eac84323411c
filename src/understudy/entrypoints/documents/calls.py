"""Logged calls as JSON."""

from typing import Any

import orjson

from understudy.entrypoints.documents.json_text import moment_of
from understudy.ports.prediction_log.live_log import CallLine
from understudy.ports.prediction_log.receipts import Receipt
from understudy.registry.receipts import Explained


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


def receipt_document(found: Receipt) -> dict[str, Any]:
    """Return a call with what decided it as JSON."""
    return {
        "prediction_id": found.prediction_id,
        "predicted_at": moment_of(found.predicted_at),
        "model": found.model_name,
        "version": found.version,
        "assigned_version": found.assigned,
        "entity_id": found.entity_id,
        "role": found.role,
        "reason": found.reason,
        "status": found.status,
        "error_code": found.error_code,
        "score": found.score,
        "label": None if found.label is None else orjson.loads(found.label),
        "latency_us": found.latency_us,
        "bucket": found.bucket,
        "policy_generation": found.generation,
        "rollout_id": found.rollout_id,
        "cache_hit": found.is_cache_hit,
        "defaulted": list(found.defaulted),
    }


def explained_document(found: Explained) -> dict[str, Any]:
    """Return a call, what shadows made of it, and the change of the policy that decided it as JSON."""
    by = found.policy
    policy = None if by is None else {"actor": by.actor, "via": by.via, "reason": by.reason, "at": by.changed_at}
    shadows = [receipt_document(one) for one in found.shadows]
    return {"prediction": receipt_document(found.answer), "shadows": shadows, "policy_by": policy}
