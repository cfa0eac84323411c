"""Proposes the schemas of a version from what its model says of itself.

Names, datatypes and shapes come from the model. What no model says comes from :class:`Choices`: what a person has to
choose is an error that names the option, and what a person may choose is a note that does.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from understudy.core.schema.compile import MAX_NAME
from understudy.core.schema.described import FREE, SHOWN, DescribedModel, DescribedTensor, all_problems, listed, sizes
from understudy.core.schema.tensors import DATATYPES, Datatype
from understudy.errors import SchemaNotTold

Bounds = tuple[float | None, float | None]
"""Least and greatest permitted value; ``None``: no bound."""


class Choices(NamedTuple):
    """What a person says of a model that says the rest itself."""

    columns: Mapping[str, Sequence[str]] = {}
    """By input: the names of its elements, each of which is then a feature. The name ``""`` is the only input."""
    shapes: Mapping[str, tuple[int, ...]] = {}
    """By input or output: its shape for one row, where the model leaves a size open."""
    bounds: Mapping[str, Bounds] = {}
    """By feature."""
    stored: Collection[str] = ()
    """Features that come from the feature store."""
    output: str | None = None
    """The output that has the answer; ``None``: the only one."""
    score: int | None = None
    """Which of the answer's elements is the score; ``None``: the answer is the best element, or the only one."""
    activation: str | None = None
    answer_bounds: Bounds = (None, None)
    labels: Sequence[str] = ()


class Proposal(NamedTuple):
    """The documents ``input_schema`` and ``output_schema``, and in words what they leave open."""

    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    notes: tuple[str, ...]


def propose(model: DescribedModel, choices: Choices = Choices()) -> Proposal:  # noqa: B008 - a value that never changes
    """Return schemas for a model.

    Raises:
        SchemaNotTold: The model leaves something open that a schema must have, or takes what no proxy sends; the
            message has all of it, with the options that say it.
    """
    problems = _Problems()
    for what, described in (("input", model.inputs), ("output", model.outputs)):
        problems.add(*_unusable_names(what, [tensor.name for tensor in described]))
    batch = _has_batch(model.inputs)
    _check_names(model, choices, problems)
    features, tensors = _inputs(model, choices, problems, batch=batch)
    output, notes = _output(model, choices, problems, batch=batch)
    names = [feature["name"] for feature in features]
    for option, chosen in (("--bounds", choices.bounds), ("--stored", choices.stored)):
        problems.add(*(f"{option}: there is no feature {name!r}" for name in chosen if name not in names))
    if problems.found:
        raise SchemaNotTold(f"{model.source}: {all_problems(problems.found)}")
    for feature in features:
        _choose(feature, choices)
    schema: dict[str, Any] = {"features": features, **({"tensors": tensors} if tensors else {})}
    if not batch:
        schema["batch"] = False
    return Proposal(schema, output, (*_notes_on_inputs(features, model, choices), *notes))


class _Problems:
    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, *problems: str) -> None:
        self.found += problems


def _unusable_names(what: str, names: Sequence[str]) -> list[str]:
    """Return what is wrong with the names of a model's inputs, or of its outputs, of which the only one needs none."""
    if not names:
        return [f"it says nothing of its {what}s: describe them with --from FILE"]
    long = [name for name in names if len(name) > MAX_NAME]
    found = [f"the name of an {what} has {len(name):,} characters, of at most {MAX_NAME}" for name in long]
    if "" in names and (what == "input" or len(names) > 1):
        found.append(f"it gives an {what} no name: describe them with --from FILE")
    twice = [name for name, times in Counter(names).items() if name and times > 1]
    return found + ([f"it has several {what}s called {listed(twice)}"] if twice else [])


def _has_batch(inputs: Sequence[DescribedTensor]) -> bool:
    """Whether all inputs begin with a size that each call chooses; inputs without any size have none."""
    return all(tensor.shape is None or tensor.shape[:1] == (FREE,) for tensor in inputs)


def _check_names(model: DescribedModel, choices: Choices, problems: _Problems) -> None:
    inputs, outputs = [one.name for one in model.inputs], [one.name for one in model.outputs]
    for name in choices.columns:
        if name not in inputs and not (name == "" and len(inputs) == 1):
            problems.add(f"--columns: {f'no input {name!r}' if name else 'several inputs'}; there is {listed(inputs)}")
    for name in choices.shapes:
        if name not in (*inputs, *outputs):
            problems.add(f"--shape: no input or output {name!r}; there is {listed([*inputs, *outputs])}")


def _row_shape(
    tensor: DescribedTensor, choices: Choices, problems: _Problems, *, batch: bool
) -> tuple[int, ...] | None:
    """Return a tensor's shape for one row; ``None`` where it is not known."""
    if tensor.name in choices.shapes:
        return choices.shapes[tensor.name]
    if tensor.shape is None:
        problems.add(f"it does not say the shape of {tensor.name!r}: --shape {tensor.name}=SIZES")
        return None
    row = tensor.shape[1:] if batch else tensor.shape
    if FREE in row:
        problems.add(f"{tensor.name!r} has {sizes(row)} elements, of any number: --shape {tensor.name}=SIZES")
        return None
    return row


def _inputs(
    model: DescribedModel, choices: Choices, problems: _Problems, *, batch: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the features, and the tensors they go into; without any where each feature is a tensor of its own."""
    features: list[dict[str, Any]] = []
    tensors: list[dict[str, Any]] = []
    for tensor in model.inputs:
        shape = _row_shape(tensor, choices, problems, batch=batch)
        datatype = _datatype(tensor, problems)
        if shape is None or datatype is None:
            continue
        names = choices.columns.get(tensor.name) or (choices.columns.get("") if len(model.inputs) == 1 else None)
        if names is not None and len(names) != prod(shape):
            problems.add(f"--columns names {len(names)} of the {prod(shape)} elements of {tensor.name!r}")
            continue
        if names is None and prod(shape) == 1:
            names = [tensor.name]
        described = {"dtype": _words_of(datatype)}
        if names is None:
            features.append({"name": tensor.name, **described, "shape": list(shape)})
            tensors.append({"name": tensor.name, "features": [tensor.name], "shape": list(shape)})
        else:
            features += [{"name": name, **described} for name in names]
            tensors.append({"name": tensor.name, "features": list(names), "shape": list(shape)})
    return features, [] if _are_plain(features, tensors) else tensors


def _are_plain(features: Sequence[Mapping[str, Any]], tensors: Sequence[Mapping[str, Any]]) -> bool:
    """Whether each feature is a tensor of its own name and shape, which a schema need not say."""
    return [(one["name"], one.get("shape", [])) for one in features] == [(one["name"], one["shape"]) for one in tensors]


def _datatype(tensor: DescribedTensor, problems: _Problems) -> Datatype | None:
    found = DATATYPES.get(tensor.datatype)
    if found is None:
        problems.add(f"{tensor.name!r} is {tensor.datatype}, which no proxy sends or reads")
    return found


def _words_of(datatype: Datatype) -> str:
    return "string" if datatype is Datatype.BYTES else datatype.numpy_dtype.name


def _output(
    model: DescribedModel, choices: Choices, problems: _Problems, *, batch: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the output's document, and what it leaves open."""
    named = {tensor.name: tensor for tensor in model.outputs}
    tensor = named.get(choices.output or "") if choices.output else next(iter(named.values()), None)
    if tensor is None or (choices.output is None and len(named) > 1):
        there_are = listed([one.words for one in model.outputs])
        if named:
            asked = (
                f"there is no output {choices.output!r}" if choices.output else "which output is the answer is not said"
            )
            problems.add(f"{asked}; there is {there_are}: --output NAME")
        return {}, []
    datatype, row = _datatype(tensor, problems), _row_of_output(tensor, choices, batch=batch)
    document: dict[str, Any] = {"tensor": tensor.name} if tensor.name else {}
    if datatype is not None:
        document["dtype"] = _words_of(datatype)
    if row is not None:
        document["shape"] = list(row)
    if choices.score is not None:
        document["score_index"] = choices.score
    if choices.activation is not None:
        document["activation"] = choices.activation
    if choices.labels:
        document["labels"] = list(choices.labels)
    document |= _bounds(choices.answer_bounds)
    return document, _notes_on_output(tensor, row, datatype, choices)


def _row_of_output(tensor: DescribedTensor, choices: Choices, *, batch: bool) -> tuple[int, ...] | None:
    if tensor.name in choices.shapes:
        return choices.shapes[tensor.name]
    if tensor.shape is None or (batch and not tensor.shape):
        return None
    row = tensor.shape[1:] if batch else tensor.shape
    return None if FREE in row else row


def _choose(feature: dict[str, Any], choices: Choices) -> None:
    feature |= _bounds(choices.bounds.get(feature["name"], (None, None)))
    if feature["name"] in choices.stored:
        feature["source"] = "store"


def _bounds(bounds: Bounds) -> dict[str, float]:
    return {name: value for name, value in zip(("min", "max"), bounds, strict=True) if value is not None}


def _notes_on_inputs(features: Sequence[Mapping[str, Any]], model: DescribedModel, choices: Choices) -> list[str]:
    wide = [(feature["name"], prod(feature["shape"])) for feature in features if "shape" in feature]
    notes = [
        f"{name} is one input of {size} values; to send them by names: --columns {name}=NAME,…"
        for name, size in wide[:SHOWN]
    ]
    if len(wide) > SHOWN:
        notes.append(f"so are {len(wide) - SHOWN:,} more")
    numbers = [one["name"] for one in features if one["dtype"] not in ("string", "bool")]
    unbound = [name for name in numbers if name not in choices.bounds]
    if unbound:
        notes.append(f"{listed(unbound)} may have any value: --bounds {unbound[0]}=LOW:HIGH")
    optional = [tensor.name for tensor in model.inputs if tensor.is_optional]
    if optional:
        notes.append(f"{listed(optional)} may be missing, says the model; a default needs --from FILE")
    notes.append(
        "each call names its entity as entity_id, which is no input; what the feature store has of it: --stored NAME"
    )
    return notes


def _notes_on_output(
    tensor: DescribedTensor, row: tuple[int, ...] | None, datatype: Datatype | None, choices: Choices
) -> list[str]:
    notes: list[str] = []
    if datatype is Datatype.BYTES:
        return notes
    if choices.score is None and (row is None or prod(row) > 1):
        many = "several values" if row is None else f"{prod(row)} values"
        notes.append(f"the answer has {many} and is the greatest of them; if one is the score: --score INDEX")
    if choices.activation is None and (datatype is None or datatype.is_float):
        notes.append("the answer is taken as it is: --activation sigmoid or softmax if it is a logit")
    if choices.answer_bounds == (None, None):
        notes.append(f"{tensor.name or 'the answer'} may have any value: --answer-bounds LOW:HIGH")
    return notes
