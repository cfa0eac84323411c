"""Schemas of the kinds that operators add to a cluster, no wider than what our manifests use of them.

Source:
    The definitions of the Prometheus operator (monitoring.coreos.com/v1) and of KEDA (keda.sh/v1alpha1).
"""

from collections.abc import Mapping
from typing import Any

_TEXT = {"type": "string", "minLength": 1}
_SPAN = {"type": "string", "pattern": r"^([0-9]+(ms|[smhdwy]))+$"}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}


def _closed(required: list[str], properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": dict(properties)}


def _kind(api_version: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": _TEXT, "namespace": _TEXT, "labels": _TEXTS, "annotations": _TEXTS},
        "additionalProperties": False,
    }
    return _closed(
        ["apiVersion", "kind", "metadata", "spec"],
        {"apiVersion": {"const": api_version}, "kind": {"const": kind}, "metadata": metadata, "spec": spec},
    )


_ENDPOINT = _closed(
    ["port"],
    {
        "port": _TEXT,
        "path": {"type": "string", "pattern": "^/"},
        "scheme": {"enum": ["http", "https"]},
        "interval": _SPAN,
        "scrapeTimeout": _SPAN,
        "honorLabels": {"type": "boolean"},
    },
)
_RULE = {
    **_closed(
        ["expr"],
        {
            "record": _TEXT,
            "alert": _TEXT,
            "expr": {"type": ["string", "integer"]},
            "for": _SPAN,
            "keep_firing_for": _SPAN,
            "labels": _TEXTS,
            "annotations": _TEXTS,
        },
    ),
    "oneOf": [{"required": ["record"]}, {"required": ["alert"]}],
}
_GROUP = _closed(
    ["name", "rules"],
    {
        "name": _TEXT,
        "interval": _SPAN,
        "limit": {"type": "integer", "minimum": 0},
        "labels": _TEXTS,
        "rules": {"type": "array", "items": _RULE},
    },
)
_TRIGGER = _closed(
    ["type", "metadata"],
    {
        "type": _TEXT,
        "metricType": {"enum": ["AverageValue", "Value", "Utilization"]},
        "name": _TEXT,
        "metadata": _TEXTS,
    },
)
_COUNT = {"type": "integer", "minimum": 0}

SCHEMAS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _kind(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        _closed(
            ["endpoints", "selector"],
            {
                "jobLabel": _TEXT,
                "selector": _closed(["matchLabels"], {"matchLabels": _TEXTS}),
                "endpoints": {"type": "array", "minItems": 1, "items": _ENDPOINT},
            },
        ),
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): _kind(
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        _closed(["groups"], {"groups": {"type": "array", "minItems": 1, "items": _GROUP}}),
    ),
    ("keda.sh/v1alpha1", "ScaledObject"): _kind(
        "keda.sh/v1alpha1",
        "ScaledObject",
        _closed(
            ["scaleTargetRef", "triggers"],
            {
                "scaleTargetRef": _closed(["name"], {"name": _TEXT, "kind": _TEXT, "apiVersion": _TEXT}),
                "minReplicaCount": _COUNT,
                "maxReplicaCount": _COUNT,
                "pollingInterval": _COUNT,
                "cooldownPeriod": _COUNT,
                "fallback": _closed(["failureThreshold", "replicas"], {"failureThreshold": _COUNT, "replicas": _COUNT}),
                "triggers": {"type": "array", "minItems": 1, "items": _TRIGGER},
            },
        ),
    ),
}
