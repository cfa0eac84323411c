"""MLflow's scoring server and SageMaker's containers: ``/invocations``, as JSON or as CSV."""

import csv
import re
from collections.abc import Iterable, Mapping
from functools import partial
from io import StringIO
from itertools import islice
from math import prod
from typing import Any
from urllib.parse import quote

import orjson

from understudy.core.requests.caller_entity import CATEGORY, ENTITY_ID
from understudy.core.requests.invocations import CSV_FORM, read_csv, read_invocation
from understudy.core.requests.strict_json import parse
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.core.schema.tensors import Datatype
from understudy.entrypoints.proxy.dialects.catalogue import CHALLENGERS_LABEL, CHAMPIONS_LABELS
from understudy.entrypoints.proxy.dialects.dialect import (
    INLINE_ELEMENTS,
    Answered,
    Output,
    Reading,
    Target,
    Worded,
    is_short_json,
)
from understudy.entrypoints.proxy.dialects.kserve_v1 import values_text
from understudy.entrypoints.proxy.messages.headers import CATEGORY_HEADER, ENTITY_HEADER, HeaderFields
from understudy.entrypoints.proxy.messages.reply import JSON, Header
from understudy.errors import HeaderInvalid, MalformedBody, PolicyNotLoaded, UnknownModel

TARGET_MODEL = b"x-amzn-sagemaker-target-model"
TARGET_VARIANT = b"x-amzn-sagemaker-target-variant"
ATTRIBUTES = b"x-amzn-sagemaker-custom-attributes"
INVOKED_VARIANT = b"x-amzn-invoked-production-variant"
TOKEN, SIGNED = b"x-amz-security-token", b"AWS4-HMAC-"
ONLY_VARIANT = "AllTraffic"
"""SageMaker's name of the variant of an endpoint that has one."""
CSV: Header = (b"content-type", b"text/csv; charset=utf-8")
_NEXT_ATTRIBUTE = re.compile(rb"[;,](?=\s*[\w.-]+\s*=)")
"""What parts attributes; another comma belongs to a value, as in an entity's name."""
_HEADERS = {ENTITY_ID: ENTITY_HEADER, CATEGORY: CATEGORY_HEADER}


class Invocations:
    """``POST /invocations``."""

    name = "invocations"

    def is_short(self, body: bytes, fields: Mapping[bytes, bytes]) -> bool:
        """See :class:`.Dialect`."""
        del fields
        return is_short_json(body) and body.count(b"\n") < INLINE_ELEMENTS  # each line of CSV has an element more

    def read(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        """See :class:`.Dialect`."""
        kind, parameters = media_type(fields.get(b"content-type", b"application/json"))
        word = partial(_worded, as_csv=_wants_csv(fields))
        if kind == "text/csv":
            has_header = {"present": True, "absent": False}.get(parameters.get("header", ""))
            return Reading(read_csv(_text_of(body), version.input_schema, has_header=has_header), word)
        if kind != "application/json":
            raise HeaderInvalid("content-type: expected application/json or text/csv")
        return Reading(read_invocation(parse(body), version.input_schema), word)


def media_type(value: bytes) -> tuple[str, dict[str, str]]:
    """Return a media type in lower case, and its parameters."""
    kind, *rest = value.decode("latin-1").lower().split(";")
    pairs = (one.partition("=") for one in rest)
    return kind.strip(), {name.strip(): text.strip().strip('"') for name, _, text in pairs}


def target_of(
    fields: HeaderFields,
    named: str | None,
    default: str | None,
    snapshot: PolicySnapshot | None,
    permitted: frozenset[str] | None,
) -> Target:
    """Return whose answer a call asks for: by SageMaker's headers, its path, the setting, or as the only model.

    Args:
        fields: Its headers.
        named: The model that its path names.
        default: What the operator set.
        snapshot: The policies of this moment.
        permitted: The models that the caller may call; ``None``: all of them.

    Raises:
        PolicyNotLoaded: Only the policies could tell, and there are none yet.
        UnknownModel: Nothing names one, and there are several, or none.
    """
    model_name = _text_at(fields, TARGET_MODEL) or named or default or _only_model(snapshot, permitted)
    variant = _text_at(fields, TARGET_VARIANT)
    if variant is None or variant == ONLY_VARIANT:
        return Target(model_name)
    is_label = variant in CHAMPIONS_LABELS or variant == CHALLENGERS_LABEL
    return Target(model_name, label=variant) if is_label else Target(model_name, variant)


def own_headers(headers: Iterable[Header]) -> list[Header]:
    """Return a call's headers, with what SageMaker's clients say in theirs as our own: entity, category and key.

    What AWS's clients sign is not verified, and is no key: one comes as their session token, which they send as it is.
    AWS's own tokens have no dot, as our keys have.

    Raises:
        HeaderInvalid: Our own headers say something else.
    """
    fields = dict(headers)
    for pair in _NEXT_ATTRIBUTE.split(fields.get(ATTRIBUTES, b"")):
        name, _, value = pair.strip(b" \t;,").partition(b"=")
        header = _HEADERS.get(name.decode("latin-1").strip())
        if header is None:
            continue
        bare = value.strip()
        if fields.get(header, bare) != bare:
            raise HeaderInvalid(f"{ATTRIBUTES.decode()}: {header.decode()} says something else")
        fields[header] = bare
    if fields.get(b"authorization", b"").startswith(SIGNED):
        del fields[b"authorization"]
        token = fields.get(TOKEN, b"")
        if b"." in token:
            fields[b"authorization"] = b"Bearer " + token
    return list(fields.items())


def _only_model(snapshot: PolicySnapshot | None, permitted: frozenset[str] | None) -> str:
    if snapshot is None:
        raise PolicyNotLoaded
    known = (name for name in snapshot.policies if permitted is None or name in permitted)
    names = list(islice(known, 2))
    if len(names) != 1:
        raise UnknownModel(
            "the path names no model, and there is not exactly one",
            hint="Call /v1/models/{model}/invocations, or set UNDERSTUDY_DEFAULT_MODEL.",
        )
    return names[0]


def _text_at(fields: HeaderFields, name: bytes) -> str | None:
    try:
        return fields[name].decode().strip() or None if name in fields else None
    except UnicodeDecodeError:
        raise HeaderInvalid(f"{name.decode()}: is not UTF-8") from None


def _text_of(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise MalformedBody(f"the CSV is not UTF-8 (byte {problem.start})", hint=CSV_FORM) from None


def _wants_csv(fields: HeaderFields) -> bool:
    """Whether the first kind of answer that a caller accepts is CSV."""
    return media_type(fields.get(b"accept", b"").partition(b",")[0])[0] == "text/csv"


def _worded(answered: Answered, *, as_csv: bool) -> Worded:
    output, rows = answered.output, len(answered.calls)
    headers = [(INVOKED_VARIANT, quote(answered.version).encode())] if answered.names_version else []
    if as_csv:
        return Worded([CSV, *headers], _csv_of(output, rows))
    shape = (rows,) if prod(output.row_shape) == 1 else (rows, *output.row_shape)
    return Worded([JSON, *headers], b'{"predictions":%b}' % values_text(output, shape))


def _csv_of(output: Output, rows: int) -> bytes:
    """Return a line for each row; a number stands there as in JSON, a float32 in its shortest form."""
    values: Any = output.array((rows, prod(output.row_shape)))
    if output.datatype is not Datatype.BYTES:
        return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)[2:-2].replace(b"],[", b"\n") + b"\n"
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(values)
    return text.getvalue().encode()
