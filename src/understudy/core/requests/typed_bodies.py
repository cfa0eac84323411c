"""Bodies of other protocols in their plainest form, read in one pass by types, as our own form is.

That is the version's one tensor in the Open Inference Protocol, flat or as bytes, and lists in KServe V1.
What is not accepted here goes to the general readers, which alone refuse; what is accepted they read alike, which a
property test compares.

Source:
    :class:`understudy.core.schema.typed_decoder.TypedDecoder`, for what one pass saves.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from understudy.core.requests.caller_entity import CATEGORY, ENTITY_ID, UNSAID, Named, Whose
from understudy.core.requests.caller_request import CallerRequest, PackedRows, PlaceOf, RowsOnDemand
from understudy.core.requests.infer_call import MAX_TEXT, WantedOutput
from understudy.core.requests.predict import FeatureRows
from understudy.core.requests.tensor_inputs import MAX_ROWS, caller_inputs_of
from understudy.core.schema.schema import InputSchema
from understudy.core.schema.typed_decoder import UNREADABLE
from understudy.core.value import Value


class _Parameters(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    entity_id: str | UnsetType = UNSET
    category: str | UnsetType = UNSET
    binary_data_output: bool | UnsetType = UNSET


class _TensorParameters(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    binary_data_size: int


class _OutputParameters(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    binary_data: bool


class _Output(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    parameters: _OutputParameters | UnsetType = UNSET


class TypedInfer(Value, frozen=True, gc=False):
    """What an infer call says: its rows, and what stands beside them."""

    rows: Sequence[bytes]
    whose: Whose
    id: str | None
    outputs: tuple[WantedOutput, ...]
    binary: bool


class TypedRows(Value, frozen=True, gc=False):
    """What rows as lists say."""

    rows: Sequence[bytes]
    whose: Whose
    signature: str | None


class TypedBodies:
    """Reads the bodies of versions whose inputs are one tensor of single numbers.

    Args:
        schema: Such a version's.
    """

    def __init__(self, schema: InputSchema) -> None:
        assert schema.decoder is not None
        self._decoder = schema.decoder
        spec = schema.packed[0].spec
        self._named, self._shape = (spec.name, spec.datatype.wire_name), spec.shape
        self._alone = (*self._named, [1, *spec.shape])
        wanted = caller_inputs_of(schema).alone(spec.name)
        assert wanted is not None
        self._wanted, self._width = wanted, len(schema.features)
        one, several, rows = _kinds(schema.decoder.row_type, len(schema.features))
        self._infer = msgspec.json.Decoder(one).decode
        self._infer_several = None if schema.decoder.floats is None else msgspec.json.Decoder(several).decode
        self._rows = msgspec.json.Decoder(rows).decode

    def infer(self, head: bytes, content: bytes | None) -> TypedInfer | None:
        """Read an infer call: its JSON, and what comes behind that."""
        if b"\\" in head or not head.isascii():
            return None
        try:
            found, rows = self._infer_rows(head, content)
        except UNREADABLE:
            return None
        if rows is None or not self._is_whole(found.inputs[0], len(rows), content):
            return None
        keys = (5 if content is None else 6) + (found.id is not UNSET)
        whose, binary, parameters = UNSAID, False, found.parameters
        if parameters is not UNSET:
            keys += 1 + _count(parameters)
            whose, binary = _whose(parameters), parameters.binary_data_output is True
        outputs: tuple[WantedOutput, ...] | None = ()
        if found.outputs is not UNSET:
            keys += 1 + sum(1 if one.parameters is UNSET else 3 for one in found.outputs)
            outputs = _outputs_of(found.outputs, binary=binary)
        if head.count(b":") != keys or outputs is None:
            return None
        return TypedInfer(rows, whose, None if found.id is UNSET else found.id, outputs, binary)

    def _is_whole(self, tensor: Any, rows: int, content: bytes | None) -> bool:
        """Whether a tensor is the version's own with so many rows, and says rightly how many bytes it has."""
        name, datatype, shape, _, more = astuple(tensor)
        fitting = self._alone if rows == 1 else (*self._named, [rows, *self._shape])
        if (name, datatype, shape) != fitting or not 1 <= rows <= MAX_ROWS:
            return False
        return more is UNSET if content is None else more is not UNSET and more.binary_data_size == len(content)

    def _infer_rows(self, head: bytes, content: bytes | None) -> tuple[Any, Sequence[bytes] | None]:
        """Return an infer call's JSON, and its rows; ``None`` where these are no good ones.

        Raises one of :data:`UNREADABLE`.
        """
        decoder = self._decoder
        try:
            found = self._infer(head)
        except UNREADABLE:
            if self._infer_several is None or decoder.floats is None:
                raise
            found = self._infer_several(head)
            return found, decoder.floats.packed(found.inputs[0].data) if content is None else None
        values = found.inputs[0].data
        if (values is UNSET) is (content is None):
            return found, None
        return found, (decoder.pack(*astuple(values)),) if content is None else decoder.rows_in(content)

    def rows(self, body: bytes) -> TypedRows | None:
        """Read rows that are lists."""
        if b"\\" in body or not body.isascii():
            return None
        try:
            listed, entity_id, named, signature, parameters = astuple(self._rows(body))
            pack = self._decoder.pack
            rows: Sequence[bytes]
            rows = (pack(*astuple(listed[0])),) if len(listed) == 1 else [pack(*astuple(row)) for row in listed]
        except UNREADABLE:
            return None
        entity = None if entity_id is UNSET else Named(entity_id, "the body", "/entity_id")
        category = None if named is UNSET else Named(named, "the body", "/category")
        keys = 1 + (entity is not None) + (category is not None) + (signature is not UNSET)
        if parameters is not UNSET:
            keys += 1 + _count(parameters)
            by_parameters = _whose(parameters)
            entity, category = entity or by_parameters.entity, category or by_parameters.category
        if body.count(b":") != keys:
            return None
        whose = Whose(None, None, entity, category)
        return TypedRows(rows, whose, None if signature is UNSET else signature)

    def request(
        self, rows: Sequence[bytes], whose: Whose, place_of: PlaceOf, reread: Callable[[], FeatureRows]
    ) -> CallerRequest:
        """Return rows as a request.

        Args:
            rows: Packed.
            whose: What the body says of that.
            place_of: Says where elements stand.
            reread: Reads their features by the general reader, once something asks for them.
        """
        count = len(rows)
        packed = PackedRows(self._decoder, rows)
        return CallerRequest(RowsOnDemand(count, reread), whose, self._wanted, place_of, count * self._width, packed)

    def place_of(self, row: int, name: str | None, element: int) -> str:
        """Return where an element of an infer call's row stands."""
        return "/inputs" if name is None else f"/inputs/0/data/{row * self._width + element}"


@lru_cache(maxsize=1_024)
def typed_bodies_of(schema: InputSchema) -> TypedBodies | None:
    """Return what reads plain bodies of a version, if its inputs are such."""
    decoder = schema.decoder
    if decoder is None or not decoder.takes_rows or not schema.batch:
        return None
    spec = schema.packed[0].spec
    is_list = spec.shape == (len(schema.features),) and len(schema.features) > 1
    return TypedBodies(schema) if is_list and spec.name not in (ENTITY_ID, CATEGORY) else None


def _kinds(row: Any, features: int) -> tuple[Any, Any, Any]:
    """Return the types of an infer call with one row and of one with several, and of rows as lists."""
    parameters = ("parameters", _Parameters | UnsetType, UNSET)
    texts: list[Any] = [(name, str | UnsetType, UNSET) for name in (ENTITY_ID, CATEGORY, "signature_name")]
    several = Annotated[list[row], msgspec.Meta(min_length=1, max_length=MAX_ROWS)]
    rows = [("instances", several), *texts, parameters]
    flat = Annotated[list[float], msgspec.Meta(min_length=1, max_length=MAX_ROWS * features)]
    return (
        _infer_with(row | UnsetType, UNSET),
        _infer_with(flat),
        msgspec.defstruct("Rows", rows, forbid_unknown_fields=True, gc=False),
    )


def _infer_with(*data: Any) -> Any:
    """Return the type of an infer call whose elements are of a type; a second argument stands for missing ones."""
    text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
    tensor: list[Any] = [("name", str), ("datatype", str), ("shape", list[int]), ("data", *data)]
    tensor.append(("parameters", _TensorParameters | UnsetType, UNSET))
    one = msgspec.defstruct("Tensor", tensor, forbid_unknown_fields=True, gc=False)
    alone = Annotated[list[one], msgspec.Meta(min_length=1, max_length=1)]  # type: ignore[valid-type]  # made here
    parameters = ("parameters", _Parameters | UnsetType, UNSET)
    outputs = ("outputs", list[_Output] | UnsetType, UNSET)
    infer: list[Any] = [("inputs", alone), ("id", text | UnsetType, UNSET), parameters, outputs]
    return msgspec.defstruct("Infer", infer, forbid_unknown_fields=True, gc=False)


def _count(parameters: _Parameters) -> int:
    """Return how many keys there are: as many colons as keys, and none is repeated."""
    entity_id, category, binary = astuple(parameters)
    return (entity_id is not UNSET) + (category is not UNSET) + (binary is not UNSET)


def _outputs_of(listed: Sequence[_Output], *, binary: bool) -> tuple[WantedOutput, ...] | None:
    """Return the outputs that a caller names; ``None`` where one is named twice."""
    found = tuple(
        WantedOutput(one.name, binary if one.parameters is UNSET else one.parameters.binary_data) for one in listed
    )
    return found if len({one.name for one in found}) == len(found) else None


def _whose(parameters: _Parameters) -> Whose:
    """Return whose call it is by its parameters."""
    if parameters.entity_id is UNSET and parameters.category is UNSET:
        return UNSAID
    entity = _in_parameters(parameters.entity_id, "/parameters/entity_id")
    return Whose(None, None, entity, _in_parameters(parameters.category, "/parameters/category"))


def _in_parameters(value: str | UnsetType, pointer: str) -> Named | None:
    return None if value is UNSET else Named(value, "parameters", pointer)
