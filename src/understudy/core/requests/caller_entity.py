"""Whose call it is, where a protocol has no field for it: by row, by parameter, by header, or drawn for the call."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from understudy.core.schema.typed_decoder import MAX_ENTITY_ID
from understudy.core.value import Value
from understudy.errors import EntityIdInvalid, InputInvalid, Violation

ENTITY_ID, CATEGORY = "entity_id", "category"
DRAWN_PREFIX = "call:"
"""Of an entity that stands for one call, since its caller named none."""
HOW_TO = (
    'Send it in the row (an input "entity_id"), as the parameter "entity_id", or in the header x-entity-id: '
    "docs/reference/dialects.md has an example of each."
)


class EntityFrom(StrEnum):
    """Where a call's entities were found."""

    ROW = "row"
    CALL = "call"
    NONE = "none"


class Named(Value, frozen=True, gc=False):
    """What one place of a call says, and which place that is."""

    value: Any
    place: str
    """As an error names it: ``parameters``."""
    pointer: str | None = None
    """Where it stands in the body."""


class Whose(Value, frozen=True, gc=False):
    """What a body says of entities and categories: by row where it has them so, and of the whole call."""

    entities: Sequence[Any] | None = None
    categories: Sequence[Any] | None = None
    entity: Named | None = None
    category: Named | None = None


_CALL = EntityFrom.CALL
UNSAID = Whose()
"""Of a body that says nothing of them."""


class Owners(Value, frozen=True, gc=False):
    """The entity and the category of each row."""

    rows: tuple[tuple[str, str | None], ...]
    found: EntityFrom


def owners_of(
    whose: Whose, rows: int, *, entity: Named | None, category: Named | None, draw: Callable[[], str] | None
) -> Owners:
    """Return whose rows a call has.

    Args:
        whose: What its body says.
        rows: How many rows it has.
        entity: What its header says.
        category: What its header says.
        draw: Makes what stands in where no place names an entity, for all rows; ``None``: such a call is refused.

    Raises:
        EntityIdInvalid: No place names one and none is drawn, two places differ, or one cannot be used.
        InputInvalid: The same of the category.
    """
    alone = only_entity(whose, None if entity is None else entity.value) if rows == 1 and category is None else None
    if alone is not None:
        return Owners(((alone, None),), _CALL)
    entities, of_rows = _one_each(ENTITY_ID, whose.entities, (whose.entity, entity), rows, EntityIdInvalid)
    categories, _ = _one_each(CATEGORY, whose.categories, (whose.category, category), rows, InputInvalid)
    found = EntityFrom.ROW if of_rows else EntityFrom.CALL
    if entities is None:
        if draw is None:
            raise EntityIdInvalid("the call names no entity", hint=HOW_TO)
        found, entities = EntityFrom.NONE, (DRAWN_PREFIX + draw(),) * rows
    if rows == 1:
        return Owners(((entities[0], None if categories is None else categories[0]),), found)
    return Owners(tuple(zip(entities, categories or (None,) * rows, strict=True)), found)


def only_entity(whose: Whose, by_header: str | None) -> str | None:
    """Return the entity of a call of one row that names no category: as text, by body, by header, or by both alike.

    ``None`` where that cannot be told so simply: :func:`owners_of` decides, and alone refuses.

    Args:
        whose: What its body says.
        by_header: What its header says.
    """
    if whose.entities is not None or whose.categories is not None or whose.category is not None:
        return None
    if whose.entity is None:
        named = by_header
    else:
        named = whose.entity.value
        if by_header is not None and by_header != named:
            return None
    is_good = type(named) is str and 0 < len(named) <= MAX_ENTITY_ID and "\x00" not in named
    return named if is_good else None


def _one_each(
    name: str,
    by_row: Sequence[Any] | None,
    named: tuple[Named | None, Named | None],
    rows: int,
    error: type[InputInvalid],
) -> tuple[tuple[str, ...] | None, bool]:
    """Return the value of each row, and whether the rows themselves have it; ``None``: nothing does."""
    one, other = named
    if one is None:
        if other is None and by_row is None:
            return None, False
        one, other = other, None
    text = None if one is None else _text_of(name, one.value, one.place, error, one.pointer)
    if one is not None and other is not None:
        second = _text_of(name, other.value, other.place, error, other.pointer)
        if second != text:
            raise error(_differ(name, str(text), one.place, second, other.place), hint=HOW_TO)
    if by_row is None:
        return (None if text is None else (text,) * rows), False
    found = tuple(_text_of(name, value, f"row {row}", error) for row, value in enumerate(by_row))
    row = None if text is None else next((row for row, of_row in enumerate(found) if of_row != text), None)
    if one is not None and row is not None:
        raise error(_differ(name, found[row], f"row {row}", str(text), one.place), hint=HOW_TO)
    return found, True


def _text_of(name: str, value: Any, place: str, error: type[InputInvalid], pointer: str | None = None) -> str:
    """Return a name as text: callers also send whole numbers, and a value of a row in lists of one."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    text = str(value) if type(value) is int else value
    if isinstance(text, str) and 0 < len(text) <= MAX_ENTITY_ID and "\x00" not in text:
        return text
    detail = f"expected a string of 1 to {MAX_ENTITY_ID} characters without U+0000, or a whole number"
    places = () if pointer is None else (Violation(pointer, detail),)
    raise error(f"{name} in {place}: {detail}", places, hint=HOW_TO)


def _differ(name: str, first: str, place: str, second: str, other: str) -> str:
    return f"{name} is {first!r} in {place} and {second!r} in {other}"
