"""A call in a model server's protocol, read: the features of each row, and where in its body they stood."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from understudy.core.requests.caller_entity import EntityFrom, Owners, Whose
from understudy.core.requests.predict import (
    DrawnTypedRow,
    FeatureRows,
    LongRequest,
    PredictRequest,
    TypedRequest,
    TypedRow,
    only_row,
)
from understudy.core.requests.tensor_inputs import LONG_ELEMENTS, MAX_ROWS, InputPlaces, NamedInput, shown
from understudy.core.schema.features import feature_at
from understudy.core.schema.schema import Assembled
from understudy.core.schema.typed_decoder import TypedDecoder
from understudy.core.value import Slotted, Value
from understudy.errors import BatchInvalid, InputInvalid, RequestError, UnderstudyError, Violation

PlaceOf = Callable[[int, str | None, int], str]
"""Returns where in the body an element of a row's input stood; without an input's name, where the row did."""


class RowsOnDemand(Slotted, gc=False):
    """The features of rows that were packed as they came: made once something asks (the log, another layout)."""

    _count: int
    _make: Callable[[], FeatureRows]
    _made: FeatureRows | None = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> Mapping[str, Any]:
        if self._made is None:
            self._made = self._make()
        return self._made[place]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (self[place] for place in range(self._count))


class PackedRows(Value, frozen=True, gc=False):
    """Rows that a typed decoder took: what it packs for each of them."""

    decoder: TypedDecoder
    rows: Sequence[bytes]


class CallerRequest(Value, frozen=True, gc=False):
    """What a body says."""

    rows: FeatureRows
    """Each row's features."""
    whose: Whose
    wanted: Mapping[str, NamedInput]
    """Its inputs."""
    place_of: PlaceOf
    elements: int = 0
    """In all its inputs."""
    packed: PackedRows | None = None
    """The rows as the version takes them, where they could be read so."""

    def requests(self, owners: Owners) -> Sequence[PredictRequest | TypedRequest]:
        """Return a request for each row."""
        is_drawn = owners.found is EntityFrom.NONE
        if self.packed is not None:
            typed = DrawnTypedRow if is_drawn else TypedRow
            decoder, contents, rows = self.packed.decoder, self.packed.rows, self.rows
            if len(contents) == 1:
                ((entity_id, category),) = owners.rows
                return (only_row(entity_id, category, contents[0], decoder, rows, kind=typed),)
            length = decoder.hashed_length
            return [  # the hash is input_hash_of(), as read_predict() makes it
                typed(
                    entity_id, category, Assembled((content,), sha256(length + content).hexdigest(), ()), decoder,
                    b"", None, rows, row,
                )
                for row, ((entity_id, category), content) in enumerate(zip(owners.rows, contents, strict=True))
            ]  # fmt: skip
        kind = PredictRequest if self.elements <= LONG_ELEMENTS else LongRequest
        return [
            kind(entity_id, self.rows[row], category, is_drawn) for row, (entity_id, category) in enumerate(owners.rows)
        ]

    def located(self, row: int, error: UnderstudyError) -> UnderstudyError:
        """Return a row's error with the places that its caller knows: those in the body."""
        if not isinstance(error, RequestError) or not error.violations:
            return error
        places = InputPlaces(self.wanted)
        return type(error).naming(*(self._located(row, violation, places) for violation in error.violations))

    def _located(self, row: int, violation: Violation, places: InputPlaces) -> Violation:
        at = places.element_at(violation.pointer)
        if at is not None:
            return Violation(self.place_of(row, *at), violation.detail)
        name = feature_at(violation.pointer)
        return Violation(self.place_of(row, None, 0), f"{shown(name)} {violation.detail}" if name else violation.detail)


def require_rows(count: int, pointer: str, name: str | None = None) -> None:
    """Refuse a call without rows, or with too many; the input of this ``name`` says how many it has.

    Raises:
        BatchInvalid: With the number and the limit.
    """
    if not 1 <= count <= MAX_ROWS:
        advice = "Send several calls." if count else "Send at least one row."
        which = "this one" if name is None else f"input {shown(name)} has"
        detail = f"a call has 1 to {MAX_ROWS} rows, {which} {count:,}"
        raise BatchInvalid(detail, (Violation(pointer, detail),), hint=advice)


def refuse_inputs(pointer: str, detail: str) -> InputInvalid:
    """Return the error about one place of a body."""
    return InputInvalid.naming(Violation(pointer, detail))
