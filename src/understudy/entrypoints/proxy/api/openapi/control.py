"""OpenAPI of the control plane's routes: bodies, typed answers, problems."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_type_hints

from pydantic import create_model

from understudy.core.rollout.state import CommandKind
from understudy.entrypoints.documents.json_text import SCHEMA
from understudy.entrypoints.proxy.api.openapi.calls import answers, problems
from understudy.entrypoints.proxy.control.bodies import (
    Body,
    OutcomeQuestion,
    PolicyChange,
    Remark,
    RollbackAsked,
    RolloutStart,
    command_body,
)
from understudy.entrypoints.proxy.control.experiments import Declaration, ReportBody
from understudy.entrypoints.proxy.control.keys import KeyCreation
from understudy.entrypoints.proxy.control.version_bodies import ValidationRequest, VersionRegistration
from understudy.ports.registry.registry import AuditEntry, PolicyRecord
from understudy.ports.rollout.rollout_store import RollbackRecord

_READ = (400, 401, 403, 503, 504)
_WRITE = (400, 401, 403, 404, 408, 413, 422, 503, 504)


def _document(
    title: str = "Document", typed: Mapping[str, Any] = MappingProxyType({}), /, **example: Any
) -> dict[str, Any]:
    """Return the schema of an answer with the example's members, some of them typed, which gives it a title."""
    return {
        "type": "object",
        "title": title,
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
    return {"type": "object", "title": record.__name__, "required": list(properties), "properties": properties}


_STATE = {"rollout_id": 118, "model_name": "visits", "challenger": "7", "phase": "PROGRESSING", "weight_percent": 10}
_LIVENESS = {"proxies": 6, "proxies_on_generation": 6, "proxies_hidden": False, "silent": {"count": 0, "first": []}}
_FOUND = _document(rollout=_STATE, presence=_LIVENESS, decision=None, events=[{"reason": "begins"}])
_STARTED = _document(
    plan={"risk": "medium", "risk_reason": "both versions have the base model trees-v2"}, rollout=_STATE, dry_run=False
)
_COMMANDED = _document(rollout=_STATE, presence=_LIVENESS, changed=True, event="paused by 9f2c01aa77de")
_POLICY = _document(
    "Policy",
    {"policy": _typed(PolicyRecord, arms=list[dict[str, Any]], category_roles=dict[str, Any])},
    policy={"model_name": "visits", "champion": "6", "challenger": "7", "challenger_weight": 10},
)
_ROLLBACK = _typed(
    RollbackRecord,
    "without_calls",
    changed=bool,
    confirmed=dict[str, Any] | None,
    in_flight=dict[str, Any] | None,
    versions_without_calls=list[str] | None,
    dry_run=bool,
)
_ROLLED_BACK = _document(
    "RolledBack",
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
    "Audit",
    {"audit": {"type": "array", "items": _typed(AuditEntry, subject=_Subject, changes=dict[str, Any])}},
    audit=[{"subject": "policy", "actor": "9f2c01aa77de", "via": "http", "changes": {"challenger_weight": [10, 0]}}],
    next_cursor=None,
)


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its parts where they are used: references would lead into the whole description."""
    parts = schema.pop("$defs", {})

    def inline(part: Any) -> Any:
        if isinstance(part, dict):
            named = str(part.get("$ref", "")).rpartition("/")[2]
            return inline(parts[named]) if named in parts else {name: inline(one) for name, one in part.items()}
        return [inline(one) for one in part] if isinstance(part, list) else part

    return dict(inline(schema))


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
        content = {"application/json": {"schema": _inlined(request.model_json_schema())}}
        operation["openapi_extra"] = {"requestBody": {"required": not request.absent, "content": content}}
    return operation


def _command(kind: CommandKind, summary: str) -> dict[str, Any]:
    statuses = (*_WRITE, 409) if kind is CommandKind.APPROVE else _WRITE
    return _call(f"{kind}Rollout", f"{summary} (scope operate)", _COMMANDED, statuses, command_body(kind))


_VERSION = {"model_name": "visits", "version": "7", "status": "staging", "endpoints": ["models:8001"]}
_VERSIONS = _document(versions=[_VERSION], next_cursor=None)
_REGISTERED = _document(
    version=_VERSION, input_differences={"breaking": [], "possible": []}, same_calls=[], dry_run=False
)
_RETIRED = _document(version=_VERSION, changed=True, dry_run=False)
_SERVER = {"name": "triton-0", "group_name": "onnx", "wanted": 2, "available": 2, "failed": 0, "problem": ""}
_LOADING = {"model_name": "visits", "version": "7", "group_name": "onnx", "servers": [{"server": "triton-0"}]}
_LOADED = _document(loading=_LOADING, dry_run=False)
_SERVED = _document(version=_VERSION, dry_run=False)
_MODEL = {"model_name": "visits", "policy": {"champion": "6"}, "version_count": 7}
_REGISTRY: dict[str, dict[str, Any]] = {
    "list_registered_models": _call(
        "listRegisteredModels",
        "Every model of the registry, with its policy",
        _document(models=[_MODEL], next_cursor=None),
        _READ,
    ),
    "get_registered_model": _call(
        "getRegisteredModel",
        "A model with its versions, and the file that its policy is from",
        _document(model={**_MODEL, "versions": [_VERSION], "not_loaded": [], "applied": None}),
        (*_READ, 404),
    ),
    "list_all_versions": _call("listAllVersions", "The versions of all models", _VERSIONS, _READ),
    "list_applied": _call(
        "listApplied",
        "The files that policies were last applied from",
        _document(
            applied=[{"model_name": "visits", "path": "policy/visits.yaml", "fields": {"champion": "6"}}],
            next_cursor=None,
        ),
        _READ,
    ),
    "list_versions": _call("listVersions", "The versions of a model", _VERSIONS, (*_READ, 404)),
    "get_version": _call("getVersion", "One version", _document(version=_VERSION), (*_READ, 404)),
    "register_version": _call(
        "registerVersion",
        "Register a version as staging (scope register)",
        _REGISTERED,
        (400, 401, 403, 408, 409, 413, 422, 503, 504),
        VersionRegistration,
    ),
    "check_version": _call(
        "checkVersion",
        "Ask a version's model servers what callers would (scope operate)",
        _document(model="visits", version="7", ready=True, findings=[], problems=0, warnings=0),
        (*_READ, 404),
    ),
    "validate_version": _call(
        "validateVersion",
        "Ask them what an agent would, and keep what came of it (scope operate)",
        _document(model="visits", version="7", passed=True, findings=[]),
        (400, 401, 403, 404, 408, 409, 413, 422, 503, 504),
        ValidationRequest,
    ),
    "retire_version": _call(
        "retireVersion", "Retire a version without a role (scope register)", _RETIRED, (*_WRITE, 409), Remark
    ),
    "restore_version": _call(
        "restoreVersion", "Make a retired version staging again (scope register)", _RETIRED, _WRITE, Remark
    ),
    "add_endpoint": _call("addEndpoint", "Give a version a model server (scope register)", _SERVED, (*_READ, 404, 409)),
    "remove_endpoint": _call(
        "removeEndpoint", "Take a model server away from a version (scope register)", _SERVED, (*_READ, 404, 409)
    ),
    "list_servers": _call("listServers", "The model servers with an agent", _document(servers=[_SERVER]), _READ),
    "get_loading": _call("getLoading", "What agents do about a version", _document(loading=_LOADING), (*_READ, 404)),
    "load_version": _call("loadVersion", "Have agents load a version (scope operate)", _LOADED, (*_WRITE, 409), Remark),
    "unload_version": _call(
        "unloadVersion", "Have agents unload a version (scope operate)", _LOADED, (*_WRITE, 409), Remark
    ),
}
_KEY = {"id": "9f2c01aa77de", "scopes": ["predict:visits"], "expires_at": "2027-01-31T00:00:00Z"}
_MADE = _document(key=_KEY)
_KEYS: dict[str, dict[str, Any]] = {
    "list_keys": _call(
        "listKeys", "Every key, without its secret (scope keys)", _document(keys=[_KEY], next_cursor=None), _READ
    ),
    "create_key": _call(
        "createKey", "Make a key (scope keys)", _MADE, (400, 401, 403, 408, 409, 413, 422, 503, 504), KeyCreation
    ),
    "revoke_key": _call("revokeKey", "Revoke a key (scope keys)", _document(key=_KEY, dry_run=False), (*_READ, 404)),
}
_REPORT = _document(report={"state": "undecided", "sentence": "Not decided."})
_TESTS: dict[str, dict[str, Any]] = {
    "declare_test": _call(
        "declareTest",
        "Declare a test if none is open, and ask it (scope operate)",
        _REPORT,
        (*_WRITE, 409),
        Declaration,
    ),
    "ask_report_ab": _call(
        "askReportAb", "Ask a test, and hold what is asked against its declaration", _REPORT, (*_WRITE, 409), ReportBody
    ),
    "list_tests": _call(
        "listTests", "A model's newest declared tests", _document(experiments=[{"metric": "converted"}]), (*_READ, 404)
    ),
    "list_all_tests": _call(
        "listAllTests",
        "The newest declared tests of all models, and how each stands",
        _document(tests=[{"id": 12, "model": "visits", "metric": "converted", "ended_at": None}]),
        (*_READ, 404),
    ),
    "stop_test": _call(
        "stopTest",
        "End a declared test before it decides (scope operate)",
        _document(stopped={"id": 12, "model": "visits", "metric": "converted"}),
        (*_READ, 404, 409),
    ),
    "plan_test": _call(
        "planTest", "How many entities a test needs", _document(plan={"metric": "converted"}), (*_READ, 404)
    ),
}
_KEYS["create_key"]["status_code"] = 201
_KEYS["create_key"]["responses"][201] = _KEYS["create_key"]["responses"].pop(200)
_REGISTRY["register_version"]["status_code"] = 201
_REGISTRY["register_version"]["responses"][201] = {
    "description": "Registered.",
    "content": {"application/json": {"schema": _REGISTERED}},
}
_REGISTRY["register_version"]["responses"][200]["description"] = "dry_run: what it would be; nothing was registered."

CONTROL: dict[str, dict[str, Any]] = {
    **_REGISTRY,
    **_KEYS,
    **_TESTS,
    "start_rollout": _call(
        "startRollout", "Start a rollout, or plan one (scope operate)", _STARTED, (*_WRITE, 409), RolloutStart
    ),
    "list_rollouts": _call("listRollouts", "A model's newest rollouts", _document(rollouts=[_STATE]), (*_READ, 404)),
    "list_all_rollouts": _call("listAllRollouts", "The newest rollouts", _document(rollouts=[_STATE]), _READ),
    "check_outcomes": _call(
        "checkOutcomes",
        "Which models and names of outcomes are not known yet; stores nothing (scope outcomes)",
        _document(unknown_models=["vists"], new_metrics=[{"model": "visits", "name": "convreted"}]),
        (400, 401, 403, 408, 413, 422, 503, 504),
        OutcomeQuestion,
    ),
    "get_rollout": _call("getRollout", "A rollout with its evidence and its events", _FOUND, (*_READ, 404)),
    CommandKind.PAUSE: _command(CommandKind.PAUSE, "Pause a rollout at its current weight"),
    CommandKind.RESUME: _command(CommandKind.RESUME, "Resume a waiting rollout"),
    CommandKind.PROMOTE: _command(CommandKind.PROMOTE, "Take the next step now, without waiting for its evidence"),
    CommandKind.ABORT: _command(CommandKind.ABORT, "End a rollout with weight 0 and the old champion"),
    CommandKind.APPROVE: _command(CommandKind.APPROVE, "Approve the next step, where the plan asks a person"),
    "roll_back": _call(
        "rollBack", "Send all traffic back, at once (scope operate)", _ROLLED_BACK, (*_WRITE, 409), RollbackAsked
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
    "get_changes": _call(
        "getChanges",
        "What changed around a model within an hour, and whether its rollout waits",
        _document(changed_within_an_hour={"changes": [], "total": 0}),
        (*_READ, 404),
    ),
    "get_explanation": _call(
        "getExplanation",
        "Which version answers an entity, why, and what watches over that",
        _document(assignment={"model": "visits", "version": "7", "role": "challenger", "bucket": 3}),
        (*_READ, 404),
    ),
    "get_reach": _call(
        "getReach",
        "How many live proxies act on a policy, and the calls under way by version",
        _document(reach={"generation": 42, **_LIVENESS, "in_flight": {"7": 2}}),
        (*_READ, 404),
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
    "report_skew": _call(
        "reportSkew",
        "Which features are served unlike the feature store",
        _document(report={"verdict": "none", "sentence": "All features are served as the feature store has them."}),
        (*_READ, 404),
    ),
}
CONTROL["start_rollout"]["status_code"] = 201
CONTROL["start_rollout"]["responses"][201] = {
    "description": "Started; Location names it.",
    "content": {"application/json": {"schema": _STARTED}},
}
CONTROL["start_rollout"]["responses"][200]["description"] = "dry_run: what it would be; nothing was started."
