"""The example models that come with the package: what was trained, the files, and held-out rows to call them with."""

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import orjson

from understudy.core.drift.baseline import Baselines, NumericBaseline
from understudy.core.drift.training_profile import TrainingProfile, training_columns
from understudy.core.schema.compile import compile_input_schema
from understudy.errors import UnknownModel, UnknownVersion


@dataclass(frozen=True, slots=True)
class ExampleVersion:
    """One trained version; ``src/understudy/models/README.md`` says from which data."""

    model_name: str
    version: int
    role: str
    """What it is meant to be: ``champion``, ``challenger``, ``bad challenger`` or ``shadow``."""
    description: str
    framework: str
    file: str
    sha256: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    metrics: Mapping[str, float]
    """Measured on held-out rows with the ONNX file: ``auc``, ``accuracy``, ``log_loss``, ``test_rows``."""
    baseline: Mapping[str, Any]
    """Scores over the training rows: ``count``, ``mean``, ``std``, ``bin_edges``, ``bin_counts``."""

    @property
    def label(self) -> str:
        """Return the version's name in texts, such as ``visits-1``."""
        return f"{self.model_name}-{self.version}"

    def read(self) -> bytes:
        """Return the ONNX file's content."""
        return (_folder() / self.file).read_bytes()


@dataclass(frozen=True, slots=True)
class ExampleRow:
    """A held-out row: who it is about, what a predict call sends, and what came true (the class)."""

    entity_id: str
    inputs: Mapping[str, Any]
    label: int


@cache
def example_versions() -> tuple[ExampleVersion, ...]:
    """Return every example version, by model name as listed and by version."""
    listed = orjson.loads((_folder() / "models.json").read_bytes())["versions"]
    names = ExampleVersion.__slots__
    return tuple(ExampleVersion(**{name: entry[name] for name in names}) for entry in listed)


def example_version(model_name: str, version: int) -> ExampleVersion:
    """Return one example version.

    Raises:
        UnknownVersion: If it is not among them.
    """
    for example in example_versions():
        if (example.model_name, example.version) == (model_name, version):
            return example
    known = ", ".join(f"{example.model_name}:{example.version}" for example in example_versions())
    raise UnknownVersion(f"no example model {model_name}:{version}", hint=f"The examples are {known}.")


def example_rows(model_name: str = "visits") -> tuple[ExampleRow, ...]:
    """Return held-out rows of a model with their label: 2,000 of ``visits``, 200 of ``digits``.

    ``inputs`` has JSON types and fits the model's ``input_schema`` as it is.

    Raises:
        UnknownModel: If there are no rows of that model.
    """
    if model_name not in {example.model_name for example in example_versions()}:
        raise UnknownModel(f"no example rows of {model_name!r}")
    document = orjson.loads(gzip.decompress((_folder() / f"{model_name}_rows.json.gz").read_bytes()))
    return tuple(_rows_of(document))


def example_baselines(example: ExampleVersion) -> Baselines:
    """Return an example model's drift baselines: of its scores in training, and of its held-out rows' inputs."""
    trained = example.baseline
    features = compile_input_schema(example.input_schema).features
    profile = TrainingProfile(training_columns(features, [feature.name for feature in features], None, None))
    for row in example_rows(example.model_name):
        profile.add(row.inputs)
    scores = NumericBaseline(mean=trained["mean"], standard_deviation=trained["std"], rows=trained["count"])
    return Baselines(scores, profile.baselines().inputs)


def example_cases(example: ExampleVersion) -> list[dict[str, Any]]:
    """Return validation cases of an example version: held-out rows, each with what the version answered when trained.

    They are rows of a file as ``core.loading.cases`` reads them.
    """
    answers = orjson.loads((_folder() / "cases.json").read_bytes())[example.label]
    rows = example_rows(example.model_name)[: len(answers)]
    return [
        {"case_id": row.entity_id, **row.inputs, "expected": answer} for row, answer in zip(rows, answers, strict=True)
    ]


def _rows_of(document: Mapping[str, Any]) -> Iterator[ExampleRow]:
    names = document["features"]
    for number, values, label in document["rows"]:
        inputs = dict(zip(names, values, strict=True)) if len(names) > 1 else {names[0]: values}
        yield ExampleRow(f"row-{number:05d}", inputs, label)


def _folder() -> Traversable:
    return files("understudy") / "models"
