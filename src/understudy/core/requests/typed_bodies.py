"""Bodies of other protocols in their plainest form, read in one pass by types, as our own form is.

That is one row of the version's one tensor in the Open Inference Protocol, flat or as bytes, and lists in KServe V1.
What is not accepted here goes to the general readers, which alone refuse; what is accepted they read alike, which a
property test compares.

Source:
    :class:`understudy.core.schema.typed_decoder.TypedDecoder`, for what one pass saves.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from understudy.core.requests.caller_entity import CATEGORY, ENTITY_ID, UNSAID, Named, Whose
from understudy.core.requests.caller_request import CallerRequest, PackedRows, PlaceOf, RowsOnDemand
from understudy.core.requests.infer_call import MAX_TEXT, WantedOutput
from understudy.core.requests.tensor_inputs import MAX_ROWS, caller_inputs_of
from understudy.core.schema.schema import InputSchema
from understudy.core.schema.typed_decoder import UNREADABLE


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


class TypedInfer(NamedTuple):
    """What an infer call says beside its row."""

    row: bytes
    whose: Whose
    id: str | None
    outputs: tuple[WantedOutput, ...]
    binary: bool


class TypedRows(NamedTuple):
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
        self._schema, self._decoder = schema, schema.decoder
        spec = schema.packed[0].spec
        self._named = (spec.name, spec.datatype.wire_name, [1, *spec.shape])
        self._infer, self._rows = (msgspec.json.Decoder(kind).decode for kind in _kinds(schema.decoder.row_type))

    def infer(self, head: bytes, content: bytes | None) -> TypedInfer | None:
        """Read an infer call of one row: its JSON, and what comes behind that."""
        if b"\\" in head or not head.isascii():
            return None
        try:
            found = self._infer(head)
            name, datatype, shape, values, more = astuple(found.inputs[0])
            row = self._decoder.pack(*astuple(values)) if values is not UNSET else content
        except UNREADABLE:
            return None
        keys = 5 + (found.id is not UNSET)
        if content is not None:
            keys += 1
            is_whole = more is not UNSET and more.binary_data_size == len(content)
            if values is not UNSET or not is_whole or not self._decoder.is_good(content):
                return None
        elif more is not UNSET or row is None:
            return None
        whose, binary, parameters = UNSAID, False, found.parameters
        if parameters is not UNSET:
            keys += 1 + _count(parameters)
            whose, binary = _whose((), parameters), parameters.binary_data_output is True
        outputs: tuple[WantedOutput, ...] | None = ()
        if found.outputs is not UNSET:
            keys += 1 + sum(1 if one.parameters is UNSET else 3 for one in found.outputs)
            outputs = _outputs_of(found.outputs, binary=binary)
        if (name, datatype, shape) != self._named or head.count(b":") != keys or outputs is None:
            return None
        assert row is not None
        return TypedInfer(row, whose, None if found.id is UNSET else found.id, outputs, binary)

    def rows(self, body: bytes) -> TypedRows | None:
        """Read rows that are lists."""
        if b"\\" in body or not body.isascii():
            return None
        try:
            found = self._rows(body)
            pack = self._decoder.pack
            rows = [pack(*astuple(row)) for row in found.instances]
        except UNREADABLE:
            return None
        said = (found.entity_id, found.category)
        parameters, keys = found.parameters, 1 + sum(one is not UNSET for one in (*said, found.signature_name))
        if parameters is not UNSET:
            keys += 1 + _count(parameters)
        if body.count(b":") != keys:
            return None
        whose = UNSAID if said == _SAYS_NOTHING and parameters is UNSET else _whose(said, parameters)
        return TypedRows(rows, whose, None if found.signature_name is UNSET else found.signature_name)

    def request(
        self, rows: Sequence[bytes], whose: Whose, place_of: PlaceOf, reread: Callable[[], CallerRequest]
    ) -> CallerRequest:
        """Return rows as a request.

        Args:
            rows: Packed.
            whose: What the body says of that.
            place_of: Says where elements stand.
            reread: Reads the body by the general reader, once something asks for features.
        """
        wanted = caller_inputs_of(self._schema).alone(self._named[0])
        assert wanted is not None
        on_demand = RowsOnDemand(len(rows), lambda: reread().rows)
        elements = len(rows) * len(self._schema.features)
        return CallerRequest(on_demand, whose, wanted, place_of, elements, PackedRows(self._decoder, rows))


@lru_cache(maxsize=1_024)
def typed_bodies_of(schema: InputSchema) -> TypedBodies | None:
    """Return what reads plain bodies of a version, if its inputs are such."""
    decoder = schema.decoder
    if decoder is None or not decoder.takes_rows or not schema.batch:
        return None
    spec = schema.packed[0].spec
    is_list = spec.shape == (len(schema.features),) and len(schema.features) > 1
    return TypedBodies(schema) if is_list and spec.name not in (ENTITY_ID, CATEGORY) else None


_SAYS_NOTHING = (UNSET, UNSET)


def _kinds(row: Any) -> tuple[Any, Any]:
    """Return the types of an infer call and of rows as lists."""
    text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
    tensor: list[Any] = [("name", str), ("datatype", str), ("shape", list[int]), ("data", row | UnsetType, UNSET)]
    tensor.append(("parameters", _TensorParameters | UnsetType, UNSET))
    one = msgspec.defstruct("Tensor", tensor, forbid_unknown_fields=True, gc=False)
    parameters = ("parameters", _Parameters | UnsetType, UNSET)
    alone = Annotated[list[one], msgspec.Meta(min_length=1, max_length=1)]  # type: ignore[valid-type]  # made here
    outputs = ("outputs", list[_Output] | UnsetType, UNSET)
    infer: list[Any] = [("inputs", alone), ("id", text | UnsetType, UNSET), parameters, outputs]
    texts: list[Any] = [(name, str | UnsetType, UNSET) for name in (ENTITY_ID, CATEGORY, "signature_name")]
    several = Annotated[list[row], msgspec.Meta(min_length=1, max_length=MAX_ROWS)]
    rows = [("instances", several), *texts, parameters]
    return (
        msgspec.defstruct("Infer", infer, forbid_unknown_fields=True, gc=False),
        msgspec.defstruct("Rows", rows, forbid_unknown_fields=True, gc=False),
    )


def _count(parameters: _Parameters) -> int:
    """Return how many keys there are: as many colons as keys, and none is repeated."""
    return sum(one is not UNSET for one in astuple(parameters))


def _outputs_of(listed: Sequence[_Output], *, binary: bool) -> tuple[WantedOutput, ...] | None:
    """Return the outputs that a caller names; ``None`` where one is named twice."""
    found = tuple(
        WantedOutput(one.name, binary if one.parameters is UNSET else one.parameters.binary_data) for one in listed
    )
    return found if len({one.name for one in found}) == len(found) else None


def _whose(said: Sequence[Any], parameters: Any) -> Whose:
    """Return whose call it is, by the body itself or else by its parameters."""
    named: list[Named | None] = []
    for place, name in enumerate((ENTITY_ID, CATEGORY)):
        of_body = said[place] if said else UNSET
        of_parameters = UNSET if parameters is UNSET else getattr(parameters, name)
        if of_body is not UNSET:
            named.append(Named(of_body, "the body", f"/{name}"))
        elif of_parameters is not UNSET:
            named.append(Named(of_parameters, "parameters", f"/parameters/{name}"))
        else:
            named.append(None)
    return Whose(None, None, *named)
