"""Reads the signature of an MLflow model: the file ``MLmodel`` in its folder. Nothing of the model is loaded or run."""

from pathlib import Path
from typing import Any, Final

import orjson

from understudy.adapters.files.refusal import FileRefused
from understudy.adapters.files.regular_file import open_regular
from understudy.adapters.files.yaml_tree import TreeRefused, read_documents
from understudy.core.routing.policy_file import Entries, Node, Scalar
from understudy.core.schema.described import FREE, MAX_DESCRIBED, DescribedModel, DescribedTensor

FILE: Final = "MLmodel"
MAX_BYTES: Final = 524_288
MAX_NAME: Final = 255
MAX_DIMENSIONS: Final = 32
_COLUMNS: Final = {
    "boolean": "BOOL", "integer": "INT32", "long": "INT64", "float": "FP32", "double": "FP64", "string": "BYTES",
}  # fmt: skip
"""Datatypes of a column."""
_TENSORS: Final = {
    "bool": "BOOL", "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "uint8": "UINT8",
    "float32": "FP32", "float64": "FP64", "str": "BYTES", "object": "BYTES",
}  # fmt: skip
"""Datatypes of a tensor, by numpy's name."""
_COLUMN_SHAPE: Final = (FREE, 1)
"""MLServer takes a column as a tensor of one value a row. Source: ``mlserver_mlflow/metadata.py``; not tried."""
_UNNAMED: Final = "input-0"
"""What an input is called that the signature gives no name. Source: as above."""
_NEXT_STEP: Final = (
    "Log the model with a signature: mlflow.models.infer_signature(inputs, outputs); or describe it with --from FILE."
)


def read_mlflow(folder: Path) -> DescribedModel:
    """Return the inputs and outputs that an MLflow model's signature names.

    Raises:
        FileRefused: There is no signature, or it cannot be read.
    """
    path = folder / FILE
    try:
        with open_regular(path) as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as problem:
        advice = f"Name the folder of an MLflow model, in which {FILE} lies."
        raise FileRefused(f"{path} cannot be read: {problem.strerror or problem}", advice) from None
    return described_in(content, str(folder), path=str(path))


def described_in(content: bytes, source: str, *, path: str = FILE) -> DescribedModel:
    """Return what the content of a file ``MLmodel`` says of ``source``; raises as :func:`read_mlflow`."""
    if len(content) > MAX_BYTES:
        raise FileRefused(f"{path} has more than {MAX_BYTES:,} bytes", _NEXT_STEP)
    try:
        signature = _signature_in(content)
        inputs, outputs = _tensors(signature, "inputs"), _tensors(signature, "outputs")
    except (TreeRefused, _NotRead) as problem:
        raise FileRefused(f"{path}: {problem}", _NEXT_STEP) from None
    if len(inputs) == 1 and not inputs[0].name:
        inputs = [inputs[0]._replace(name=_UNNAMED)]
    if len(outputs) == 1:  # the server may name it otherwise, and the first one is read
        outputs = [outputs[0]._replace(name="")]
    return DescribedModel(source, tuple(inputs), tuple(outputs), "mlflow")


class _NotRead(Exception):
    pass


def _signature_in(content: bytes) -> Entries:
    documents = read_documents(content, max_bytes=MAX_BYTES)
    signature = _entry(documents[0], "signature") if documents else None
    if not isinstance(signature, Entries):
        raise _NotRead("it has no signature")
    return signature


def _entry(node: Node, name: str) -> Node | None:
    entries = node.entries if isinstance(node, Entries) else ()
    return next((value for key, value in entries if key.text == name), None)


def _tensors(signature: Entries, name: str) -> list[DescribedTensor]:
    """Return what the JSON text under a name lists; nothing where there is none."""
    node = _entry(signature, name)
    if node is None or (isinstance(node, Scalar) and node.is_null):
        return []
    try:
        listed = orjson.loads(node.text) if isinstance(node, Scalar) else None
    except orjson.JSONDecodeError:
        listed = None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise _NotRead(f"the signature's {name} are no list in JSON")
    if len(listed) > MAX_DESCRIBED:
        raise _NotRead(f"the signature has more than {MAX_DESCRIBED:,} {name}")
    return [_tensor(one) for one in listed]


def _tensor(said: dict[str, Any]) -> DescribedTensor:
    name = said.get("name") or ""
    if not isinstance(name, str) or len(name) > MAX_NAME:
        raise _NotRead("the signature has a name that is no text, or too long")
    is_optional = said.get("required") is False or said.get("optional") is True
    kind = said.get("type")
    if kind != "tensor":
        return DescribedTensor(name, _COLUMNS.get(str(kind), f"of the type {kind!s:.40}"), _COLUMN_SHAPE, is_optional)
    spec = said.get("tensor-spec")
    spec = spec if isinstance(spec, dict) else {}
    shape = spec.get("shape")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(type(size) is int for size in shape):
        raise _NotRead(f"the signature has a shape of {name or 'a tensor'} that is none")
    datatype = _TENSORS.get(str(spec.get("dtype")), f"of the type {spec.get('dtype')!s:.40}")
    return DescribedTensor(name, datatype, tuple(size if size > 0 else FREE for size in shape), is_optional)
