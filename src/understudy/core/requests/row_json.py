"""Predict calls of KServe V1 and of TensorFlow Serving's REST API, which are one grammar.

``{"instances": [...]}`` holds rows: each is the value of the version's one tensor, an object of tensors, or an object
of features. ``{"inputs": ...}`` holds columns: a value, or an object of values, whose first dimension is the rows'.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from understudy.core.requests.caller_entity import CATEGORY, ENTITY_ID, Named, Whose
from understudy.core.requests.caller_request import (
    CallerRequest,
    PackedRows,
    RowsOnDemand,
    refuse_inputs,
    require_rows,
)
from understudy.core.requests.predict import FeatureRows
from understudy.core.requests.strict_json import parse
from understudy.core.requests.tensor_inputs import (
    LONG_ELEMENTS,
    CallerInputs,
    NamedInput,
    caller_inputs_of,
    shown,
)
from understudy.core.requests.typed_bodies import TypedRows, typed_bodies_of
from understudy.core.schema.features import MAX_NAME_SHOWN
from understudy.core.schema.schema import InputSchema
from understudy.core.schema.tensors import Datatype, shape_text
from understudy.core.schema.typed_decoder import UNREADABLE
from understudy.core.value import Value
from understudy.errors import InputInvalid, MalformedBody, Violation

FORMS = 'Send {"instances": [row, …]} or {"inputs": {name: column, …}}.'
_FIELDS = frozenset({"instances", "inputs", "signature_name", "parameters", ENTITY_ID, CATEGORY})
EXAMPLES_FORM = 'Send {"examples": [{feature: value, …}, …]}, with "context": {feature: value} of all.'
_EXAMPLES_FIELDS = frozenset({"examples", "context", "signature_name", "parameters", ENTITY_ID, CATEGORY})
MAX_SHARED_TEXT = 1_048_576
"""Characters of a context, counted for each example: each has its own copy on the way to its model server."""
_BASE64 = frozenset({"b64"})


class RowCall(Value, frozen=True, gc=False):
    """A body, read: its request, how it wrote its rows, and the signature that it names."""

    request: CallerRequest
    is_columnar: bool
    signature: str | None


def read_row_body(body: bytes, schema: InputSchema) -> RowCall:
    """Read a whole body; raises as :func:`read_row_json`, and :class:`MalformedBody` where it is no JSON."""
    found = read_plain_rows(body, schema)
    return read_row_json(parse(body), schema) if found is None else row_call_of(found, body, schema)


def read_plain_rows(body: bytes, schema: InputSchema) -> TypedRows | None:
    """Read a body as :func:`read_row_body` does, in one pass; ``None`` of one that is not in the plainest form."""
    typed = typed_bodies_of(schema)
    return None if typed is None else typed.rows(body)


def row_call_of(found: TypedRows, body: bytes, schema: InputSchema) -> RowCall:
    """Return the call of a body that :func:`read_plain_rows` read."""
    typed = typed_bodies_of(schema)
    assert typed is not None

    def reread() -> FeatureRows:
        return read_row_json(parse(body), schema).request.rows

    return RowCall(typed.request(found.rows, found.whose, _place_in_list, reread), False, found.signature)


def _place_in_list(row: int, name: str | None, element: int) -> str:
    """Return where an element of a row that is a list stands."""
    return f"/instances/{row}" if name is None else f"/instances/{row}/{element}"


def read_row_json(document: Any, schema: InputSchema) -> RowCall:
    """Read a parsed body.

    Raises:
        MalformedBody: It is no object, or has not exactly one of ``instances`` and ``inputs``.
        BatchInvalid: It has no rows, or too many.
        InputInvalid: Values do not fit the inputs, or are named by nothing that the version has.
    """
    if not isinstance(document, dict):
        raise MalformedBody("expected a JSON object: line 1, column 1 (byte 0)", hint=FORMS)
    if ("instances" in document) == ("inputs" in document):
        raise MalformedBody("expected exactly one of instances and inputs", hint=FORMS)
    _refuse_unknown(document, _FIELDS)
    signature = _signature_of(document)
    is_columnar = "inputs" in document
    if is_columnar:
        return RowCall(read_columns(document, schema), is_columnar, signature)
    return RowCall(read_rows(document["instances"], document, schema, RowPlaces()), is_columnar, signature)


def read_examples(document: Any, schema: InputSchema) -> RowCall:
    """Read a parsed body of TensorFlow Serving's ``:classify`` and ``:regress``: rows of features, and what they share.

    Raises:
        MalformedBody: It is no object with ``examples``.
        BatchInvalid, InputInvalid: As :func:`read_row_json`.
    """
    if not isinstance(document, dict) or "examples" not in document:
        raise MalformedBody("expected a JSON object with examples", hint=EXAMPLES_FORM)
    _refuse_unknown(document, _EXAMPLES_FIELDS)
    examples, context = document["examples"], document.get("context", {})
    if not isinstance(context, dict):
        raise refuse_inputs("/context", "expected an object of features")
    if not isinstance(examples, list) or not all(isinstance(one, dict) for one in examples):
        raise refuse_inputs("/examples", "expected a list of objects of features")
    require_rows(len(examples), "/examples")
    _require_small(context, len(examples), caller_inputs_of(schema))
    rows = [{**context, **one} for one in examples]
    request = read_rows(rows, document, schema, _ExamplePlaces(examples))
    return RowCall(request, False, _signature_of(document))


class RowPlaces:
    """Where rows stand in a body, as pointers.

    Args:
        rows: The list of them.
    """

    def __init__(self, rows: str = "/instances") -> None:
        self.rows = rows

    def row(self, row: int) -> str:
        """Return where a row stands."""
        return f"{self.rows}/{row}"

    def member(self, row: int, name: str) -> str:
        """Return where a value of a row stands."""
        return f"{self.rows}/{row}/{_escaped(name)}"


class _ExamplePlaces(RowPlaces):
    """Where features of examples stand: in the example, or in the context of all."""

    def __init__(self, examples: Sequence[Mapping[str, Any]]) -> None:
        super().__init__("/examples")
        self._examples = examples

    def member(self, row: int, name: str) -> str:
        """See :class:`RowPlaces`."""
        return super().member(row, name) if name in self._examples[row] else f"/context/{_escaped(name)}"


def read_rows(
    rows: Any, document: Mapping[str, Any], schema: InputSchema, places: RowPlaces, *, parameters: str = "parameters"
) -> CallerRequest:
    """Read a list of rows.

    Args:
        rows: The list, as the caller sent it.
        document: What the body says beside it.
        schema: The version's.
        places: Where rows stand.
        parameters: The key of parameters in the body.

    Raises:
        BatchInvalid, InputInvalid: As :func:`read_row_json`.
    """
    if not isinstance(rows, list):
        raise refuse_inputs(places.rows, "expected a list of rows")
    require_rows(len(rows), places.rows)
    are_named = all(isinstance(one, dict) and one.keys() != _BASE64 for one in rows)
    taken = _Taken(schema)
    single = None if are_named else _only_input(taken.inputs, places.row(0))
    members = [taken.from_row(one) if single is None else {single: one} for one in rows]

    def features() -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        for row, one in enumerate(members):
            at = {name: places.row(row) if single else places.member(row, name) for name in one}
            found.append(taken.row_of(one, taken.named(one), at))
        return found

    packed = _packed(members, single, schema)
    if packed is None:
        found: FeatureRows = features()
    else:
        taken.named(members[0])
        taken.elements, found = len(rows) * len(schema.features), RowsOnDemand(len(rows), features)

    def place_of(row: int, name: str | None, element: int) -> str:
        base = places.row(row) if single or name is None else places.member(row, name)
        return base if name is None else base + _indices(taken.wanted[name], element)

    whose = taken.whose(document, places.rows, parameters)
    return CallerRequest(found, whose, taken.wanted, place_of, taken.elements, packed)


def _packed(members: Sequence[Mapping[str, Any]], single: str | None, schema: InputSchema) -> PackedRows | None:
    """Return rows as the version takes them; ``None`` where the features have to decide.

    Args:
        members: The rows, each by the names of its inputs.
        single: The one tensor whose value each row is; ``None``: rows are objects.
        schema: The version's.
    """
    decoder = schema.decoder
    if decoder is None or not decoder.takes_rows:
        return None
    try:
        if single is None:
            return PackedRows(decoder, [decoder.packed_inputs(one) for one in members])
        if schema.packed[0].spec.shape != (len(schema.features),):
            return None
        return PackedRows(decoder, [decoder.packed_row(one[single]) for one in members])
    except UNREADABLE:
        return None


def read_columns(document: Mapping[str, Any], schema: InputSchema, *, parameters: str = "parameters") -> CallerRequest:
    """Read the columns that a body has as ``inputs``; raises as :func:`read_rows`.

    Args:
        document: The body.
        schema: The version's.
        parameters: The key of parameters in the body.
    """
    columns = document["inputs"]
    taken = _Taken(schema)
    is_named = isinstance(columns, dict) and columns.keys() != _BASE64
    single = None if is_named else _only_input(taken.inputs, "/inputs")
    named = columns if single is None else {single: columns}
    if not schema.batch:
        named = {name: [value] for name, value in named.items()}
    short = next((name for name, column in named.items() if not isinstance(column, list)), None)
    if short is not None:
        raise refuse_inputs(f"/inputs/{_escaped(short)}", "expected a list with a value for each row")
    sizes = {len(column) for column in named.values()}
    if len(sizes) > 1:
        raise refuse_inputs("/inputs", f"the columns have {', '.join(map(str, sorted(sizes)[:8]))} rows")
    count = sizes.pop() if sizes else 0
    require_rows(count, "/inputs")
    base = {name: "/inputs" if single else f"/inputs/{_escaped(name)}" for name in named}
    rows: list[Mapping[str, Any]] = []
    for row in range(count):
        members = taken.from_row({name: column[row] for name, column in named.items()})
        wanted = taken.named(members)
        at = {name: f"{base[name]}/{row}" if schema.batch else base[name] for name in members}
        rows.append(taken.row_of(members, wanted, at))

    def place_of(row: int, name: str | None, element: int) -> str:
        if name is None:
            return "/inputs"
        column = f"{base[name]}/{row}" if schema.batch else base[name]
        return column + _indices(taken.wanted[name], element)

    whose = taken.whose(document, "/inputs", parameters)
    return CallerRequest(rows, whose, taken.wanted, place_of, taken.elements)


class _Taken:
    """What was taken from rows: their entities and categories, and what their names are."""

    def __init__(self, schema: InputSchema) -> None:
        self.inputs = caller_inputs_of(schema)
        self._entities: list[Any] = []
        self._categories: list[Any] = []
        self._known: dict[frozenset[str], dict[str, NamedInput]] = {}
        self.wanted: dict[str, NamedInput] = {}
        """Of all rows."""
        self.elements = 0
        self._rows = 0

    def from_row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row without what names its entity and its category, unless inputs of the version are called so."""
        self._rows += 1
        members = dict(row)
        for name, found in ((ENTITY_ID, self._entities), (CATEGORY, self._categories)):
            is_input = name in self.inputs
            if name in row and (name == ENTITY_ID or not is_input):
                found.append(row[name])
            if not is_input:
                members.pop(name, None)
        return members

    def named(self, members: Mapping[str, Any]) -> dict[str, NamedInput]:
        """Return what a row's names are; rows mostly have the same."""
        names = frozenset(members)
        wanted = self._known.get(names)
        if wanted is None:
            wanted = self._known[names] = self.inputs.named(names)
            self.wanted.update(wanted)
        return wanted

    def row_of(
        self, members: Mapping[str, Any], wanted: Mapping[str, NamedInput], places: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return the features of a row.

        Raises:
            InputInvalid: A name is no input of the version, or a value has not its shape.
        """
        row: dict[str, Any] = {}
        for name, value in members.items():
            one = wanted.get(name)
            if one is None:
                raise refuse_inputs(places[name], "is not an input of this version; leave it out")
            elements = _flattened(one, value, places[name])
            self.elements += len(elements)
            row.update(one.values_of(elements))
        return row

    def whose(self, document: Mapping[str, Any], rows: str, key: str) -> Whose:
        """Return what the body says of entities and categories.

        Args:
            document: The body.
            rows: Where its rows stand.
            key: That of its parameters.
        """
        parameters = document.get(key)
        if not isinstance(parameters, dict | None):
            raise refuse_inputs(f"/{key}", "expected an object")
        named: list[Named | None] = []
        for name in (ENTITY_ID, CATEGORY):
            of_body = Named(document[name], "the body", f"/{name}") if name in document else None
            if of_body is None and parameters is not None and name in parameters:
                of_body = Named(parameters[name], key, f"/{key}/{name}")
            named.append(of_body)
        entity, category = named
        by_row = (self._of_all(ENTITY_ID, self._entities, rows), self._of_all(CATEGORY, self._categories, rows))
        return Whose(*by_row, entity, category)

    def _of_all(self, name: str, found: Sequence[Any], rows: str) -> Sequence[Any] | None:
        if found and len(found) != self._rows:
            raise refuse_inputs(rows, f"{len(found)} of {self._rows} rows have {name!r}: all have it, or none")
        return found or None


def _require_small(context: Mapping[str, Any], rows: int, inputs: CallerInputs) -> None:
    """Refuse a context that is no input's, or that stands for more elements than a body may leave out."""
    unknown = next((name for name in context if name not in inputs and name not in (ENTITY_ID, CATEGORY)), None)
    if unknown is not None:
        pointer = f"/context/{_escaped(unknown[:MAX_NAME_SHOWN])}"
        raise refuse_inputs(pointer, "is not an input of this version; leave it out")
    if rows * sum(one.spec.size for one in inputs.named(context).values()) > LONG_ELEMENTS:
        raise refuse_inputs("/context", f"stands for more than {LONG_ELEMENTS:,} elements: send them in the examples")
    if rows * sum(map(_text_length, context.values())) > MAX_SHARED_TEXT:
        raise refuse_inputs(
            "/context", f"stands for more than {MAX_SHARED_TEXT:,} characters: send them in the examples"
        )


def _text_length(value: Any) -> int:
    """Return how many characters of text a value has; the parser bounds how deep it is."""
    if isinstance(value, list | dict):
        return sum(map(_text_length, value.values() if isinstance(value, dict) else value))
    return len(value) if isinstance(value, str) else 0


def _refuse_unknown(document: Mapping[str, Any], fields: frozenset[str]) -> None:
    unknown = next((name for name in document if name not in fields), None)
    if unknown is not None:
        raise refuse_inputs("/" + _escaped(unknown[:MAX_NAME_SHOWN]), "is not a field of this call; leave it out")


def _signature_of(document: Mapping[str, Any]) -> str | None:
    signature = document.get("signature_name")
    if not isinstance(signature, str | None):
        raise refuse_inputs("/signature_name", "expected a string")
    return signature


def _only_input(inputs: CallerInputs, place: str) -> str:
    """Return the name of the version's one tensor, whose value a row may be."""
    tensors = inputs.tensor_names
    if len(tensors) > 1:
        names = ", ".join(map(shown, tensors[:5]))
        raise refuse_inputs(place, f"expected an object: the version has {len(tensors)} inputs: {names}")
    return tensors[0]


def _flattened(wanted: NamedInput, value: Any, place: str) -> list[Any]:
    """Return one row of an input as a flat list."""
    spec = wanted.spec
    level = [_decoded(value, place) if isinstance(value, dict) else value]
    if spec.size == 1:  # a single value may stand in as many lists as its dimensions, or in one, or in none
        while isinstance(level[0], list) and len(level[0]) == 1:
            level = level[0]
        fits = not isinstance(level[0], list)
    else:
        fits = True
        for size in spec.shape:
            fits = fits and all(isinstance(one, list) and len(one) == size for one in level)
            if not fits:
                break
            level = [element for one in level for element in one]
    if not fits:
        what = "a single value" if spec.size == 1 else f"nested lists of shape {shape_text(spec.shape)}"
        raise InputInvalid.naming(Violation(place, f"expected {what}"))
    if spec.datatype is Datatype.BYTES:
        return [_decoded(one, place) if isinstance(one, dict) else one for one in level]
    return level


def _decoded(value: dict[str, Any], place: str) -> Any:
    """Return the text of ``{"b64": …}``."""
    encoded = value.get("b64")
    if len(value) != 1 or not isinstance(encoded, str):
        raise refuse_inputs(place, 'expected a value, or {"b64": text}')
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        raise refuse_inputs(place, "b64: expected Base64 of text in UTF-8") from None
    if "\x00" in text:  # the parser refuses it where it is written in JSON
        raise refuse_inputs(place, "b64: holds U+0000")
    return text


def _indices(wanted: NamedInput, element: int) -> str:
    """Return the rest of the pointer to an element of an input's row."""
    indices = ""
    if wanted.spec.size > 1:
        for size in reversed(wanted.spec.shape):
            element, index = divmod(element, size)
            indices = f"/{index}{indices}"
    return indices


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
