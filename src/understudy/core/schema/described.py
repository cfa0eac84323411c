"""What a model server, an ONNX file or an MLflow model says of its own tensors, before any schema is written."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from understudy.core.first_names import first_names
from understudy.core.schema.outputs import fits_shape
from understudy.core.schema.schema import InputSchema, OutputSchema
from understudy.core.schema.tensors import DATATYPES, TensorSpec, shape_text

FREE: Final = -1
"""A dimension whose size each call chooses, such as the batch."""
MAX_DESCRIBED: Final = 4_096
"""Inputs, and outputs, that a description may have; a schema has the same bound."""
SHOWN: Final = 8
"""Names, problems or tensors that one message has, of many."""


class DescribedTensor(NamedTuple):
    """One input or output, as its source names it."""

    name: str
    """Empty: the source gives it no name, or another one than the model server will."""
    datatype: str
    """``FP32`` and so on, or the source's own word for one that no proxy sends or reads."""
    shape: tuple[int, ...] | None
    """With the batch dimension; ``None``: the source does not say."""
    is_optional: bool = False
    """Whether the source says that a call may leave it out."""

    @property
    def words(self) -> str:
        """The tensor in a sentence: ``X FP32 [?, 4]``."""
        shape = "of any shape" if self.shape is None else sizes(self.shape)
        return f"{self.name} {self.datatype} {shape}".strip()


class DescribedModel(NamedTuple):
    """All tensors of one model."""

    source: str
    """Who says so, in words: ``the model server at 127.0.0.1:8500``."""
    inputs: tuple[DescribedTensor, ...]
    outputs: tuple[DescribedTensor, ...]
    framework: str | None = None
    """``onnx`` and so on; ``None``: the source does not say."""


def contradictions(inputs: InputSchema, outputs: OutputSchema, model: DescribedModel) -> list[str]:
    """Return in words where schemas say something else than the model itself; of what it leaves open, nothing.

    A size that each call may choose fits any size. A datatype that no proxy sends is left to the model server.
    """
    found = _of_names([spec.name for spec in inputs.tensors], model)
    known = {tensor.name: tensor for tensor in model.inputs}
    for spec in inputs.tensors:
        if spec.name in known:
            found += _of_input(spec, known[spec.name], inputs)
    return found + _of_output(outputs, model, batch=inputs.batch)


def _of_names(sent: Sequence[str], model: DescribedModel) -> list[str]:
    known = [tensor.name for tensor in model.inputs]
    if not known or not all(known):
        return []  # it says nothing of them, or takes them by their place
    there_are = listed([tensor.words for tensor in model.inputs])
    unknown = [f"there is no input {name!r}; there is: {there_are}" for name in sent if name not in known]
    needed = [tensor for tensor in model.inputs if not tensor.is_optional and tensor.name not in sent]
    return unknown + [f"the input {tensor.words} is needed, and the schema has no such tensor" for tensor in needed]


def _of_input(spec: TensorSpec, said: DescribedTensor, schema: InputSchema) -> list[str]:
    found = []
    if said.datatype in DATATYPES and DATATYPES[said.datatype] is not spec.datatype:
        found.append(f"the input {spec.name!r} is {said.datatype}, and the schema says {spec.datatype.wire_name}")
    sent = (FREE, *spec.shape) if schema.batch else spec.shape
    is_nested = schema.treatments is not None and schema.treatments.nested  # then each call has sizes of its own
    if said.shape is not None and not is_nested and not _takes(said.shape, sent):
        found.append(f"the input {said.words} would be sent with the shape {sizes(sent)}")
    return found


def _of_output(schema: OutputSchema, model: DescribedModel, *, batch: bool) -> list[str]:
    named = {tensor.name: tensor for tensor in model.outputs}
    if not named or not all(named) or (schema.tensor is None and len(named) > 1):
        return []  # it says nothing of them, or the server chooses
    said = model.outputs[0] if schema.tensor is None else named.get(schema.tensor)
    if said is None:
        there_are = listed([tensor.words for tensor in model.outputs])
        return [f"there is no output {schema.tensor!r}; there is: {there_are}"]
    found = []
    if schema.datatype is not None and said.datatype in DATATYPES and DATATYPES[said.datatype] is not schema.datatype:
        found.append(f"the output {said.name!r} is {said.datatype}, and the schema says {schema.datatype.wire_name}")
    if said.shape is None:
        return found
    row = said.shape[1:] if batch else said.shape
    if batch and said.shape[:1] not in ((), (FREE,)):
        found.append(f"the output {said.words} has one size for any number of rows, and the schema has a batch")
    elif schema.shape is not None and FREE not in row and not fits_shape(schema.shape, row):
        ours = sizes(schema.shape)
        found.append(f"the output {said.words} has the shape {sizes(row)} for a row, and the schema says {ours}")
    return found


def _takes(taken: Sequence[int], sent: Sequence[int]) -> bool:
    return len(sent) == len(taken) and all(size in (FREE, one) for one, size in zip(sent, taken, strict=True))


def sizes(shape: Sequence[int]) -> str:
    """Return a shape in a sentence, with ``?`` for a size that each call chooses."""
    return shape_text(shape).replace(str(FREE), "?")


def listed(names: Sequence[str]) -> str:
    """Return names in a sentence, of many the first ones."""
    return first_names(names, SHOWN) or "none"


def all_problems(found: Sequence[str]) -> str:
    """Return problems in a sentence, of many the first ones: a model may have thousands of tensors."""
    return first_names(found, SHOWN, "; ")
