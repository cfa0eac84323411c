"""OpenAPI of the routes: operation ids, answers, examples and problems, and what all routes share of it."""

from typing import Any

from understudy.core.experiments.outcome_events import MAX_EVENTS
from understudy.core.requests.rank import MAX_TREATMENT_ID, MAX_TREATMENTS


def object_of(properties: dict[str, Any], *optional: str, **keywords: Any) -> dict[str, Any]:
    """Return the schema of an object whose properties are all required, but for the ``optional`` ones."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties, **keywords}


def _body(properties: dict[str, Any], *optional: str, **keywords: Any) -> dict[str, Any]:
    """Return the schema of a request's body, or of an object in it, which has no other properties."""
    return object_of(properties, *optional, additionalProperties=False, **keywords)


def _list(items: dict[str, Any], **keywords: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **keywords}


_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_ID = {"type": "string", "minLength": 1, "maxLength": 255}
DOCUMENT = {"type": "object", "title": "Document", "description": "Members as an example shows, or by their names."}
_CATEGORY = {"type": ["string", "null"], "maxLength": 255}
PROBLEM = object_of(
    {
        "type": _TEXT,
        "title": _TEXT,
        "status": _NUMBER,
        "code": {"type": "string", "examples": ["E101"]},
        "detail": _TEXT,
        "instance": _TEXT,
        "error": _TEXT,
        "next": {"type": "string", "description": "What to do next."},
        "errors": _list(object_of({"pointer": _TEXT, "detail": _TEXT}, title="Violation")),
    },
    "instance",
    "next",
    "errors",
    title="Problem",
)
_DESCRIPTIONS: dict[int | str, str] = {
    400: "The body is not acceptable JSON, or a header is unusable; the detail says where.",
    401: "No key, or an unknown one.",
    403: "The key lacks the scope.",
    404: "No such model or version.",
    408: "The body did not arrive in time; the connection is closed.",
    409: "The current state does not permit it; the detail says why.",
    412: "Another caller changed the policy first.",
    413: "The body is too large.",
    422: "Fields of the body cannot be used; errors[] names every place.",
    428: "If-Match is missing.",
    502: "The model server gave an unusable answer.",
    503: "No replica or no database answers, or there are no policies yet; Retry-After says when to try again.",
    504: "The deadline passed; the detail names the stage.",
    "default": "Any other problem.",
}
FEATURES = {"type": "object", "title": "Features", "description": "Values by name, as the input_schema says."}
_REQUEST = _body(
    {
        "entity_id": _ID,
        "inputs": FEATURES,
        "category": _CATEGORY,
    },
    "category",
    title="PredictRequest",
    examples=[{"entity_id": "customer-42", "inputs": {"age": 41.0, "chronic_diseases": 2.0}}],
)
_ANSWER = object_of(
    {
        "prediction": {"type": "object", "title": "Prediction", "examples": [{"score": 0.31}]},
        "model": _TEXT,
        "version": _TEXT,
        "role": {"type": "string", "enum": ["champion", "challenger", "shadow"], "title": "Role"},
        "prediction_id": {"type": "string", "format": "uuid"},
        "generation": _NUMBER,
        "fallback": {
            "type": "object",
            "title": "Fallback",
            "description": "Present when the champion answered for a failing challenger.",
        },
        "defaulted": _list(_TEXT, description="Features that took their default."),
    },
    "fallback",
    "defaulted",
    title="PredictAnswer",
)
_BATCH_REQUEST = _body({"entities": _list(_REQUEST, minItems=1, maxItems=256)}, title="BatchRequest")
_BATCH_ANSWER = object_of(
    {
        "model": _TEXT,
        "predictions": _list({"anyOf": [_ANSWER, object_of({"error": PROBLEM}, title="FailedMember")]}),
        "failed": _NUMBER,
    },
    title="BatchAnswer",
)
_TREATMENT_ID = {"type": "string", "minLength": 1, "maxLength": MAX_TREATMENT_ID}
_RANK_REQUEST = _body(
    {
        "entity_id": _ID,
        "inputs": FEATURES,
        "category": _CATEGORY,
        "treatments": {
            "oneOf": [
                _list(
                    _body({"id": _TREATMENT_ID, "inputs": FEATURES}, title="Treatment"),
                    minItems=1,
                    maxItems=MAX_TREATMENTS,
                ),
                _body(
                    {
                        "ids": _list(_TREATMENT_ID, minItems=1, maxItems=MAX_TREATMENTS),
                        "inputs": {
                            "type": "object",
                            "title": "TreatmentColumns",
                            "description": "For each feature a list of values in the order of the ids.",
                            "additionalProperties": {"type": "array", "items": {}},
                        },
                    },
                    title="Treatments",
                ),
            ]
        },
        "top_k": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_TREATMENTS},
    },
    "category",
    "top_k",
    title="RankRequest",
    examples=[
        {
            "entity_id": "customer-42",
            "inputs": {"age": 41.0},
            "treatments": [{"id": "mail-7", "inputs": {"price": 9.5}}, {"id": "push-2", "inputs": {"price": 4.0}}],
            "top_k": 1,
        },
        {
            "entity_id": "customer-42",
            "inputs": {"age": 41.0},
            "treatments": {"ids": ["mail-7", "push-2"], "inputs": {"price": [9.5, 4.0]}},
        },
    ],
)
_RANKING = object_of(
    {
        "treatments": {"type": "integer", "description": "How many there were."},
        "scores": _list({"type": "number"}, description="In the order of the request."),
        "best": _list(
            object_of({"id": _TEXT, "score": {"type": "number"}}, title="ScoredTreatment"),
            description="With top_k: the best first, equal ones in the order of the request.",
        ),
    },
    "scores",
    "best",
    title="Ranking",
    description="With scores, or with best: the request's top_k decides.",
)
_RANK_ANSWER = {
    **_ANSWER,
    "title": "RankAnswer",
    "properties": {**_ANSWER["properties"], "prediction": _RANKING},
}

_EVENT = _body(
    {
        "event_id": {**_ID, "description": "Counts once."},
        "model": _ID,
        "entity_id": {**_ID, "type": ["string", "null"]},
        "prediction_id": {"type": ["string", "null"], "format": "uuid"},
        "name": {"type": "string", "minLength": 1, "maxLength": 100},
        "value": {"type": "number", "description": "1 and 0 for what happens or does not."},
        "occurred_at": {"type": "string", "format": "date-time"},
    },
    "entity_id",
    "prediction_id",
    title="OutcomeEvent",
    description="It names an entity_id, a prediction_id, or both.",
)
_EXAMPLE_EVENT = {
    "event_id": "order-81723",
    "model": "visits",
    "entity_id": "customer-42",
    "name": "converted",
    "value": 1,
    "occurred_at": "2026-11-20T13:02:11Z",
}
_OUTCOMES = _body(
    {"events": _list(_EVENT, minItems=1, maxItems=MAX_EVENTS)},
    title="Outcomes",
    examples=[{"events": [_EXAMPLE_EVENT]}],
)
_OUTCOMES_ANSWER = object_of(
    {
        "results": _list(
            object_of(
                {"event_id": _TEXT, "result": {"type": "string", "enum": ["new", "known"], "title": "Known"}},
                title="OutcomeResult",
            ),
            description="In the order of the events.",
        ),
        "new": _NUMBER,
        "known": {"type": "integer", "description": "Stored before; what came first stands."},
        "new_metrics": _list(
            object_of({"model": _TEXT, "name": _TEXT}, title="NewMetric"),
            description="Names of which their model had no outcome before: one may be misspelt. Left out if not known.",
        ),
    },
    "new_metrics",
    title="OutcomesAnswer",
)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the problems that a route may answer with."""
    content = {"application/problem+json": {"schema": PROBLEM}}
    # With a default FastAPI adds no 422 of its own.
    named: tuple[int | str, ...] = (*statuses, "default")
    return {status: {"description": _DESCRIPTIONS[status], "content": content} for status in named}


def answers(schema: dict[str, Any], description: str) -> dict[int | str, dict[str, Any]]:
    """Return a route's good answer."""
    return {200: {"description": description, "content": {"application/json": {"schema": schema}}}}


def _post(
    operation_id: str, summary: str, request: dict[str, Any], answer: dict[str, Any], *statuses: int
) -> dict[str, Any]:
    return {
        "operation_id": operation_id,
        "summary": summary,
        "tags": ["predict"],
        "responses": {
            **answers(answer, "Answered; the headers carry the receipt (x-model-version, x-prediction-id, …)."),
            **problems(400, 401, 403, 404, 408, 413, 422, 503, 504, *statuses),
        },
        "openapi_extra": {"requestBody": {"required": True, "content": {"application/json": {"schema": request}}}},
    }


PREDICT = _post("predict", "Predict for one entity", _REQUEST, _ANSWER, 502)
BATCH = _post("predictBatch", "Predict for up to 256 entities", _BATCH_REQUEST, _BATCH_ANSWER)
RANK = _post("rank", f"Rank up to {MAX_TREATMENTS:,} treatments for one entity", _RANK_REQUEST, _RANK_ANSWER, 409, 502)
RANK_FORCED = _post("rankForced", "Rank with a given version (scope operate)", _RANK_REQUEST, _RANK_ANSWER, 409, 502)
FORCED = _post("predictForced", "Predict with a given version (scope operate)", _REQUEST, _ANSWER, 502)

OUTCOMES: dict[str, Any] = {
    "operation_id": "addOutcomes",
    "summary": "Report what happened after predictions (scope outcomes)",
    "tags": ["outcomes"],
    "status_code": 202,
    "responses": {
        202: {
            "description": "Every event is stored, or was before.",
            "content": {"application/json": {"schema": _OUTCOMES_ANSWER}},
        },
        **problems(400, 401, 403, 408, 413, 422, 503),
    },
    "openapi_extra": {"requestBody": {"required": True, "content": {"application/json": {"schema": _OUTCOMES}}}},
}


def _get(operation_id: str, summary: str, tag: str, *statuses: int) -> dict[str, Any]:
    return {
        "operation_id": operation_id,
        "summary": summary,
        "tags": [tag],
        "responses": {**answers(DOCUMENT, "Found."), **problems(*statuses)},
    }


READ: dict[str, dict[str, Any]] = {
    "list_models": _get("listModels", "The served models", "registry", 400, 401, 403, 503),
    "get_model": _get("getModel", "One model, with an example request", "registry", 400, 401, 403, 404, 503),
    "get_assignment": _get(
        "getAssignment", "Which version answers an entity, and why", "registry", 400, 401, 403, 404, 422, 503
    ),
    "get_problem": _get("getProblem", "What an error code means", "registry", 400, 401, 403, 404, 503),
    "livez": _get("livez", "The event loop runs", "health"),
    "readyz": _get("readyz", "The proxy can answer calls", "health"),
}
READ["readyz"]["responses"][503] = {
    "description": "The proxy cannot answer calls; the body says why.",
    "content": {"application/json": {"schema": DOCUMENT}},
}
