"""A version as an engineer describes it: the fields of ``NewVersion`` that a JSON object may give."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from understudy.core.loading.artifact_address import REMOTE, holds_login, scheme_of

_TYPES: dict[str, tuple[type, ...]] = {
    "artifact_path": (str,),
    "artifact_digest": (str, type(None)),
    "base_model": (str, type(None)),
    "family": (str, type(None)),
    "framework": (str,),
    "input_schema": (dict,),
    "output_schema": (dict,),
    "protocol": (str,),
    "endpoints": (list,),
    "metrics": (dict, type(None)),
    "backend": (dict,),
    "deterministic": (bool,),
    "cache_ttl_seconds": (int,),
    "timeout_ms": (int,),
}
_NEEDED = ("artifact_path", "framework", "input_schema")
_NAMES = ("base_model", "family")
MAX_NAME_CHARACTERS = 255
"""Of a base model and of a family, as their columns hold."""


def description_of(fields: Mapping[str, Any], *, is_loaded_by_agents: bool) -> dict[str, Any]:
    """Return a registered version as a description that registers the next one.

    What is the version's own is left out: the digest of its artifact and, where agents load it, their endpoints and the
    name under which servers have it.
    """
    found = {name: fields[name] for name in _TYPES if fields.get(name) is not None and name != "artifact_digest"}
    if is_loaded_by_agents:
        found.pop("endpoints", None)
        found["backend"] = {name: value for name, value in found.get("backend", {}).items() if name != "model_name"}
    return {name: value for name, value in found.items() if value not in ({}, [], ())}


def problems_of(described: Any) -> list[str]:
    """Return what is wrong with a description, all of it."""
    if not isinstance(described, dict):
        return ["it is not one JSON object"]
    missing = [f"{name} is missing" for name in _NEEDED if name not in described]
    return missing + [problem for name, value in described.items() if (problem := _problem_of(name, value))]


def is_name(text: str) -> bool:
    """Whether a text can be a base model or a family."""
    return 0 < len(text) <= MAX_NAME_CHARACTERS


def _problem_of(name: str, value: Any) -> str:
    if name not in _TYPES:
        near = get_close_matches(str(name)[:MAX_NAME_CHARACTERS].lower(), _TYPES, 1)
        return f"{name} is no field of a version" + (f": did you mean {near[0]}?" if near else "")
    permitted = _TYPES[name]
    is_number_from_bool = isinstance(value, bool) and bool not in permitted
    if is_number_from_bool or not isinstance(value, permitted):
        return f"{name} is not {permitted[0].__name__}"
    if name == "artifact_path" and isinstance(value, str) and holds_login(value):
        return "artifact_path has a login in it: the process that reads the artifact has one in its environment"
    if name == "artifact_path" and isinstance(value, str) and scheme_of(value) in REMOTE and "?" in value:
        return "artifact_path has a query string, which is not read and may be a signature: leave it out"
    if name in _NAMES and isinstance(value, str) and not is_name(value):
        return f"{name} has {len(value)} characters: 1 to {MAX_NAME_CHARACTERS}"
    is_list_of_text = not isinstance(value, list) or all(isinstance(target, str) for target in value)
    return "" if is_list_of_text else f"{name} is a list of host:port"
