"""``/openapi.json``: what FastAPI knows of the routes, and what it does not.

It adds the paths of other protocols, the scope that each operation needs, and the headers of calls and answers; and it
names each schema once under ``components``. The parts of the description are written where they are used, which reads
best; a program that is generated from it wants one class for each thing.
"""

from collections.abc import Mapping
from typing import Any

from understudy.core.routing.access import Scope
from understudy.entrypoints.proxy.api.authorization import ACCESS, OPEN
from understudy.entrypoints.proxy.api.openapi.calls import DOCUMENT, PROBLEM
from understudy.entrypoints.proxy.api.openapi.dialect_paths import PER_CALL, dialect_paths

Document = dict[str, Any]

_KEY = "key"
_SCHEMES = {
    _KEY: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "<id>.<secret>",
        "description": "A key of `understudy key create`. An operation names the scope it needs; `predict` also means"
        " `predict:{model}`. A proxy that listens on a loopback address asks for none unless UNDERSTUDY_AUTH says so.",
    }
}
_TEXT = {"type": "string"}
_HEADERS: dict[str, dict[str, Any]] = {
    "x-request-id": {"description": "The caller's own, or one made here.", "schema": _TEXT},
    "x-prediction-id": {
        "description": "The row's id in PredictionLog.",
        "schema": {"type": "string", "format": "uuid"},
    },
    "x-policy-generation": {"description": "Of the policy that decided.", "schema": {"type": "integer"}},
    "x-model-version": {
        "description": "The version that answered, unless UNDERSTUDY_VERSION_HEADERS is off.",
        "schema": _TEXT,
    },
    "x-model-role": {
        "description": "Its role: champion, challenger; of a call of several rows it may be mixed.",
        "schema": _TEXT,
    },
    "cache-status": {"description": "Whether the answer is from the cache (RFC 9211).", "schema": _TEXT},
    "server-timing": {"description": "Milliseconds of each stage.", "schema": _TEXT},
    "retry-after": {"description": "Seconds until another try can succeed.", "schema": {"type": "integer"}},
    "etag": {"description": "The policy's generation, for If-Match.", "schema": _TEXT},
    "location": {"description": "Where the rollout is.", "schema": _TEXT},
}
_RECEIPT = (
    "x-prediction-id",
    "x-policy-generation",
    "x-model-version",
    "x-model-role",
    "cache-status",
    "server-timing",
)
_RECEIPT_OF = frozenset({"predict", "predictForced", "rank", "rankForced", *PER_CALL})
_OWN_HEADERS = {
    ("getPolicy", "200"): ("etag",),
    ("changePolicy", "200"): ("etag",),
    ("startRollout", "201"): ("location",),
}
_PARAMETERS: dict[str, dict[str, Any]] = {
    "x-request-timeout-ms": {
        "name": "x-request-timeout-ms",
        "in": "header",
        "description": "Milliseconds that the caller waits; the shortest of this, grpc-timeout and"
        " x-envoy-expected-rq-timeout-ms holds.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 999_999_999_999_999_999},
    },
    "x-request-id": {
        "name": "x-request-id",
        "in": "header",
        "description": "Names the request in answers, logs and traces.",
        "schema": {"type": "string", "maxLength": 128},
    },
}
_WITHOUT_CALLER = frozenset({"livez", "readyz"})


def with_dialects(described: Mapping[str, Any]) -> Document:
    """Return FastAPI's description with the paths of other protocols."""
    return {**described, "paths": {**described["paths"], **dialect_paths()}}


def openapi_document(described: Mapping[str, Any]) -> Document:
    """Return the whole description, as programs read it.

    Args:
        described: FastAPI's.

    Raises:
        ValueError: Two different schemas, or two different problems, have one name.
    """
    whole = with_dialects(described)
    parts = _Parts(described.get("components", {}).get("schemas", {}))
    named = {path: _path_item(path, item, parts) for path, item in whole["paths"].items()}
    return {**whole, "paths": named, "components": parts.components()}


def is_untyped(schema: Mapping[str, Any]) -> bool:
    """Whether a schema is an object of which no member has a type of its own."""
    if schema.get("title") == DOCUMENT["title"]:
        return True
    is_open = "properties" not in schema and schema.get("additionalProperties", True) is True
    return schema.get("type") == "object" and "title" not in schema and is_open


class _Parts:
    """The schemas and the answers that have a name of their own.

    Args:
        schemas: Those that have one already.
    """

    def __init__(self, schemas: Document) -> None:
        self._schemas = dict(schemas)
        self._problems: Document = {}

    def components(self) -> Document:
        """Return all of them, and what the document always has."""
        return {
            "schemas": dict(sorted(self._schemas.items())),
            "responses": dict(sorted(self._problems.items())),
            "headers": _HEADERS,
            "parameters": _PARAMETERS,
            "securitySchemes": _SCHEMES,
        }

    def named(self, part: Any) -> Any:
        """Return a part of the document with references in the place of schemas that have a name."""
        if isinstance(part, list):
            return [self.named(one) for one in part]
        if not isinstance(part, dict):
            return part
        whole = {name: self.named(one) for name, one in part.items()}
        if is_untyped(whole):
            whole = DOCUMENT
        title = whole.get("title")
        if isinstance(title, str) and (whole.get("type") == "object" or "enum" in whole):
            return _kept(self._schemas, "schemas", title, whole)
        known = self._enumeration_of(whole.get("enum"))
        return whole if known is None else _reference("schemas", known)

    def problem(self, status: str, response: Document) -> Document:
        """Return a reference to a problem, which is the same for all operations that answer with its status."""
        kinds = response["content"]
        name = f"Problem{status.title()}" if "application/problem+json" in kinds else f"DialectProblem{status.title()}"
        return _kept(self._problems, "responses", name, response)

    def _enumeration_of(self, values: Any) -> str | None:
        return next((name for name, schema in self._schemas.items() if values and schema.get("enum") == values), None)


def _kept(parts: Document, kind: str, name: str, part: Document) -> Document:
    if parts.setdefault(name, part) != part:
        message = f"two different {kind} have the name {name}"
        raise ValueError(message)
    return _reference(kind, name)


def _reference(kind: str, name: str) -> Document:
    return {"$ref": f"#/components/{kind}/{name}"}


def _path_item(path: str, item: Mapping[str, Mapping[str, Any]], parts: _Parts) -> Document:
    return {method: _operation(method.upper(), path, operation, parts) for method, operation in item.items()}


def _operation(method: str, path: str, operation: Mapping[str, Any], parts: _Parts) -> Document:
    """Return an operation with its need of a key and its headers."""
    name = operation["operationId"]
    shared = [] if name in _WITHOUT_CALLER else [_reference("parameters", header) for header in _PARAMETERS]
    return {
        **parts.named({key: value for key, value in operation.items() if key != "responses"}),
        "security": operation.get("security", _security(ACCESS.get((method, path)))),
        "parameters": [*parts.named(operation.get("parameters", [])), *shared],
        "responses": {
            status: _response(name, status, response, parts) for status, response in operation["responses"].items()
        },
    }


def _response(operation: str, status: str, response: Mapping[str, Any], parts: _Parts) -> Document:
    headers = {header: _reference("headers", header) for header in _headers_of(operation, status)}
    contents = {kind: _with_example(content) for kind, content in response["content"].items()}
    is_problem = any(content["schema"].get("title") == PROBLEM["title"] for content in response["content"].values())
    whole = parts.named({**response, "headers": headers, "content": contents})
    return parts.problem(status, whole) if is_problem else whole


def _with_example(content: Mapping[str, Any]) -> Document:
    """Return a body with its example beside its schema, where that is the one of all documents."""
    schema = content["schema"]
    return {**content, "example": schema["examples"][0]} if is_untyped(schema) and "examples" in schema else {**content}


def _security(scope: Scope | None) -> list[dict[str, list[str]]]:
    """Return what an operation needs; since OpenAPI 3.1 a scheme that is not OAuth's may name roles."""
    return [] if scope is OPEN else [{_KEY: [scope.value]}]


def _headers_of(operation: str, status: str) -> tuple[str, ...]:
    receipt = _RECEIPT if status == "200" and operation in _RECEIPT_OF else ()
    retry = ("retry-after",) if status in {"503", "default"} else ()
    return ("x-request-id", *receipt, *retry, *_OWN_HEADERS.get((operation, status), ()))
