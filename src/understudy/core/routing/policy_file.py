"""A policy as a file has it: a document's tree with its places, read as fields, or everything that is wrong with it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from understudy.errors import FileProblem

MAX_LABEL, MAX_NAME, MAX_SALT, MAX_CATEGORIES = 100, 255, 255, 1_000
_MAX_ARMS = 100
_NULLS = ("", "~", "null", "Null", "NULL")
_FLAGS = {"true": True, "false": False}
_OFF = {"false": "off", "no": "off"}
"""What YAML reads ``off`` as, and is written in its place."""
_SCHEMA = "$schema"
"""Names a document's schema for editors; it says nothing of the policy."""
_OF_SCHEMAS = frozenset({"properties", "type", "required", "title", "$defs"})
_SHOWN = 40
"""Characters of a value that a problem repeats."""


class Place(NamedTuple):
    """Where something stands in a file, both counted from 1."""

    line: int
    column: int


class Scalar(NamedTuple):
    """A text, a number, a flag or null, as it was written."""

    place: Place
    text: str
    is_quoted: bool = False

    @property
    def is_null(self) -> bool:
        """Whether it stands for nothing."""
        return not self.is_quoted and self.text in _NULLS


class Items(NamedTuple):
    """A list; what is in it is of no interest, since no field takes one."""

    place: Place


class Entries(NamedTuple):
    """A mapping; keys may be there twice."""

    place: Place
    entries: Sequence[tuple[Scalar, "Node"]]


Node = Scalar | Items | Entries


class PolicyFile(NamedTuple):
    """What one document says of one model's policy; a field that it leaves out is left alone."""

    path: str
    model_name: str
    model_place: Place
    fields: Mapping[str, Any]
    """As ``PolicyRecord`` has them, but ``arms`` are the percent of each version."""
    places: Mapping[str, Place]
    """Of each field's value."""

    def problem(self, field: str, detail: str) -> FileProblem:
        """Return a problem with the value of a field, or with the whole document where it has no such field."""
        return FileProblem(self.path, *self.places.get(field, self.model_place), detail)


Refuse = Callable[[Place, str], None]
ReadValue = Callable[[Node, Refuse], Any]


class Field(NamedTuple):
    """One field of a file."""

    about: str
    read: ReadValue
    """Returns the value, or calls back with what is wrong with it."""
    schema: Mapping[str, Any]
    """Of its value, in JSON Schema."""


def read_policy_file(path: str, document: Node) -> PolicyFile | list[FileProblem]:
    """Return what a document says, or everything that is wrong with it, in the order of its lines."""
    problems: list[FileProblem] = []

    def refuse(place: Place, detail: str) -> None:
        problems.append(FileProblem(path, *place, detail))

    other = _other_than_policy(document)
    if other is not None or not isinstance(document, Entries):
        refuse(document.place, other or "")
        return problems
    values = dict(_once(document, refuse))
    values.pop(_SCHEMA, None)
    named = values.pop("model", None)
    if named is None:
        refuse(document.place, "no model is named: model: NAME is missing")
    model_name = _text(MAX_NAME)(named[1], refuse) if named is not None else None
    if not values:
        refuse(document.place, "it names no field of the policy, such as challenger_weight: 5")
    fields: dict[str, Any] = {}
    for name, (key, node) in values.items():
        if name not in FIELDS:
            refuse(key.place, _unknown(name))
            continue
        known = len(problems)
        value = FIELDS[name].read(node, refuse)
        if len(problems) == known:
            fields[name] = value
    places = {name: values[name][1].place for name in fields}
    for name, detail in _contradictions(fields):
        refuse(places[name], detail)
    if problems:
        return sorted(problems)
    return PolicyFile(path, str(model_name), named[1].place if named else document.place, fields, places)


def _other_than_policy(document: Node) -> str | None:
    """Return what a document is in place of a policy, such as the schema that ``apply --print-schema`` prints."""
    if not isinstance(document, Entries):
        return f"expected one model's policy, fields with values, not {_kind(document)}"
    names = {key.text for key, _ in document.entries}
    if _SCHEMA in names and "model" not in names and not names.isdisjoint(_OF_SCHEMAS):
        return "this is a JSON Schema and no policy: keep it outside of the folder of the policies"
    return None


def policy_file_schema() -> dict[str, Any]:
    """Return the JSON Schema of a document, for editors."""
    model = {"description": "The model's name.", **_text_schema(MAX_NAME)}
    fields = {name: {"description": field.about, **field.schema} for name, field in FIELDS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Understudy: one model's serving policy",
        "description": "Fields that the file leaves out are left alone. understudy apply -f PATH applies it.",
        "type": "object",
        "required": ["model"],
        "additionalProperties": False,
        "properties": {
            _SCHEMA: {"description": "Of this file, for editors.", "type": "string"},
            "model": model,
            **fields,
        },
    }


def _once(document: Entries, refuse: Refuse) -> Iterator[tuple[str, tuple[Scalar, Node]]]:
    """Yield each key with its value; one that is there again is refused."""
    first: dict[str, Place] = {}
    for key, value in document.entries:
        if key.text in first:
            refuse(key.place, f"{_shown(key.text)} is there twice: first on line {first[key.text].line}")
            continue
        first[key.text] = key.place
        yield key.text, (key, value)


# -- values ------------------------------------------------------------------------------------------------------------


def _text(longest: int) -> ReadValue:
    """Return a reader of names: what stands there, character by character, so that 1.10 is no number."""

    def read(node: Node, refuse: Refuse) -> str | None:
        if not isinstance(node, Scalar) or node.is_null:
            refuse(node.place, f"expected a text, not {_kind(node)}")
        elif not node.is_quoted and node.text in _FLAGS:
            refuse(node.place, f"expected a text, not the flag {node.text}: quote it if that is its name")
        elif not 0 < len(node.text) <= longest:
            refuse(node.place, f"expected 1 to {longest} characters, not {len(node.text):,}")
        elif not node.text.isprintable():
            refuse(node.place, "expected characters that can be seen: there is a control character, or a half of one")
        else:
            return node.text
        return None

    return read


def _text_schema(longest: int) -> dict[str, Any]:
    return {"type": ["string", "number"], "minLength": 1, "maxLength": longest}


def _or_null(read: ReadValue) -> ReadValue:
    def read_or_null(node: Node, refuse: Refuse) -> Any:
        if isinstance(node, Scalar) and node.is_null:
            if not node.text:
                refuse(node.place, "there is no value: say null to take it away")
            return None
        if isinstance(node, Scalar) and not node.is_quoted and node.text == "none":
            refuse(node.place, "a file says null for none")
            return None
        return read(node, refuse)

    return read_or_null


def _nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [*schema["type"], "null"]}


def _percent(least: int, most: int) -> ReadValue:
    def read(node: Node, refuse: Refuse) -> int | None:
        expected = f"expected a whole percent from {least} to {most}"
        if not isinstance(node, Scalar) or node.is_null:
            refuse(node.place, f"{expected}, not {_kind(node)}")
        elif node.is_quoted:
            refuse(node.place, f"{expected}, not a text: take the quotes away")
        elif not _is_whole(node.text) or not least <= int(node.text) <= most:
            refuse(node.place, f"{expected}, not {_shown(node.text)}")
        else:
            return int(node.text)
        return None

    return read


def _is_whole(text: str) -> bool:
    """Whether a text is a whole number as JSON has it; YAML's 010 is 8 for some readers, and 1_0 is 10."""
    return text.isascii() and text.isdigit() and len(text) < _SHOWN and (text == "0" or text[0] != "0")


def _read_flag(node: Node, refuse: Refuse) -> bool | None:
    if isinstance(node, Scalar) and not node.is_quoted and node.text in _FLAGS:
        return _FLAGS[node.text]
    said = _shown(node.text) if isinstance(node, Scalar) and not node.is_null else _kind(node)
    refuse(node.place, f"expected true or false, not {said}")
    return None


def _choice(*words: str) -> ReadValue:
    def read(node: Node, refuse: Refuse) -> str | None:
        if isinstance(node, Scalar) and node.text in words:
            return node.text
        said = _shown(node.text) if isinstance(node, Scalar) and not node.is_null else _kind(node)
        near = _nearest(_OFF.get(node.text.lower(), node.text), words) if isinstance(node, Scalar) else None
        meant = f"; did you mean {near}?" if near else ""
        refuse(node.place, f"expected {', '.join(words[:-1])} or {words[-1]}, not {said}{meant}")
        return None

    return read


def _map_of(key: ReadValue, value: ReadValue, what: str, most: int) -> ReadValue:
    def read(node: Node, refuse: Refuse) -> dict[str, Any] | None:
        if not isinstance(node, Entries):
            refuse(node.place, f"expected {what}, such as {{}} for none, not {_kind(node)}")
            return None
        if len(node.entries) > most:
            refuse(node.place, f"expected at most {most:,} entries, not {len(node.entries):,}")
            return None
        return {name: value(one, refuse) for name, (where, one) in _once(node, refuse) if key(where, refuse)}

    return read


def _read_category(node: Node, refuse: Refuse) -> str | None:
    """Return a category's name: any word may be one, ``no`` and ``true`` too."""
    if isinstance(node, Scalar) and not node.is_null and node.text and node.text.isprintable():
        return node.text
    refuse(node.place, "expected a category's name")
    return None


_LABEL, _LABEL_SCHEMA = _text(MAX_LABEL), _text_schema(MAX_LABEL)
_ROLES = ("champion", "challenger")


def _percent_schema(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


def _field_of_version(about: str) -> Field:
    return Field(about, _or_null(_LABEL), _nullable(_LABEL_SCHEMA))


def _field_of_percent(about: str, most: int = 100) -> Field:
    return Field(about, _percent(0, most), _percent_schema(0, most))


def _field_of_choice(about: str, *words: str) -> Field:
    return Field(about, _choice(*words), {"enum": list(words)})


FIELDS: Mapping[str, Field] = {
    "champion": Field("The version that answers.", _LABEL, _LABEL_SCHEMA),
    "challenger": _field_of_version("The version that answers a share; null: there is none."),
    "challenger_weight": _field_of_percent("The challenger's share, in percent of the entities."),
    "arms": Field(
        "Further versions with their shares, in percent of the entities; {}: there are none.",
        _map_of(_LABEL, _percent(1, 100), "versions with their percent", _MAX_ARMS),
        {"type": "object", "maxProperties": _MAX_ARMS, "additionalProperties": _percent_schema(1, 100)},
    ),
    "shadow": _field_of_version("The version that is shown calls, and answers none; null: there is none."),
    "shadow_percent": _field_of_percent("Percent of the entities whose calls the shadow is shown."),
    "fallback": Field(
        "Whether the champion answers when the challenger fails.",
        _read_flag,
        {"type": "boolean"},
    ),
    "salt": Field(
        "Hashed with the entity in place of the model's name; null: the name is. Another one draws all entities anew.",
        _or_null(_text(MAX_SALT)),
        _nullable(_text_schema(MAX_SALT)),
    ),
    "category_roles": Field(
        "Categories whose calls go to the champion or the challenger, whatever the share; {}: there are none.",
        _map_of(_read_category, _choice(*_ROLES), "categories with their roles", MAX_CATEGORIES),
        {"type": "object", "maxProperties": MAX_CATEGORIES, "additionalProperties": {"enum": list(_ROLES)}},
    ),
    "category_holdout_percent": _field_of_percent(
        "Percent of the entities that stay with the champion though their category routes to the challenger.", 50
    ),
    "input_sample_percent": _field_of_percent("Percent of the entities whose inputs are logged."),
    "guard": _field_of_choice("What a share that does worse leads to.", "rollback", "alert", "off"),
    "on_drift": _field_of_choice("What a challenger that drifts from the champion leads to.", "alert", "rollback"),
}
"""Every field of a policy that people set, in the words of SQL and HTTP."""
_OTHER_WORDS: Mapping[str, str] = {
    "weight": "the challenger's share is challenger_weight",
    "name": "the model's name is model",
    "categories": "categories are routed by category_roles",
    "routes": "categories are routed by category_roles",
    "holdout": "the share that stays is category_holdout_percent",
    "version": "versions are named by their roles: champion, challenger, shadow, arms",
    "plan": "a plan belongs to a rollout: understudy rollout start MODEL VERSION --plan PLAN",
    "rollout": "a rollout is no policy: understudy rollout start",
    "cache": "how long answers are cached belongs to a version: ModelVersion.cache_ttl_seconds",
    "cache_ttl_seconds": "it belongs to a version: ModelVersion.cache_ttl_seconds",
    "endpoints": "model servers belong to a version: understudy version register --endpoint",
    "generation": "the database counts generations; apply --expect-generation MODEL=N names one",
    "<<": "merge keys are not read: each document stands for itself",
}
"""What is no field, by the words that people would try."""


# -- words -------------------------------------------------------------------------------------------------------------


def _contradictions(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield fields of one document that cannot be together, the one that is named later with the reason."""
    arms = fields.get("arms") or {}
    roles = [(role, fields[role]) for role in ("champion", "challenger", "shadow") if fields.get(role) is not None]
    holders: dict[str, str] = {}
    for role, version in [*roles, *(("arms", arm) for arm in arms)]:
        if version in holders:
            yield role, f"version {version} is {holders[version]} already: each role has a version of its own"
        holders.setdefault(version, role)
    weight = fields.get("challenger_weight", 0)
    if weight and "challenger" in fields and fields["challenger"] is None:
        yield "challenger_weight", f"a share of {weight} % needs a challenger that has it, and challenger is null"
    together = weight + sum(arms.values())
    if arms and together > 100:  # noqa: PLR2004 - percent
        yield "arms", f"the challenger and the arms have {together} % together, and there are 100"


def _unknown(name: str) -> str:
    if name in _OTHER_WORDS:
        return f"{_shown(name)} is no field of a policy: {_OTHER_WORDS[name]}"
    near = _nearest(name, ("model", *FIELDS))
    meant = f"did you mean {near}?" if near else f"there are model, {', '.join(FIELDS)}"
    return f"{_shown(name)} is no field of a policy; {meant}"


def _nearest(word: str, words: Sequence[str]) -> str | None:
    from difflib import get_close_matches  # noqa: PLC0415 - for those who misspell

    return next(iter(get_close_matches(word[:MAX_NAME].lower(), words, 1)), None)


def _kind(node: Node) -> str:
    if isinstance(node, Scalar):
        return "nothing" if node.is_null else "a text" if node.is_quoted else _shown(node.text)
    return "a list" if isinstance(node, Items) else "a mapping"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…")
