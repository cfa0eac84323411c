"""OpenAPI of the control plane's routes: bodies, typed answers, problems."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_type_hints

from pydantic import create_model

from understudy.core.rollout.state import CommandKind
from understudy.entrypoints.documents.json_text import SCHEMA
from understudy.entrypoints.proxy.api.openapi import answers, problems
from understudy.entrypoints.proxy.control.bodies import Body, PolicyChange, Remark, RolloutStart, command_body
from understudy.ports.registry.registry import AuditEntry, PolicyRecord
from understudy.ports.rollout.rollout_store import RollbackRecord

_READ = (400, 401, 403, 503, 504)
_WRITE = (400, 401, 403, 404, 408, 413, 422, 503, 504)


def _document(typed: Mapping[str, Any] = MappingProxyType({}), /, **example: Any) -> dict[str, Any]:
    """Return the schema of an answer with the example's members, some of them typed."""
    return {
        "type": "object",
        "required": ["schema", *example],
        "properties": {"schema": {"const": SCHEMA}, **typed},
        "examples": [{"schema": SCHEMA, **example}],
    }


def _typed(record: type, *left_out: str, **fields: Any) -> dict[str, Any]:
    """Return the schema of a record as JSON: its fields with their types, but for some, and further ``fields``."""
    types = {**get_type_hints(record), **fields}
    required: dict[str, Any] = {name: (kind, ...) for name, kind in types.items() if name not in left_out}
    properties = create_model(record.__name__, **required).model_json_schema()["properties"]
    for one in properties.values():
        del one["title"]
    return {"type": "object", "required": list(properties), "properties": properties}


_STATE = {"rollout_id": 118, "model_name": "visits", "challenger": "7", "phase": "PROGRESSING", "weight_percent": 10}
_LIVENESS = {"proxies": 6, "proxies_on_generation": 6, "proxies_hidden": False, "silent": {"count": 0, "first": []}}
_FOUND = _document(rollout=_STATE, presence=_LIVENESS, decision=None, events=[{"reason": "begins"}])
_STARTED = _document(
    plan={"risk": "medium", "risk_reason": "both versions have the base model trees-v2"}, rollout=_STATE, dry_run=False
)
_COMMANDED = _document(rollout=_STATE, presence=_LIVENESS, changed=True, event="paused by 9f2c01aa77de")
_POLICY = _document(
    {"policy": _typed(PolicyRecord, arms=list[dict[str, Any]])},
    policy={"model_name": "visits", "champion": "6", "challenger": "7", "challenger_weight": 10},
)
_ROLLBACK = _typed(
    RollbackRecord, "without_calls", changed=bool, confirmed=dict[str, Any] | None, in_flight=dict[str, int] | None
)
_ROLLED_BACK = _document(
    {"rollback": _ROLLBACK},
    rollback={
        "did": "weight 0",
        "generation": 42,
        "confirmed": {
            "proxies": 6,
            "proxies_on_generation": 6,
            "seconds": 0.4,
            "silent": {"count": 1, "first": [{"instance": "web-3:4711", "seconds": 131.2}]},
        },
        "in_flight": {"7": 2},
    },
)
_Subject = Literal["policy", "version", "endpoint", "key", "subscription"]
"""The values of ``AuditSubject``, written out: the schema of an enumeration is a reference, and to nothing here."""
_AUDIT = _document(
    {"audit": {"type": "array", "items": _typed(AuditEntry, subject=_Subject, changes=dict[str, list[Any]])}},
    audit=[{"subject": "policy", "actor": "9f2c01aa77de", "via": "http", "changes": {"challenger_weight": [10, 0]}}],
)


def _call(
    operation_id: str,
    summary: str,
    answer: dict[str, Any],
    statuses: tuple[int, ...],
    request: type[Body] | None = None,
) -> dict[str, Any]:
    operation = {
        "operation_id": operation_id,
        "summary": summary,
        "tags": ["control"],
        "responses": {**answers(answer, "Done, or found."), **problems(*sorted(statuses))},
    }
    if request is not None:
        content = {"application/json": {"schema": request.model_json_schema()}}
        operation["openapi_extra"] = {"requestBody": {"required": not request.absent, "content": content}}
    return operation


def _command(kind: CommandKind, summary: str) -> dict[str, Any]:
    statuses = (*_WRITE, 409) if kind is CommandKind.APPROVE else _WRITE
    return _call(f"{kind}Rollout", f"{summary} (scope operate)", _COMMANDED, statuses, command_body(kind))


CONTROL: dict[str, dict[str, Any]] = {
    "start_rollout": _call(
        "startRollout", "Start a rollout, or plan one (scope operate)", _STARTED, (*_WRITE, 409), RolloutStart
    ),
    "list_rollouts": _call("listRollouts", "A model's newest rollouts", _document(rollouts=[_STATE]), (*_READ, 404)),
    "get_rollout": _call("getRollout", "A rollout with its evidence and its events", _FOUND, (*_READ, 404)),
    CommandKind.PAUSE: _command(CommandKind.PAUSE, "Pause a rollout at its current weight"),
    CommandKind.RESUME: _command(CommandKind.RESUME, "Resume a waiting rollout"),
    CommandKind.PROMOTE: _command(CommandKind.PROMOTE, "Take the next step now, without waiting for its evidence"),
    CommandKind.ABORT: _command(CommandKind.ABORT, "End a rollout with weight 0 and the old champion"),
    CommandKind.APPROVE: _command(CommandKind.APPROVE, "Approve the next step, where the plan asks a person"),
    "roll_back": _call(
        "rollBack", "Send all traffic back, at once (scope operate)", _ROLLED_BACK, (*_WRITE, 409), Remark
    ),
    "get_policy": _call(
        "getPolicy", "Which versions answer a model's calls; ETag is the generation", _POLICY, (*_READ, 404)
    ),
    "change_policy": _call(
        "changePolicy",
        "Change which versions answer a model's calls (scope operate)",
        _POLICY,
        (*_WRITE, 409, 412, 428),
        PolicyChange,
    ),
    "list_audit": _call(
        "listAudit", "Changes of policies, versions, endpoints, keys and subscriptions, latest first", _AUDIT, _READ
    ),
    "report_ab": _call(
        "reportAb",
        "Whether the challenger is better",
        _document(report={"state": "undecided", "sentence": "Not decided."}),
        (*_READ, 404),
    ),
    "report_shadow": _call("reportShadow", "How the shadow compares", _document(report={"calls": 1200}), (*_READ, 404)),
    "report_drift": _call(
        "reportDrift",
        "What has drifted from its baseline",
        _document(report={"verdict": "none", "sentence": "No drift in v6."}),
        (*_READ, 404),
    ),
}
CONTROL["start_rollout"]["status_code"] = 201
CONTROL["start_rollout"]["responses"][201] = {
    "description": "Started; Location names it.",
    "content": {"application/json": {"schema": _STARTED}},
}
CONTROL["start_rollout"]["responses"][200]["description"] = "dry_run: what it would be; nothing was started."
