"""Messages of the gRPC port whose fields are drawn: good ones, what contradicts itself, and what is out of range."""

from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rigs.fuzz.models import MIXED, VECTORS, VISITS
from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_oip_pb2 as oip
from understudy.adapters._proto import understudy_tfserving_pb2 as tfserving

INFER = methods.oip_method(methods.OIP_SERVICE, methods.OIP_MODEL_INFER)
_EXAMPLES = tuple(f"/{methods.TFSERVING_PREDICTION_SERVICE}/{name}" for name in ("Classify", "Regress"))


class GrpcCase(NamedTuple):
    """A method's path and the bytes of its message."""

    path: str
    message: bytes
    coding: str = ""
    """By which the message is compressed; none: it is not."""
    refused_as: frozenset[str] = frozenset()
    """The codes of which its refusal must have one; none: as any caller's mistake."""


_models = st.sampled_from([VISITS, VISITS, MIXED, VECTORS, "none", ""])
_texts = st.sampled_from(["", "1", "canary", "input", "entity_id", "category", "age", "recency", "e-1", "x" * 2_000])
_sizes = st.sampled_from([0, 1, 2, 13, 16, 256, 257, -1, -(2**63), 2**31, 2**62, 2**63 - 1])
_shapes = st.lists(_sizes, max_size=4) | st.sampled_from([[1, 13], [13], [1, 16], [1] * 40])
_floats = st.sampled_from([0.0, 0.5, -0.0, 3.4e38, float("nan"), float("inf"), -float("inf"), 1e-45])
_whole = st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)])
_kinds = st.sampled_from(
    ["FP32", "FP32", "FP64", "BYTES", "BOOL", "INT64", "INT8", "UINT64", "FP16", "BF16", "", "fp32"]
)
_contents = st.sampled_from([
    b"", bytes(52), bytes(51), bytes(53), b"\xff" * 52, b"\x01\x00\x00\x00a", b"\xff\xff\xff\xff" + b"x" * 48,
    b"\x00\x00\x80\x7f" * 13, bytes(4), bytes(64), b"\x03\x00\x00\x00a\x00b", b"\x02\x00\x00\x00\xff\xfe",
])  # fmt: skip


def infer_cases() -> SearchStrategy[GrpcCase]:
    """Draw calls of ``ModelInfer``."""
    return _infer_fields().map(lambda fields: GrpcCase(INFER, oip.ModelInferRequest(**fields).SerializeToString()))


def _infer_fields() -> SearchStrategy[Any]:
    listed = st.one_of(
        st.fixed_dictionaries({}, optional={"fp32_contents": st.lists(_floats, max_size=16)}),
        st.fixed_dictionaries({"int64_contents": st.lists(_whole, max_size=4)}),
        st.fixed_dictionaries({"bytes_contents": st.lists(_contents, max_size=3), "bool_contents": st.just([True])}),
    )
    tensors = st.fixed_dictionaries(
        {"name": _texts, "datatype": _kinds, "shape": _shapes},
        optional={"contents": listed, "parameters": _parameters()},
    )
    return st.fixed_dictionaries(
        {"model_name": _models, "inputs": st.lists(tensors, max_size=4)},
        optional={
            "id": _texts,
            "model_version": _texts,
            "parameters": _parameters(),
            "outputs": st.lists(
                st.fixed_dictionaries({"name": _texts}, optional={"parameters": _parameters()}), max_size=3
            ),
            "raw_input_contents": st.lists(_contents, max_size=4),
        },
    )


def _parameters() -> SearchStrategy[dict[str, dict[str, Any]]]:
    values: SearchStrategy[Any] = st.one_of(
        st.fixed_dictionaries({"string_param": _texts}),
        st.fixed_dictionaries({"int64_param": st.sampled_from([0, 1, -1, 2**63 - 1])}),
        st.fixed_dictionaries({"bool_param": st.booleans()}),
        st.just({}),
    )
    names = [
        "entity_id",
        "category",
        "timeout",
        "sequence_id",
        "priority",
        "shared_memory_region",
        "classification",
    ]
    return st.dictionaries(st.sampled_from(names), values, max_size=2)


def tfserving_cases() -> SearchStrategy[GrpcCase]:
    """Draw calls of ``Predict``, ``Classify`` and ``Regress``."""
    return _predict_cases() | _example_cases()


def _specs() -> SearchStrategy[dict[str, Any]]:
    versions = st.fixed_dictionaries({"version": st.fixed_dictionaries({"value": _sizes})})
    labels = st.fixed_dictionaries({"version_label": _texts})
    named = st.fixed_dictionaries({"name": _models}, optional={"signature_name": _texts})
    return st.tuples(named, st.just({}) | versions | labels).map(lambda drawn: {**drawn[0], **drawn[1]})


def _predict_cases() -> SearchStrategy[GrpcCase]:
    return _predict_fields().map(
        lambda fields: GrpcCase(methods.TFSERVING_PREDICT, tfserving.PredictRequest(**fields).SerializeToString())
    )


def _predict_fields() -> SearchStrategy[Any]:
    dimensions = st.fixed_dictionaries({"size": _sizes}, optional={"name": _texts})
    shapes = st.fixed_dictionaries({"dim": st.lists(dimensions, max_size=4)}, optional={"unknown_rank": st.booleans()})
    tensors = st.fixed_dictionaries(
        {"dtype": st.integers(0, 30)},
        optional={
            "tensor_shape": shapes | st.just({"dim": [{"size": 1}, {"size": 13}]}),
            "float_val": st.lists(_floats, max_size=14),
            "string_val": st.lists(_contents, max_size=3),
            "tensor_content": _contents,
            "int64_val": st.lists(_whole, max_size=3),
        },
    )
    return st.fixed_dictionaries(
        {"model_spec": _specs(), "inputs": st.dictionaries(_texts, tensors, max_size=3)},
        optional={"output_filter": st.lists(_texts, max_size=3)},
    )


def _example_cases() -> SearchStrategy[GrpcCase]:
    features: SearchStrategy[Any] = st.one_of(
        st.fixed_dictionaries({"float_list": st.fixed_dictionaries({"value": st.lists(_floats, max_size=3)})}),
        st.fixed_dictionaries({"int64_list": st.fixed_dictionaries({"value": st.lists(_whole, max_size=3)})}),
        st.fixed_dictionaries({"bytes_list": st.fixed_dictionaries({"value": st.lists(_contents, max_size=2)})}),
        st.just({}),
    )
    example = st.fixed_dictionaries(
        {"features": st.fixed_dictionaries({"feature": st.dictionaries(_texts, features, max_size=4)})}
    )
    several = st.fixed_dictionaries({"examples": st.lists(example, max_size=3)})
    inputs = st.fixed_dictionaries({"example_list": several}) | st.fixed_dictionaries(
        {"example_list_with_context": st.tuples(several, example).map(lambda drawn: {**drawn[0], "context": drawn[1]})}
    )
    return st.tuples(st.sampled_from(_EXAMPLES), _specs(), inputs).map(
        lambda drawn: GrpcCase(
            drawn[0], tfserving.ClassificationRequest(model_spec=drawn[1], input=drawn[2]).SerializeToString()
        )
    )
