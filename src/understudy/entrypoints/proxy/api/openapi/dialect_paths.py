"""OpenAPI of the paths of other protocols: what their clients send and get, without a model's own types."""

from collections.abc import Callable
from typing import Any, NamedTuple

from understudy.core.routing.access import Scope
from understudy.entrypoints.proxy.api.dialect_routes import ROUTES, DialectRoutes, Route
from understudy.entrypoints.proxy.api.openapi.calls import DOCUMENT, FEATURES, PROBLEM, object_of

JsonSchema = dict[str, Any]

_TEXT = {"type": "string"}
_VALUES = {"type": "array", "items": {}, "description": "Flat, or nested lists."}
_TENSOR = object_of(
    {
        "name": _TEXT,
        "datatype": {"type": "string", "examples": ["FP32"]},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "data": _VALUES,
        "parameters": DOCUMENT,
    },
    "data",
    "parameters",
    title="Tensor",
)
_INFER = object_of(
    {
        "id": _TEXT,
        "inputs": {"type": "array", "items": _TENSOR},
        "outputs": {
            "type": "array",
            "items": DOCUMENT,
        },
        "parameters": DOCUMENT,
    },
    "id",
    "outputs",
    "parameters",
    title="InferRequest",
    examples=[{"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 2], "data": [41.0, 2.0]}]}],
)
_INFERRED = object_of(
    {
        "model_name": _TEXT,
        "model_version": _TEXT,
        "id": _TEXT,
        "parameters": DOCUMENT,
        "outputs": {"type": "array", "items": _TENSOR},
    },
    "model_version",
    "id",
    "parameters",
    title="InferAnswer",
)
_ROWS = object_of(
    {"instances": _VALUES, "inputs": {"description": "Columns: values, or an object of them."}, "parameters": DOCUMENT},
    "instances",
    "inputs",
    "parameters",
    title="RowsRequest",
    examples=[{"instances": [[41.0, 2.0]]}],
)
_ROWS_ANSWER = object_of({"predictions": _VALUES, "outputs": {}}, "predictions", "outputs", title="RowsAnswer")
_EXAMPLES = object_of(
    {
        "examples": {"type": "array", "items": FEATURES},
        "context": FEATURES,
    },
    "context",
    title="ExamplesRequest",
)
_FRAME = {**DOCUMENT, "examples": [{"dataframe_split": {"columns": ["age", "income"], "data": [[41.0, 2.0]]}}]}


class _Operation(NamedTuple):
    """What the paths of one answer have in common."""

    operation_id: str
    summary: str
    tag: str
    answer: dict[str, JsonSchema]
    """Its schema, by content type."""
    request: dict[str, JsonSchema] | None = None
    scope: Scope | None = Scope.READ
    can_be_unready: bool = False

    @property
    def is_call(self) -> bool:
        """Whether it is a predict call, of which each row has a receipt."""
        return self.scope == Scope.PREDICT


def _json(schema: JsonSchema) -> dict[str, JsonSchema]:
    return {"application/json": schema}


_OPEN_INFERENCE, _KSERVE, _MLFLOW = "Open Inference Protocol", "KServe V1, TensorFlow Serving", "MLflow, SageMaker"
_BYTES: JsonSchema = {"type": "string", "format": "binary"}
_R = DialectRoutes
_OPERATIONS: dict[Callable[..., Any], _Operation] = {
    _R.alive: _Operation("alive", "The process lives", _KSERVE, _json(DOCUMENT), scope=None),
    _R.predict_rows: _Operation(
        "predictRows",
        "The model's own output for each row",
        _KSERVE,
        _json(_ROWS_ANSWER),
        _json(_ROWS),
        Scope.PREDICT,
    ),
    _R.classify: _Operation(
        "classify", "Classes of each example", _KSERVE, _json(DOCUMENT), _json(_EXAMPLES), Scope.PREDICT
    ),
    _R.regress: _Operation(
        "regress", "A number for each example", _KSERVE, _json(DOCUMENT), _json(_EXAMPLES), Scope.PREDICT
    ),
    _R.version_status: _Operation("getVersionStatus", "The state of one version", _KSERVE, _json(DOCUMENT)),
    _R.invoke: _Operation(
        "invoke",
        "The model's own output for each row",
        _MLFLOW,
        {**_json(_ROWS_ANSWER), "text/csv": _TEXT},
        {**_json(_FRAME), "text/csv": _TEXT},
        Scope.PREDICT,
    ),
    _R.ping: _Operation(
        "ping", "The proxy can answer calls", _MLFLOW, _json(DOCUMENT), scope=None, can_be_unready=True
    ),
    _R.version: _Operation("getServerVersion", "The proxy's version", _MLFLOW, {"text/plain": _TEXT}, scope=None),
    _R.server_metadata: _Operation("getServerMetadata", "Name, version, extensions", _OPEN_INFERENCE, _json(DOCUMENT)),
    _R.live: _Operation("getLive", "The process lives", _OPEN_INFERENCE, _json(DOCUMENT), scope=None),
    _R.ready: _Operation(
        "getReady", "The proxy can answer calls", _OPEN_INFERENCE, _json(DOCUMENT), scope=None, can_be_unready=True
    ),
    _R.repository_index: _Operation(
        "getRepositoryIndex",
        "The versions that the key may know",
        _OPEN_INFERENCE,
        _json({"type": "array", "items": DOCUMENT}),
        _json(DOCUMENT),
    ),
    _R.infer: _Operation(
        "infer",
        "The model's own output tensor for all rows",
        _OPEN_INFERENCE,
        {**_json(_INFERRED), "application/octet-stream": _BYTES},
        {**_json(_INFER), "application/octet-stream": _BYTES},
        Scope.PREDICT,
    ),
    _R.model_metadata: _Operation("getMetadata", "Inputs and outputs of a model", _OPEN_INFERENCE, _json(DOCUMENT)),
    _R.model_config: _Operation("getConfig", "The same in Triton's words", _OPEN_INFERENCE, _json(DOCUMENT)),
    _R.model_statistics: _Operation(
        "getStatistics", "Calls of a model's versions, in this process", _OPEN_INFERENCE, _json(DOCUMENT)
    ),
    _R.statistics: _Operation("getAllStatistics", "The same of all models", _OPEN_INFERENCE, _json(DOCUMENT)),
    _R.model_ready: _Operation(
        "getModelReady", "Its model servers answer", _OPEN_INFERENCE, _json(DOCUMENT), can_be_unready=True
    ),
}
_NAMES = {
    "/v1/models/{model}/invocations": "invokeModel",
    "/endpoints/{model}/invocations": "invokeEndpoint",
    "/serving-endpoints/{model}/invocations": "invokeServingEndpoint",
    "/health": "health",
}
"""Of an answer's further paths, which name no version."""


def dialect_paths() -> dict[str, dict[str, Any]]:
    """Return the path items of all dialects."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return paths


def _operation(route: Route) -> dict[str, Any]:
    shared = _OPERATIONS[route.answer]
    responses = {
        "200": {"description": "Answered.", "content": _contents(shared.answer)},
        "default": {
            "description": "Refused: the status says why, `error` what to do next.",
            "content": _contents(_json(PROBLEM)),
        },
    }
    if shared.can_be_unready:
        responses["503"] = {"description": "Not ready.", "content": _contents(shared.answer)}
    operation: dict[str, Any] = {
        "operationId": _name_of(route, shared),
        "summary": shared.summary,
        "tags": [shared.tag],
        "security": [] if shared.scope is None else [{"key": [shared.scope.value]}],
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": _TEXT}
            for name in ("model", "version", "label")
            if f"{{{name}}}" in route.path
        ],
        "responses": responses,
    }
    if shared.request is not None:
        operation["requestBody"] = {"content": _contents(shared.request), "required": shared.is_call}
    return operation


def _name_of(route: Route, shared: _Operation) -> str:
    by_version = {"{version}": "OfVersion", "{label}": "OfLabel"}
    suffix = next((suffix for name, suffix in by_version.items() if name in route.path), "")
    return _NAMES.get(route.path, shared.operation_id) + suffix


def _contents(schemas: dict[str, JsonSchema]) -> dict[str, Any]:
    return {kind: {"schema": schema} for kind, schema in schemas.items()}


PER_CALL = frozenset(
    _name_of(route, _OPERATIONS[route.answer]) for route in ROUTES if _OPERATIONS[route.answer].is_call
)
"""The operations whose answers have a call's receipt."""
