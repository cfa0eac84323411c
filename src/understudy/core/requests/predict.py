"""Predict requests: one, or a batch of them, parsed from a JSON body."""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from hashlib import sha256
from itertools import islice
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol

from understudy.core.requests.strict_json import parse
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.features import MAX_NAME_SHOWN
from understudy.core.schema.schema import Assembled, single_values
from understudy.core.schema.typed_decoder import MAX_ENTITY_ID, UNREADABLE, TypedDecoder
from understudy.core.value import Slotted
from understudy.errors import (
    MAX_VIOLATIONS,
    BatchInvalid,
    EntityIdInvalid,
    InputInvalid,
    MalformedBody,
    UnderstudyError,
    Violation,
)

MAX_BATCH = 256
LONG_BYTES = 262_144
"""Of a body; to find all that is wrong with a longer one may take more than a hundred milliseconds."""
_FIELDS = frozenset({"entity_id", "inputs", "category"})
_BACKSLASH = ord("\\")
"""A byte that is looked for as a number is found in a tenth of the time of one that is looked for as bytes."""


class PredictRequest(NamedTuple):
    """A caller's request: the entity, its inputs, and the category that may override the bucket."""

    entity_id: str
    inputs: Mapping[str, Any]
    category: str | None = None
    is_drawn: bool = False
    """Whether the entity was made for this call, since its caller named none: no store has it, and it never returns."""

    def is_large(self, _version: ModelVersion) -> bool:
        """Whether assembling takes so long that it belongs into a thread; what was read in one pass never does."""
        return False

    def assemble(self, version: ModelVersion, stored: Mapping[str, Any] | None) -> Assembled:
        """Return the version's tensors; raises as :meth:`understudy.core.schema.schema.InputSchema.assemble`."""
        return version.input_schema.assemble(self.inputs, stored)

    def logged_values(self, version: ModelVersion, stored: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the inputs that may be logged."""
        return single_values(version.input_schema.features, self.inputs, stored)


class LongRequest(PredictRequest):
    """A request, or a member of a batch, whose body was long: what is wrong with it is found in a thread."""

    __slots__ = ()

    def is_large(self, _version: ModelVersion) -> bool:
        """See :meth:`PredictRequest.is_large`."""
        return True


class TypedRequest(Slotted, gc=False):
    """A predict request that the typed decoder of a version's inputs read in one pass.

    Versions with the same inputs, and so the same ``decoder``, take it ``assembled`` as it is; for any other the body
    is parsed again.
    """

    is_drawn: ClassVar[bool] = False
    entity_id: str
    category: str | None
    assembled: Assembled
    decoder: TypedDecoder
    _body: bytes
    _inputs: Mapping[str, Any] | None = None

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The caller's inputs."""
        if self._inputs is None:
            self._inputs = parse_predict(self._body).inputs
        return self._inputs

    def is_large(self, _version: ModelVersion) -> bool:
        """See :meth:`PredictRequest.is_large`."""
        return False

    def assemble(self, version: ModelVersion, stored: Mapping[str, Any] | None) -> Assembled:
        """See :meth:`PredictRequest.assemble`."""
        schema = version.input_schema
        return self.assembled if schema.decoder is self.decoder else schema.assemble(self.inputs, stored)

    def logged_values(self, version: ModelVersion, stored: Mapping[str, Any] | None) -> dict[str, Any]:
        """See :meth:`PredictRequest.logged_values`."""
        return single_values(version.input_schema.features, self.inputs, stored)


class FeaturesOf(Protocol):
    """The features of rows by their places."""

    def __getitem__(self, place: int, /) -> Mapping[str, Any]:
        """Return one row's."""


class FeatureRows(FeaturesOf, Protocol):
    """The features of a call's rows."""

    def __len__(self) -> int:
        """How many rows there are."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Return each row's, in order."""


class TypedRow(TypedRequest, gc=False):
    """A row of a call in another protocol whose values the typed decoder took; its features are made when asked for."""

    _rows: FeaturesOf = ()
    _row: int = 0

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The caller's inputs."""
        return self._rows[self._row]


class DrawnTypedRow(TypedRow, gc=False):
    """The same of a caller who named no entity."""

    is_drawn: ClassVar[bool] = True


def only_row(
    entity_id: str,
    category: str | None,
    content: bytes,
    decoder: TypedDecoder,
    features: FeaturesOf,
    *,
    kind: type[TypedRow] = TypedRow,
) -> TypedRow:
    """Return the request of a call's only row.

    Args:
        entity_id: Whose it is.
        category: Of the call.
        content: What ``decoder`` packed.
        decoder: Of the version's inputs.
        features: Has the row's in the first place.
        kind: Says whether the entity was drawn.
    """
    # The hash is input_hash_of(), as read_predict() makes it.
    assembled = Assembled((content,), sha256(decoder.hashed_length + content).hexdigest(), ())
    return kind(entity_id, category, assembled, decoder, b"", None, features)


def read_predict(body: bytes, decoder: TypedDecoder | None) -> PredictRequest | TypedRequest:
    """Read the body of one predict call, in one pass if the decoder accepts it; raises as :func:`parse_predict`."""
    if decoder is None:
        return parse_predict(body)
    # As many colons as keys: no key is repeated, no string has a colon. Without a backslash no string has U+0000.
    more_colons = body.count(b":") - decoder.colons
    if more_colons not in (0, 1) or _BACKSLASH in body or not body.isascii():
        return parse_predict(body)
    try:
        found = decoder.decode(body)
        packed = decoder.pack(*decoder.values(found.inputs))
    except UNREADABLE:
        return parse_predict(body)
    category = found.category
    if (category is None) is (more_colons == 1):
        return parse_predict(body)
    # The hash is the inputs', whichever version is asked: core.schema.schema.input_hash_of() of one tensor.
    assembled = Assembled((packed,), sha256(decoder.hashed_length + packed).hexdigest(), ())
    return TypedRequest(found.entity_id, category, assembled, decoder, body)


def parse_predict(body: bytes, read: Callable[[bytes], Any] = parse) -> PredictRequest:
    """Read the body of one predict call, its JSON by ``read``.

    Raises:
        MalformedBody: If it is not JSON, or not an object.
        EntityIdInvalid: If the entity id is missing, empty, too long or no string.
        InputInvalid: If another field is unknown or of a wrong type.
    """
    return predict_request_of(read(body), _kind_of(body))


def parse_predict_batch(body: bytes) -> list[PredictRequest | UnderstudyError]:
    """Read the body of a batch; a member that cannot be read is its error, the others are kept.

    Raises:
        MalformedBody: If the body is not JSON.
        BatchInvalid: If it holds no list of 1 to :data:`MAX_BATCH` members.
    """
    document = parse(body)
    if not isinstance(document, dict) or not isinstance(document.get("entities"), list):
        raise BatchInvalid('expected an object with "entities": a list of predict requests')
    extra = sorted(set(document) - {"entities"})
    if extra:
        raise BatchInvalid('the only field of a batch is "entities"')
    members = document["entities"]
    if not 1 <= len(members) <= MAX_BATCH:
        raise BatchInvalid(f"a batch has 1 to {MAX_BATCH} entities, this one {len(members)}")
    kind = _kind_of(body)
    return [_member_of(member, kind) for member in members]


def _kind_of(body: bytes) -> type[PredictRequest]:
    return PredictRequest if len(body) <= LONG_BYTES else LongRequest


def _member_of(member: Any, kind: type[PredictRequest]) -> PredictRequest | UnderstudyError:
    try:
        return predict_request_of(member, kind)
    except UnderstudyError as problem:
        return problem.as_value()


def predict_request_of(document: Any, kind: type[PredictRequest] = PredictRequest) -> PredictRequest:
    """Return the request in a parsed document, as a ``kind`` of it; raises as :func:`parse_predict`."""
    if not isinstance(document, dict):
        raise MalformedBody("expected a JSON object: line 1, column 1 (byte 0)")
    entity_id = document.get("entity_id")
    inputs = document.get("inputs")
    category = document.get("category")
    if (
        type(entity_id) is not str
        or not 0 < len(entity_id) <= MAX_ENTITY_ID
        or type(inputs) is not dict
        or not (category is None or (type(category) is str and len(category) <= MAX_ENTITY_ID))
        or not document.keys() <= _FIELDS
    ):
        refuse(document, envelope_violations(document, _FIELDS, "a predict request"))
    return kind(entity_id, inputs, category)


def envelope_violations(document: dict[str, Any], fields: AbstractSet[str], kind: str) -> list[Violation]:
    """Return all problems of entity id, inputs and category, and of the fields' names."""
    entity_problem = _entity_problem(document)
    violations = [Violation("/entity_id", entity_problem)] if entity_problem else []
    if "inputs" not in document:
        violations.append(Violation("/inputs", "missing; expected an object of features"))
    elif not isinstance(document["inputs"], dict):
        violations.append(Violation("/inputs", "expected an object of features"))
    category = document.get("category")
    if category is not None and not (isinstance(category, str) and len(category) <= MAX_ENTITY_ID):
        violations.append(Violation("/category", f"expected a string of at most {MAX_ENTITY_ID} characters"))
    unknown = (name[:MAX_NAME_SHOWN] for name in document if name not in fields)
    violations.extend(
        Violation("/" + name.replace("~", "~0").replace("/", "~1"), f"is not a field of {kind}")
        for name in islice(unknown, MAX_VIOLATIONS)
    )
    return violations


def refuse(document: dict[str, Any], violations: list[Violation]) -> NoReturn:
    """Raise an error with these violations, the entity id's first."""
    raise (EntityIdInvalid if _entity_problem(document) else InputInvalid).naming(*violations)


def _entity_problem(document: dict[str, Any]) -> str | None:
    entity_id = document.get("entity_id")
    if entity_id is None:
        return "missing"
    if not isinstance(entity_id, str):
        return "expected a string"
    if not entity_id:
        return "is empty"
    if len(entity_id) > MAX_ENTITY_ID:
        return f"is longer than {MAX_ENTITY_ID} characters"
    return None
