"""A source of versions as a file has it: a document's tree with its places, or everything that is wrong with it."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from understudy.core.rollout.sources.version_source import PLACEHOLDER, OnNew, SourceSpec
from understudy.core.routing.policy_file import MAX_LABEL, MAX_NAME, Entries, Node, Place, Scalar
from understudy.errors import FileProblem

MLFLOW, OCI = "mlflow", "oci"
KINDS: Final = (MLFLOW, OCI)
_MAX_TEXT: Final = 1_024
_NEEDED: Mapping[str, tuple[str, ...]] = {MLFLOW: ("kind", "model", "url", "alias"), OCI: ("kind", "model", "url")}
_TEXTS: Mapping[str, int] = {
    "kind": MAX_NAME, "model": MAX_NAME, "url": _MAX_TEXT, "registered_model": MAX_NAME, "alias": MAX_NAME,
    "version": MAX_LABEL, "on_new": MAX_NAME, "plan": _MAX_TEXT, "first_percent": MAX_NAME, "group": MAX_NAME,
    "require_validation": MAX_NAME, "endpoints": _MAX_TEXT, "protocol": MAX_NAME, "like": MAX_LABEL,
    "artifacts": _MAX_TEXT, "token_env": MAX_NAME, "webhook_secret_env": MAX_NAME,
}  # fmt: skip
"""Every field that is a text, with the most characters it may have."""
_OF_MLFLOW: Final = ("registered_model", "alias", "artifacts")
_PERCENTS: Final = tuple(map(str, range(1, 101)))
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "kind": KINDS, "on_new": tuple(OnNew), "require_validation": ("true", "false"), "first_percent": _PERCENTS,
}  # fmt: skip
_SPEC_NAMES = {"model": "model_name"}
Refuse = Callable[[Place, str], None]
TagOf = Callable[[str], str]
"""Returns the tag of an image's address, or raises ``ValueError``; core's rooms for both do not know each other."""


class SourceDocument(NamedTuple):
    """One source, and where it stands."""

    path: str
    place: Place
    spec: SourceSpec


def read_source(path: str, document: Node, tag_of: TagOf) -> SourceDocument | list[FileProblem]:
    """Return the source that a document describes, or everything that is wrong with it, in the order of its lines."""
    problems: list[FileProblem] = []

    def refuse(place: Place, detail: str) -> None:
        problems.append(FileProblem(path, *place, detail))

    if not isinstance(document, Entries):
        refuse(document.place, "expected one source, fields with values: kind: mlflow, model: NAME, url: …, alias: …")
        return problems
    texts, backend = _fields(document, refuse)
    kind = texts.get("kind", (None, MLFLOW))[1]
    for name in _NEEDED[kind]:
        if name not in texts and name not in {key.text for key, _ in document.entries}:
            refuse(document.place, f"{name} is missing")
    for place, detail in _contradictions(kind, texts, tag_of):
        refuse(place, detail)
    if not problems and not _is_placed(texts, backend):
        refuse(document.place, f"say where versions are served: group, endpoints, or backend with {PLACEHOLDER}")
    if problems:
        return sorted(problems)
    said = {name: text for name, (_, text) in texts.items()}
    if kind == OCI:
        said["alias"] = tag_of(said["url"])
    return SourceDocument(path, document.place, _spec(said, backend))


def _spec(texts: Mapping[str, str], backend: Mapping[str, str]) -> SourceSpec:
    said: dict[str, Any] = {_SPEC_NAMES.get(name, name): text for name, text in texts.items()}
    said.setdefault("registered_model", said["model_name"])
    said["on_new"] = OnNew(said.get("on_new", OnNew.ROLLOUT))
    said["require_validation"] = said.get("require_validation") == "true"
    if "first_percent" in said:
        said["first_percent"] = int(said["first_percent"])
    return SourceSpec(**said, backend=backend)


def _is_placed(texts: Mapping[str, tuple[Place, str]], backend: Mapping[str, str]) -> bool:
    """Whether a version is served elsewhere than the one that it is like, which would be compared with itself."""
    return bool(texts.keys() & {"group", "endpoints"}) or any(PLACEHOLDER in text for text in backend.values())


def _fields(document: Entries, refuse: Refuse) -> tuple[dict[str, tuple[Place, str]], dict[str, str]]:
    texts: dict[str, tuple[Place, str]] = {}
    backend: dict[str, str] = {}
    first: dict[str, int] = {}
    for key, node in document.entries:
        name = key.text
        if name in first:
            refuse(key.place, f"{name:.40} is there twice: first on line {first[name]}")
        elif name == "backend":
            backend = _backend(node, refuse)
        elif name not in _TEXTS:
            refuse(key.place, f"there is no field {name!r:.60}; fields are {', '.join((*_TEXTS, 'backend'))}")
        else:
            text = _text(name, node, refuse)
            if text is not None:
                texts[name] = node.place, text
        first.setdefault(name, key.place.line)
    return texts, backend


def _text(name: str, node: Node, refuse: Refuse) -> str | None:
    if not isinstance(node, Scalar) or node.is_null:
        refuse(node.place, f"{name} is a text")
        return None
    text, choices = node.text, _CHOICES.get(name)
    if not 0 < len(text) <= _TEXTS[name] or not text.isprintable():
        refuse(node.place, f"{name} has 1 to {_TEXTS[name]:,} characters that can be seen")
    elif choices is not None and text not in choices:
        said = "1 to 100" if choices is _PERCENTS else " or ".join(choices)
        refuse(node.place, f"{name} is {said}, not {text!r:.60}")
    else:
        return text
    return None


def _backend(node: Node, refuse: Refuse) -> dict[str, str]:
    if not isinstance(node, Entries):
        refuse(node.place, "backend has names with texts, such as {model_name: fraud}")
        return {}
    found: dict[str, str] = {}
    for key, value in node.entries:
        if isinstance(value, Scalar) and not value.is_null and len(value.text) <= _MAX_TEXT:
            found[key.text] = value.text
        else:
            refuse(value.place, f"{key.text:.40} of backend is a text")
    return found


def _contradictions(kind: str, texts: Mapping[str, tuple[Place, str]], tag_of: TagOf) -> list[tuple[Place, str]]:
    found: list[tuple[Place, str]] = []
    if "url" in texts:
        place, url = texts["url"]
        problem = _image_problem(url, tag_of) if kind == OCI else _address_problem(url)
        if problem:
            found.append((place, problem))
    found += [(texts[name][0], f"{name} is of MLflow") for name in _OF_MLFLOW if kind == OCI and name in texts]
    if "group" in texts and "endpoints" in texts:
        found.append((texts["endpoints"][0], "agents of the group give a version its endpoints: leave one of both out"))
    if "require_validation" in texts and "group" not in texts:
        found.append((texts["require_validation"][0], "agents validate a version: name their group"))
    if "version" in texts and PLACEHOLDER not in texts["version"][1]:
        found.append((texts["version"][0], f"each version needs a label of its own: version holds {PLACEHOLDER}"))
    if texts.get("on_new", (None, ""))[1] == OnNew.REGISTER:
        of_rollouts = [name for name in ("plan", "first_percent") if name in texts]
        found += [(texts[name][0], f"on_new: register starts no rollout, so it has no {name}") for name in of_rollouts]
    return found


def _image_problem(url: str, tag_of: TagOf) -> str | None:
    try:
        tag_of(url)
    except ValueError as problem:
        return str(problem)
    return None


def _address_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        is_there = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_there = False
        parts = urlsplit("")
    if not is_there or parts.query or parts.fragment:
        return "url is http://HOST[:PORT] or https://HOST[:PORT], with a path if need be"
    return "a login is no part of url: token_env names the variable that has it" if parts.username else None
