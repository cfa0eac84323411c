"""What the log keeps of a call, made into a call again: its inputs, and what was answered."""

from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

import orjson

from understudy.core.schema.schema import InputSchema


class Answer(NamedTuple):
    """What a version answered, as far as two answers are compared: a score, or a class and how sure of it it was."""

    score: float | None
    label: str | None = None
    """JSON text of the class, or of several of them; ``None``: the answer is a score."""


class AdaptedInputs(NamedTuple):
    """Logged inputs as another version takes them."""

    values: Mapping[str, Any]
    left_out: frozenset[str]
    """Inputs that the version does not take."""
    defaulted: frozenset[str]
    """Inputs that the version before did not take, and that have a default."""
    unknown: tuple[str, ...]
    """Inputs that the version would have been given, and whose value is not in the log.

    Those that the version before took as well, and that are private or have a shape; and those that only the feature
    store has.
    """


def answer_of(text: str | bytes, score: float | None) -> Answer | None:
    """Return the answer in a prediction's JSON text and its score; ``None`` for one that is neither score nor class."""
    document = orjson.loads(text)
    if not isinstance(document, dict):
        return None
    label = document.get("label", document.get("labels"))
    known = score if score is not None and isfinite(score) else None
    if label is not None:
        return Answer(known, orjson.dumps(label).decode())
    return Answer(known) if known is not None and "treatments" not in document else None


def has_loggable_input(document: Mapping[str, Any]) -> bool:
    """Whether a version with this ``input_schema`` takes an input that may be logged: a single value, not private.

    One that cannot be read is taken to have one.
    """
    features = document.get("features")
    if not isinstance(features, list):
        return True
    read = [feature for feature in features if isinstance(feature, dict)]
    return len(read) < len(features) or any(not feature.get("shape") and not feature.get("private") for feature in read)


def adapt_inputs(schema: InputSchema, before: InputSchema | None, logged: Mapping[str, Any]) -> AdaptedInputs:
    """Return logged inputs as a version takes them.

    Args:
        schema: Of the version that is to be asked.
        before: Of the version that answered; ``None`` when it cannot be read; what is missing is not known then.
        logged: Each input of the call that is a single value and not private, stored features and defaults included.
    """
    taken_before = schema.by_name if before is None else before.by_name
    new = {name: schema.by_name[name] for name in schema.by_name.keys() - logged.keys() - taken_before.keys()}
    needed = {name for name, feature in new.items() if feature.stored and not feature.has_default}
    return AdaptedInputs(
        {name: value for name, value in logged.items() if name in schema.by_name},
        frozenset(logged.keys() - schema.by_name.keys()),
        frozenset(name for name, feature in new.items() if feature.has_default),
        tuple(name for name in schema.by_name if name not in logged and (name in taken_before or name in needed)),
    )
