"""What a caller gives a call: entities, treatments and outcomes, each as its own class, or as a row of a table."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from math import isfinite, isnan
from typing import Any, NamedTuple, SupportsFloat, SupportsIndex, TypeAlias, TypeVar
from uuid import UUID

from understudy.client.bodies import is_missing, is_time, values_of
from understudy.client.tables import Frame, Row, id_text, is_frame, kind_words, row_of, rows_of

T = TypeVar("T")
Id: TypeAlias = str | SupportsIndex | float | UUID
"""Text, or what has one form as text."""


class Entity(NamedTuple):
    """Whom a prediction is about."""

    entity_id: Id
    inputs: Row = {}  # noqa: RUF012 - never changed
    """By the names of features: a mapping, a pandas ``Series``, or a data frame of one row."""
    category: str | None = None


class Treatment(NamedTuple):
    """One of the things to be ranked for an entity."""

    id: Id
    inputs: Row = {}  # noqa: RUF012 - never changed
    """As an entity's."""


class Outcome(NamedTuple):
    """What happened to an entity, or after one prediction; one of the two is named, or both."""

    event_id: Id
    """With the model's name the key by which an event counts once."""
    model: str
    name: str
    """A metric of reports and rollouts."""
    value: SupportsFloat
    """A finite number."""
    occurred_at: datetime | str
    """With its zone; text is ISO 8601."""
    entity_id: Id | None = None
    prediction_id: str | UUID | None = None


Table: TypeAlias = Frame | Mapping[str, Sequence[Any]]
"""A data frame of pandas or polars, or columns by their names: one row for each entity, treatment or outcome."""
_ENTITY, _TREATMENT = "Entity('customer-42', {'age': 41})", "Treatment('mail', {'price': 9.5})"
_NEEDED = tuple(name for name in Outcome._fields if name not in Outcome._field_defaults)


def entity_of(given: Entity | Row, where: str = "entity") -> Entity:
    """Return an entity with its id as text and its inputs as a mapping.

    Args:
        given: An :class:`Entity`, or a row with ``entity_id``, perhaps ``category``, and the inputs beside them, or all
            of them in ``inputs``, as the HTTP API has it.
        where: What errors call it.

    Raises:
        TypeError, ValueError: It is none; says what is expected.
    """
    if not isinstance(given, Entity):
        row = _row_with(given, where, ("entity_id",), _ENTITY)
        given = Entity(**_with_inputs(row, Entity._fields, where, _ENTITY))
    category = None if _is_absent(given.category) else given.category
    return Entity(id_text(given.entity_id, f"{where}.entity_id"), _inputs(given.inputs, where), category)


def entities_of(given: Iterable[Entity | Row] | Table) -> list[Entity]:
    """Return the entities of a list, of a data frame or of columns, in their order; raises as :func:`entity_of`."""
    return _each(given, Entity, "entities", entity_of)


def treatments_of(given: Iterable[Treatment | Row] | Table) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the id and the inputs of each treatment; a row has ``id``, and the inputs beside it.

    Raises:
        TypeError, ValueError: As :func:`entity_of`.
    """
    return _each(given, Treatment, "treatments", _treatment_of)


def outcomes_of(given: Iterable[Outcome | Row] | Table) -> list[Outcome]:
    """Return outcomes with ids as text, values as floats and times as ``datetime``; other columns are left out.

    Raises:
        TypeError, ValueError: One cannot be stored; names its event and what is expected.
    """
    return _each(given, Outcome, "events", _outcome_of)


def _treatment_of(given: Treatment | Row, where: str) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(given, Treatment):
        row = _row_with(given, where, ("id",), _TREATMENT)
        given = Treatment(**_with_inputs(row, Treatment._fields, where, _TREATMENT))
    return id_text(given.id, f"{where}.id"), _inputs(given.inputs, where)


def _outcome_of(given: Outcome | Row, where: str) -> Outcome:
    if not isinstance(given, Outcome):
        row = _row_with(given, where, _NEEDED, "Outcome('order-7', 'visits', 'bought', 1, datetime.now(UTC), 'dana')")
        given = Outcome(**{name: row[name] for name in Outcome._fields if name in row})
    event_id = id_text(given.event_id, f"{where}.event_id")
    return given._replace(
        event_id=event_id,
        model=_named(given.model, f"{where}.model", event_id),
        name=_named(given.name, f"{where}.name", event_id),
        value=_number(given.value, event_id),
        occurred_at=_moment(given.occurred_at, event_id),
        entity_id=_id_or_none(given.entity_id, f"{where}.entity_id"),
        prediction_id=_id_or_none(given.prediction_id, f"{where}.prediction_id"),
    )


def _each(given: Any, kind: type, where: str, read: Callable[[Any, str], T]) -> list[T]:
    rows: Any = rows_of(given, where) if is_frame(given) or isinstance(given, Mapping) else given
    if isinstance(rows, str | bytes | kind) or not isinstance(rows, Iterable):
        raise TypeError(
            f"{where}: expected a list of {kind.__name__}, a data frame, or a mapping from names to columns; got "
            f"{kind_words(given)}"
        )
    return [read(one, f"{where}[{place}]") for place, one in enumerate(rows)]


def _row_with(given: object, where: str, needed: Sequence[str], example: str) -> dict[str, Any]:
    """Return a row that has the needed names.

    Raises:
        TypeError, ValueError: It is none, or lacks one.
    """
    try:
        row = dict(row_of(given, where))
    except TypeError as problem:
        raise TypeError(f"{problem}. Or give its own class: {example}") from None
    missing = [name for name in needed if name not in row]
    if missing:
        raise ValueError(
            f"{where}: {' and '.join(missing)} missing among {', '.join(map(str, row)) or 'no names'}; rename the "
            f"columns that have them, or give {example}"
        )
    return row


def _with_inputs(row: dict[str, Any], fields: Sequence[str], where: str, example: str) -> dict[str, Any]:
    """Return a row as the fields of its class: its inputs stand in ``inputs``, or are all that is no other field.

    Raises:
        ValueError: There are inputs in both places.
    """
    own = {name: row.pop(name) for name in fields if name in row}
    if "inputs" not in own:
        return {**own, "inputs": row}
    if row:
        beside = ", ".join(map(str, row))
        raise ValueError(
            f"{where}: expected inputs, or their names, and not both: {beside} beside inputs; put all into inputs, "
            f"and one that is called inputs as well, such as {example}"
        )
    return own


def _inputs(given: Row, where: str) -> Mapping[str, Any]:
    inputs = given if isinstance(given, dict) else row_of(given, f"{where}.inputs")
    if _numpy_types().isdisjoint(map(type, inputs.values())):
        return inputs
    # The JSON library writes durations as whole numbers, and a time that is missing as one of the year 1677.
    return {name: values_of(value) if is_time(value) else value for name, value in inputs.items()}


def _numpy_types() -> frozenset[Any]:
    """Return numpy's types that hold times, once the caller has imported it: before that there is no such value."""
    numpy = sys.modules.get("numpy")
    return frozenset(getattr(numpy, name, None) for name in ("datetime64", "timedelta64", "ndarray"))


def _named(value: object, where: str, event_id: str) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{where} of {event_id!r}: expected a name, got {kind_words(value)}")
    return value


def _id_or_none(value: object, where: str) -> str | None:
    return value if isinstance(value, str) else None if _is_absent(value) else id_text(value, where)


def _is_absent(value: object) -> bool:
    """Whether a table says by this value that there is none."""
    return value is None or is_missing(value) or (isinstance(value, float) and isnan(value))


def _number(value: Any, event_id: str) -> float:
    if _is_absent(value):
        raise ValueError(f"the value of {event_id!r} is missing ({value!r}): leave out events whose value is not known")
    try:
        found = None if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None:
        raise TypeError(f"the value of {event_id!r}: expected a number, got {kind_words(value)}")
    if not isfinite(found):
        raise ValueError(f"the value of {event_id!r}: expected a finite number, got {found}")
    return found


def _moment(value: Any, event_id: str) -> datetime:
    if type(value) is datetime and value.tzinfo is not None:
        return value
    if _is_absent(value):
        raise ValueError(
            f"occurred_at of {event_id!r} is missing ({value!r}): leave out events whose time is not known"
        )
    text = value if isinstance(value, str) else value.isoformat() if isinstance(value, datetime) else None
    try:
        found = None if text is None else datetime.fromisoformat(text)  # of pandas' Timestamp, too
    except ValueError:
        found = None
    if found is None:
        raise TypeError(
            f"occurred_at of {event_id!r}: expected a datetime with its zone, or such text in ISO 8601, got "
            f"{kind_words(value)}"
        )
    if found.tzinfo is None:
        raise ValueError(
            f"occurred_at of {event_id!r} has no zone; for example datetime.now(UTC), or of a pandas column "
            ".dt.tz_localize('UTC')"
        )
    return found
