"""The tensors that a version takes and gives, as its model server sees them."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from understudy.core.first_names import first_names
from understudy.core.schema.compile import compile_input_schema, compile_output_schema
from understudy.core.schema.schema import InputSchema, OutputSchema, PackedTensor
from understudy.entrypoints.cli.shared.rendering import Column, a_table
from understudy.errors import SchemaInvalid
from understudy.ports.registry.registry import VersionRecord

MAX_TENSORS = 20
MAX_NAMES = 8
"""Features of one tensor, or labels, that are named."""


def tensors_text(record: VersionRecord) -> list[RenderableType]:
    """Return a table of a version's tensors, or why its schemas, which SQL may have written, give none."""
    try:
        inputs, output = compile_input_schema(record.input_schema), compile_output_schema(record.output_schema)
    except SchemaInvalid as problem:
        said = f"no proxy can use the version: {problem.detail}\n→ {problem.next_step}"
        return ["", Text("! ", "yellow").append(said)]
    columns = [Column("tensor"), Column("name"), Column("datatype"), Column("shape"), Column("holds")]
    shown = [_input_cells(inputs, tensor) for tensor in inputs.packed[:MAX_TENSORS]]
    table = a_table(columns, [*shown, _output_cells(output, inputs)])
    more = len(inputs.packed) - len(shown)
    lines = [Text(f"and {more:,} more inputs: --json has them all", "dim")] if more else []
    return ["", table, *lines]


def _input_cells(schema: InputSchema, tensor: PackedTensor) -> tuple[str, ...]:
    spec = tensor.spec
    is_of_treatments = _is_nested(schema) and any(feature.per_treatment for feature in tensor.features)
    # The schema has a 1 there, since a predict call has one treatment.
    own: tuple[int | str, ...] = ("treatments", *spec.shape[1:]) if is_of_treatments else spec.shape
    names = _listed([feature.name for feature in tensor.features]) or "the number of treatments"
    return "input", spec.name, spec.datatype.wire_name, _shape(schema, own), names


def _output_cells(schema: OutputSchema, inputs: InputSchema) -> tuple[str, ...]:
    datatype = "any" if schema.datatype is None else schema.datatype.wire_name
    shape = "any"
    if schema.shape is not None:
        shape = _shape(inputs, ("treatments", *schema.shape) if _is_nested(inputs) else schema.shape)
    return "output", schema.tensor or "the first one", datatype, shape, _meaning(schema)


def _is_nested(schema: InputSchema) -> bool:
    return schema.treatments is not None and schema.treatments.nested


def _shape(inputs: InputSchema, own: Sequence[int | str]) -> str:
    whole = ["rows", *own] if inputs.batch else own
    return f"[{', '.join(map(str, whole))}]"


def _meaning(schema: OutputSchema) -> str:
    words = [] if schema.score_index is None else [f"element {schema.score_index} is the score"]
    words += [] if schema.activation == "none" else [f"{schema.activation} is applied"]
    bounds = [] if schema.minimum is None else [f"from {schema.minimum:g}"]
    bounds += [] if schema.maximum is None else [f"to {schema.maximum:g}"]
    words += [" ".join(bounds)] if bounds else []
    words += [f"labels {_listed(schema.labels)}"] if schema.labels else []
    words += [] if schema.threshold is None else [f"positive from {schema.threshold:g} on"]
    words += [f"with it {_listed(schema.also)}"] if schema.also else []
    return "; ".join(words) or "the prediction"


def _listed(names: Sequence[str]) -> str:
    return first_names(names, MAX_NAMES)
