"""ONNX models, run by onnxruntime."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as onnx_errors

from understudy.core.schema.tensors import Datatype, TensorSpec
from understudy.errors import InputInvalid, UnknownVersion

ANY_SIZE = -1
"""A dimension that a call chooses, such as the batch."""

_DATATYPES = {
    "tensor(bool)": Datatype.BOOL,
    "tensor(int8)": Datatype.INT8,
    "tensor(int16)": Datatype.INT16,
    "tensor(int32)": Datatype.INT32,
    "tensor(int64)": Datatype.INT64,
    "tensor(uint8)": Datatype.UINT8,
    "tensor(float)": Datatype.FP32,
    "tensor(double)": Datatype.FP64,
    "tensor(string)": Datatype.BYTES,
}
_LOAD_ERRORS = (onnx_errors.Fail, onnx_errors.InvalidGraph, onnx_errors.InvalidProtobuf, onnx_errors.InvalidArgument)
_RUN_ERRORS = (onnx_errors.Fail, onnx_errors.InvalidArgument, onnx_errors.RuntimeException)


class OnnxModel:
    """A loaded ONNX file. One call runs on one thread, its caller's; calls from several threads may run at once."""

    def __init__(self, content: bytes, name: str) -> None:
        """Load an ONNX file's content; ``name`` is for messages.

        Raises:
            UnknownVersion: If it is no ONNX model, or has a type that is not served.
        """
        try:
            self._session = onnxruntime.InferenceSession(content, _options(), providers=["CPUExecutionProvider"])
        except _LOAD_ERRORS as error:
            raise UnknownVersion(f"{name} is not an ONNX model that can be loaded: {error}") from None
        self.inputs = tuple(_spec_of(node, name) for node in self._session.get_inputs())
        self.outputs = tuple(_spec_of(node, name) for node in self._session.get_outputs())
        self._output_names = [spec.name for spec in self.outputs]

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return every output for ``inputs``, whose shapes include the batch dimension.

        Raises:
            InputInvalid: If names, types or shapes are not the model's.
        """
        self._check(inputs)
        try:
            outputs = self._session.run(self._output_names, dict(inputs))
        except _RUN_ERRORS as error:
            raise InputInvalid(f"the model cannot run on this input: {error}") from None
        return {spec.name: np.asarray(value) for spec, value in zip(self.outputs, outputs, strict=True)}

    def _check(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        expected = {spec.name for spec in self.inputs}
        if expected != set(inputs):
            missing, extra = sorted(expected - set(inputs)), sorted(set(inputs) - expected)
            raise InputInvalid(f"inputs do not match the model: missing {missing}, not known {extra}")
        for spec in self.inputs:
            _check_tensor(spec, inputs[spec.name])


def _options() -> onnxruntime.SessionOptions:
    """Return options for many small calls: a thread pool per model costs more than such a call."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4
    return options


def _spec_of(node: Any, name: str) -> TensorSpec:
    """Return a tensor of the model; unlike elsewhere its shape has the batch dimension (``ANY_SIZE``)."""
    if node.type not in _DATATYPES:
        raise UnknownVersion(f"{name}: tensor {node.name!r} is {node.type}, which is not served")
    shape = tuple(size if isinstance(size, int) else ANY_SIZE for size in node.shape)
    return TensorSpec(node.name, _DATATYPES[node.type], shape)


def _check_tensor(spec: TensorSpec, tensor: NDArray[Any]) -> None:
    if tensor.dtype != spec.datatype.numpy_dtype:
        raise InputInvalid(f"input {spec.name!r} must be {spec.datatype.wire_name}, is {tensor.dtype.name}")
    fits = len(tensor.shape) == len(spec.shape) and all(
        want in (ANY_SIZE, size) for want, size in zip(spec.shape, tensor.shape, strict=True)
    )
    if not fits:
        raise InputInvalid(f"input {spec.name!r} must have shape {list(spec.shape)}, has {list(tensor.shape)}")
