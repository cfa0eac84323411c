"""Paths of the control plane; names may hold any character."""

from urllib.parse import quote

REGISTRY_PATH = "/v1/registry/models"


def model_path(model_name: str, *parts: str) -> str:
    """Return the path of a model, or of what it has."""
    return "/".join(["/v1/models", *(quote(part, safe="") for part in (model_name, *parts))])


def registry_path(model_name: str, *parts: str) -> str:
    """Return the path of a model in the registry, or of what it has there."""
    return "/".join([REGISTRY_PATH, *(quote(part, safe="") for part in (model_name, *parts))])
