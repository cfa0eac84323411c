"""TensorFlow Serving's ``Classify`` and ``Regress`` over gRPC: rows as ``tf.Example``."""

from collections.abc import Mapping
from functools import partial
from math import isfinite
from typing import Any, Final, TypeAlias

from understudy.adapters._proto import understudy_tfserving_pb2 as pb
from understudy.core.requests.caller_request import refuse_inputs, require_rows
from understudy.core.requests.row_json import read_examples
from understudy.core.routing.policy import ModelVersion
from understudy.entrypoints.proxy.dialects.dialect import (
    INLINE_LISTED_BYTES,
    INLINE_TENSOR_BYTES,
    Answered,
    Reading,
    Worded,
)
from understudy.entrypoints.proxy.dialects.kserve_v1 import classes_of, numbers_of
from understudy.entrypoints.proxy.dialects.open_inference import version_of
from understudy.entrypoints.proxy.dialects.protobuf import parse
from understudy.entrypoints.proxy.dialects.signature import require_signature, signature_of
from understudy.entrypoints.proxy.dialects.tfserving_grpc import spec_of

Request: TypeAlias = pb.ClassificationRequest | pb.RegressionRequest


class ExamplesGrpc:
    """``Classify`` or ``Regress``.

    Args:
        request: The call, of either.
        is_whole: Whether that is all of it; else it is parsed when it is read, in a thread.
    """

    name = "tfs_grpc"
    HEAD: Final = frozenset({pb.ClassificationRequest.MODEL_SPEC_FIELD_NUMBER})
    """The field that says whose answer is asked for, of either."""

    def __init__(self, request: Request, *, is_whole: bool = True) -> None:
        self._is_whole = is_whole
        self._request = request

    def is_short(self, body: bytes, fields: Mapping[bytes, bytes]) -> bool:
        """See :class:`.Dialect`; what a context has is in each row."""
        del fields
        return len(body) <= INLINE_TENSOR_BYTES and self._request.input.WhichOneof("kind") == "example_list"

    def read(self, body: bytes, fields: Mapping[bytes, bytes], version: ModelVersion) -> Reading:
        """See :class:`.Dialect`."""
        del fields
        kind = type(self._request)
        request = self._request if self._is_whole else parse(kind, body)
        require_signature(request.model_spec.signature_name, version, "/model_spec/signature_name")
        given = request.input
        shared = given.example_list_with_context
        examples = shared.examples or given.example_list.examples
        require_rows(len(examples), "/examples")
        document = {
            "examples": [_row_of(one, f"/examples/{row}") for row, one in enumerate(examples)],
            "context": _row_of(shared.context, "/context"),
        }
        rows = read_examples(document, version.input_schema).request
        word = partial(_worded, signature_of(version), kind)
        return Reading(rows, word, inline_output_bytes=INLINE_LISTED_BYTES)


def _row_of(example: pb.Example, place: str) -> dict[str, list[Any]]:
    return {name: _values_of(one, f"{place}/{_escaped(name)}") for name, one in example.features.feature.items()}


def _values_of(feature: pb.Feature, place: str) -> list[Any]:
    kind = feature.WhichOneof("kind")
    if kind == "bytes_list":
        return [_text_of(one, place) for one in feature.bytes_list.value]
    if kind != "float_list":
        return list(feature.int64_list.value)
    values = list(feature.float_list.value)
    if not all(map(isfinite, values)):
        raise refuse_inputs(place, "is NaN or infinite; expected numbers")
    return values


def _text_of(value: bytes, place: str) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise refuse_inputs(place, "expected text in UTF-8") from None
    if "\x00" in text:
        raise refuse_inputs(place, "holds U+0000")
    return text


def _worded(signature: str, kind: type[Request], answered: Answered) -> Worded:
    spec = spec_of(answered.target.model_name, version_of(answered), signature)
    if kind is pb.ClassificationRequest:
        rows = [
            pb.Classifications(classes=[pb.Class(label=label, score=float(score)) for label, score in row])
            for row in classes_of(answered)
        ]
        result = pb.ClassificationResult(classifications=rows)
        return Worded([], pb.ClassificationResponse(model_spec=spec, result=result).SerializeToString())
    regressions = [pb.Regression(value=float(value)) for value in numbers_of(answered)]
    found = pb.RegressionResponse(model_spec=spec, result=pb.RegressionResult(regressions=regressions))
    return Worded([], found.SerializeToString())


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
