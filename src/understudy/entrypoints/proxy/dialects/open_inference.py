"""The Open Inference Protocol over REST, with binary tensor data: what Triton, MLServer and KServe V2 speak."""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import orjson

from understudy import __version__
from understudy.core.requests.infer_body import FRAMING, infer_call_of, read_any_infer, read_infer, read_plain_infer
from understudy.core.requests.infer_call import VERSION_OUTPUT, InferCall, WantedOutput, require_outputs
from understudy.core.requests.tensor_inputs import MAX_ROWS
from understudy.core.requests.typed_bodies import TypedInfer
from understudy.core.routing.policy import ModelVersion, ServingPolicy
from understudy.core.schema.codec import join_bytes_elements
from understudy.core.schema.row_output import RowOutput
from understudy.core.schema.tensors import Datatype
from understudy.entrypoints.proxy.dialects.dialect import (
    FLAT,
    INLINE_TENSOR_BYTES,
    UNNAMED_OUTPUT,
    Answered,
    Output,
    Reading,
    RowWords,
    Worded,
    is_short_json,
    output_names,
)
from understudy.entrypoints.proxy.messages.answers import literal
from understudy.entrypoints.proxy.messages.headers import TENSORS_AT_HEADER, content_length
from understudy.entrypoints.proxy.messages.reply import JSON_ALONE, JSON_LINES, Header
from understudy.errors import HeaderInvalid
from understudy.serving.call import Call

_BYTES = Datatype.BYTES
BINARY: Header = (b"content-type", b"application/octet-stream")
_BINARY_LINES = b"%b: %b\r\n%b: %%d\r\n" % (*BINARY, TENSORS_AT_HEADER)
EXTENSIONS = ("binary_tensor_data", "parameters", "model_configuration", "statistics")
MAX_IDS = 64
"""Prediction ids of rows that an answer names."""


class OpenInference:
    """``POST /v2/models/{model}/infer``."""

    name = "oip"

    def is_short(self, body: bytes, fields: Mapping[bytes, bytes]) -> bool:
        """See :class:`.Dialect`."""
        return len(body) <= INLINE_TENSOR_BYTES if TENSORS_AT_HEADER in fields else is_short_json(body)

    def read(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        """See :class:`.Dialect`."""
        return _read(read_infer(body, _header_length(fields), version.input_schema), version)

    def read_plain(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> TypedInfer | None:
        """See :class:`.PlainDialect`."""
        found = read_plain_infer(body, _header_length(fields), version.input_schema)
        if found is not None and found.outputs:
            require_outputs(found.outputs, version.model_name, output_names(version.output_schema))
        return found

    def reading_of(
        self, plain: TypedInfer, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion
    ) -> Reading:
        """See :class:`.PlainDialect`."""
        return _reading_of(infer_call_of(plain, body, _header_length(fields), version.input_schema))

    def word_row(self, plain: TypedInfer, call: Call, output: RowOutput, *, names_version: bool) -> RowWords | None:
        """See :class:`.PlainDialect`."""
        is_binary, version = plain.binary, call.version
        name = output.name or version.output_schema.tensor or UNNAMED_OUTPUT
        if plain.outputs:
            wanted = plain.outputs[0]
            if len(plain.outputs) > 1 or wanted.name != name:
                return None
            is_binary = wanted.binary
        who = (version.version, call.role) if names_version else (None, None)
        model_name, generation, datatype = version.model_name, call.policy.generation, output.datatype
        template = _template(model_name, *who, generation, name, datatype.wire_name, output.shape, is_binary)
        own_id, prediction_id = _id_text(plain.id), call.prediction_id.encode()
        if is_binary:
            text = template % (own_id, prediction_id, len(output.content))
            return _BINARY_LINES % len(text), text + output.content
        if datatype is _BYTES:
            return None
        values = np.frombuffer(output.content, datatype.numpy_dtype)
        listed = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
        return JSON_LINES, template % (own_id, prediction_id, listed)

    def read_other(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        """See :class:`.PlainDialect`."""
        return _read(read_any_infer(body, _header_length(fields), version.input_schema), version)


def _header_length(fields: Mapping[bytes, bytes]) -> int | None:
    """Return how many bytes of the body are JSON, where others follow."""
    if TENSORS_AT_HEADER not in fields:
        return None
    length = content_length(fields[TENSORS_AT_HEADER])
    if length is None:
        raise HeaderInvalid("inference-header-content-length: expected a whole number", hint=FRAMING)
    return length


def _read(call: InferCall, version: ModelVersion) -> Reading:
    if call.outputs:
        call.require_outputs(version.model_name, output_names(version.output_schema))
    return _reading_of(call)


def _reading_of(call: InferCall) -> Reading:
    return Reading(call.request, partial(_worded, call), call.timeout_seconds)


def _worded(call: InferCall, answered: Answered) -> Worded:
    entries: list[bytes] = []
    contents: list[bytes] = []
    for one, output, shape in outputs_of(call, answered):
        head = _entry_head(output.name, output.datatype.wire_name, shape)
        if one.binary:
            contents.append(output.content)
            entries.append(b'%b,"parameters":{"binary_data_size":%d}}' % (head, len(contents[-1])))
        else:
            entries.append(b'%b,"data":%b}' % (head, _listed(output)))
    text = b'%b,"outputs":[%b]}' % (_answer_head(call.id, answered), b",".join(entries))
    return _framed(text, contents)


def _framed(text: bytes, contents: Sequence[bytes]) -> Worded:
    """Return an answer: its JSON, and the bytes that follow it."""
    if not contents:
        return Worded(JSON_ALONE, text)
    return Worded((BINARY, (TENSORS_AT_HEADER, b"%d" % len(text))), b"".join((text, *contents)))


@lru_cache(maxsize=4_096)
def _template(  # noqa: PLR0917 - cached by place
    model_name: str,
    version: str | None,
    role: str | None,
    generation: int,
    output_name: str,
    wire_name: str,
    row_shape: tuple[int, ...],
    is_binary: bool,  # noqa: FBT001 - as above
) -> bytes:
    """Return the JSON of the answer to one row, with places for the caller's id, the prediction's, and values or size.

    A row that is read in one pass has a dimension of the rows, and so has its answer.
    """
    who, receipt = _answer_parts(model_name, version, generation, role)
    head = _entry_head(output_name, wire_name, (1, *row_shape))
    values = b',"parameters":{"binary_data_size":%d}}' if is_binary else b',"data":%b}'
    return b'%b%%b,"parameters":{"prediction_id":"%%b%b},"outputs":[%b%b]}' % (
        literal(who),
        literal(receipt),
        literal(head),
        values,
    )


def _answer_head(own_id: str | None, answered: Answered) -> bytes:
    """Return an answer's JSON up to its outputs: who answered, the caller's own id, and :func:`receipt_of`."""
    calls, names_version = answered.calls, answered.names_version
    who, receipt = _answer_parts(
        answered.target.model_name,
        version_of(answered),
        calls[0].policy.generation,
        answered.role if names_version else None,
    )
    named = _id_text(own_id)
    first = calls[0].prediction_id.encode()
    if not 1 < len(calls) <= MAX_IDS:
        return b'%b%b,"parameters":{"prediction_id":"%b%b}' % (who, named, first, receipt)
    ids = ",".join([one.prediction_id for one in calls]).encode()
    return b'%b%b,"parameters":{"prediction_id":"%b%b,"prediction_ids":"%b"}' % (who, named, first, receipt, ids)


def _id_text(own_id: str | None) -> bytes:
    """Return a caller's own id as an answer's JSON has it."""
    return b"" if own_id is None else b',"id":' + orjson.dumps(own_id)


@lru_cache(maxsize=4_096)
def _answer_parts(model_name: str, version: str | None, generation: int, role: str | None) -> tuple[bytes, bytes]:
    """Return an answer's JSON before the caller's id, and behind the prediction's."""
    label = b"" if version is None else b',"model_version":' + orjson.dumps(version)
    by_whom = b"" if role is None else b',"role":' + orjson.dumps(str(role))
    return b'{"model_name":%b%b' % (orjson.dumps(model_name), label), b'","generation":%d%b' % (generation, by_whom)


@lru_cache(maxsize=4_096)
def _entry_head(name: str, wire_name: str, shape: tuple[int, ...]) -> bytes:
    """Return an output's JSON up to its values."""
    return orjson.dumps({"name": name, "datatype": wire_name, "shape": shape})[:-1]


def _listed(output: Output) -> bytes:
    """Return the values as a list of JSON."""
    values = output.array(FLAT)
    is_text = output.datatype is _BYTES
    return orjson.dumps(values.tolist() if is_text else values, option=orjson.OPT_SERIALIZE_NUMPY)


def outputs_of(call: InferCall, answered: Answered) -> list[tuple[WantedOutput, Output, tuple[int, ...]]]:
    """Return the outputs that a caller wants, in its order, each with its shape.

    Raises:
        InputInvalid: There is one that it cannot have.
    """
    judged = answered.output
    if not call.outputs and not answered.has_more:
        return [(WantedOutput(judged.name, call.binary), judged, answered.shape)]
    if not call.outputs:
        named = {one.name: one for one in answered.outputs}.values()
        return [(WantedOutput(one.name, call.binary), one, answered.shape_of(one)) for one in named]
    are_judged = all(one.name in (judged.name, VERSION_OUTPUT) for one in call.outputs)
    outputs = [judged] if are_judged else answered.outputs  # the others may differ from row to row
    by_name = {one.name: one for one in outputs}
    call.require_outputs(answered.target.model_name, tuple(by_name), names_version=answered.names_version)
    return [
        (one, by_name[one.name], answered.shape_of(by_name[one.name]))
        if one.name in by_name
        else (one, _versions(answered), (len(answered.calls),))
        for one in call.outputs
    ]


def _versions(answered: Answered) -> Output:
    """Return who answered each row, as an output."""
    labels = [join_bytes_elements([one.version.version.encode()]) for one in answered.calls]
    return Output(VERSION_OUTPUT, Datatype.BYTES, (), labels)


def version_of(answered: Answered) -> str | None:
    """Return who answered; where operators hide that, the version that was asked for, if one was."""
    return answered.version if answered.names_version else answered.target.version


def receipt_of(answered: Answered) -> dict[str, str | int]:
    """Return an answer's parameters, which say what became of the call."""
    first = answered.calls[0]
    parameters: dict[str, str | int] = {
        "prediction_id": first.prediction_id,
        "generation": first.policy.generation,
    }
    if answered.names_version:
        parameters["role"] = answered.role
    if 1 < len(answered.calls) <= MAX_IDS:
        parameters["prediction_ids"] = ",".join(one.prediction_id for one in answered.calls)
    return parameters


def server_document() -> dict[str, Any]:
    """Return the server's metadata."""
    return {"name": "understudy", "version": __version__, "extensions": EXTENSIONS}


def metadata_document(policy: ServingPolicy, version: ModelVersion, labels: list[str]) -> dict[str, Any]:
    """Return a model's metadata: what to send to it, and what comes back.

    Args:
        policy: The model's.
        version: Whose inputs and outputs it has.
        labels: Versions that may be named.
    """
    rows = [-1] if version.input_schema.batch else []
    return {
        "name": policy.model_name,
        "versions": labels,
        "platform": "understudy",
        "inputs": [
            {"name": spec.name, "datatype": spec.datatype.wire_name, "shape": [*rows, *spec.shape]}
            for spec in (one.spec for one in version.input_schema.packed if one.features)
        ],
        "outputs": [
            {"name": name, "datatype": datatype, "shape": [*rows, *shape]}
            for name, datatype, shape in _outputs(version)
        ],
    }


def config_document(policy: ServingPolicy, version: ModelVersion) -> dict[str, Any]:
    """Return a model's configuration in Triton's words."""
    return {
        "name": policy.model_name,
        "platform": "understudy",
        "backend": "",
        "max_batch_size": MAX_ROWS if version.input_schema.batch else 0,
        "version_policy": {"latest": {"num_versions": 1}},
        "input": [
            {"name": spec.name, "data_type": _config_type(spec.datatype.wire_name), "dims": list(spec.shape)}
            for spec in (one.spec for one in version.input_schema.packed if one.features)
        ],
        "output": [
            {"name": name, "data_type": _config_type(datatype), "dims": list(shape)}
            for name, datatype, shape in _outputs(version)
        ],
    }


def _outputs(version: ModelVersion) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return the output as far as its schema names it; a name or a datatype that it leaves open is the server's."""
    schema = version.output_schema
    if schema.tensor is None or schema.datatype is None:
        return []
    return [(schema.tensor, schema.datatype.wire_name, schema.shape if schema.shape is not None else (-1,))]


def _config_type(wire_name: str) -> str:
    return "TYPE_STRING" if wire_name == "BYTES" else f"TYPE_{wire_name}"
