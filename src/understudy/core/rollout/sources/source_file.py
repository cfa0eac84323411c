"""A source of versions as a file has it: a document's tree with its places, or everything that is wrong with it."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from understudy.core.rollout.sources.version_source import PLACEHOLDER, OnNew, SourceSpec
from understudy.core.routing.policy_file import MAX_LABEL, MAX_NAME, Entries, Node, Place, Scalar
from understudy.errors import FileProblem

KINDS: Final = ("mlflow",)
_MAX_TEXT: Final = 1_024
_NEEDED: Final = ("kind", "model", "url", "alias")
_TEXTS: Mapping[str, int] = {
    "kind": MAX_NAME, "model": MAX_NAME, "url": _MAX_TEXT, "registered_model": MAX_NAME, "alias": MAX_NAME,
    "version": MAX_LABEL, "on_new": MAX_NAME, "plan": _MAX_TEXT, "group": MAX_NAME, "endpoints": _MAX_TEXT,
    "protocol": MAX_NAME, "like": MAX_LABEL, "artifacts": _MAX_TEXT, "token_env": MAX_NAME,
    "webhook_secret_env": MAX_NAME,
}  # fmt: skip
"""Every field that is a text, with the most characters it may have."""
_CHOICES: Mapping[str, tuple[str, ...]] = {"kind": KINDS, "on_new": tuple(OnNew)}
_SPEC_NAMES = {"model": "model_name"}
Refuse = Callable[[Place, str], None]


class SourceDocument(NamedTuple):
    """One source, and where it stands."""

    path: str
    place: Place
    spec: SourceSpec


def read_source(path: str, document: Node) -> SourceDocument | list[FileProblem]:
    """Return the source that a document describes, or everything that is wrong with it, in the order of its lines."""
    problems: list[FileProblem] = []

    def refuse(place: Place, detail: str) -> None:
        problems.append(FileProblem(path, *place, detail))

    if not isinstance(document, Entries):
        refuse(document.place, "expected one source, fields with values: kind: mlflow, model: NAME, url: …, alias: …")
        return problems
    texts, backend = _fields(document, refuse)
    for name in _NEEDED:
        if name not in texts and name not in {key.text for key, _ in document.entries}:
            refuse(document.place, f"{name} is missing")
    for place, detail in _contradictions(texts):
        refuse(place, detail)
    if problems:
        return sorted(problems)
    said = {_SPEC_NAMES.get(name, name): text for name, (_, text) in texts.items()}
    said.setdefault("registered_model", said["model_name"])
    on_new = OnNew(said.pop("on_new", OnNew.ROLLOUT))
    return SourceDocument(path, document.place, SourceSpec(**said, on_new=on_new, backend=backend))


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
        refuse(node.place, f"{name} is {' or '.join(choices)}, not {text!r:.60}")
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


def _contradictions(texts: Mapping[str, tuple[Place, str]]) -> list[tuple[Place, str]]:
    found: list[tuple[Place, str]] = []
    if "url" in texts:
        place, url = texts["url"]
        problem = _address_problem(url)
        if problem:
            found.append((place, problem))
    if "group" in texts and "endpoints" in texts:
        found.append((texts["endpoints"][0], "agents of the group give a version its endpoints: leave one of both out"))
    if "version" in texts and PLACEHOLDER not in texts["version"][1]:
        found.append((texts["version"][0], f"each version needs a label of its own: version holds {PLACEHOLDER}"))
    if "plan" in texts and texts.get("on_new", (None, ""))[1] == OnNew.REGISTER:
        found.append((texts["plan"][0], "on_new: register starts no rollout, so it has no plan"))
    return found


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
