import hashlib
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.adapters.dev_server.example_models import (
    ExampleVersion,
    example_baselines,
    example_rows,
    example_version,
    example_versions,
)
from understudy.adapters.dev_server.onnx import OnnxModel
from understudy.core.drift.baseline import NumericBaseline, baselines_of, baselines_to_json
from understudy.core.schema.compile import compile_input_schema, compile_output_schema
from understudy.errors import InputInvalid, UnknownModel, UnknownVersion

EVERY_VERSION = pytest.mark.parametrize("example", example_versions(), ids=lambda example: example.label)


def answers_of(example: ExampleVersion) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the probabilities for the held-out rows, assembled as the proxy does it, and their labels."""
    schema = compile_input_schema(example.input_schema)
    rows = example_rows(example.model_name)
    content = b"".join(schema.assemble(row.inputs).row[0] for row in rows)
    inputs = np.frombuffer(content, "<f4").reshape(len(rows), schema.tensors[0].size)
    outputs = OnnxModel(example.read(), example.label).run({"input": inputs})
    return outputs["probabilities"], np.array([row.label for row in rows])


def auc_of(scores: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """Return the chance that a positive scores above a negative, a tie counting half (its definition)."""
    positive, negative = scores[labels == 1], scores[labels == 0]
    differences = positive[:, None] - negative[None, :]
    return float((differences > 0).mean() + (differences == 0).mean() / 2)


def auc_by_version() -> dict[int, float]:
    visits = [example for example in example_versions() if example.model_name == "visits"]
    answers = {example.version: answers_of(example) for example in visits}
    return {version: auc_of(scores[:, 1], labels) for version, (scores, labels) in answers.items()}


@pytest.mark.deep
def test_on_held_out_rows_the_challenger_is_better_than_the_champion_and_the_bad_one_worse():
    auc = auc_by_version()

    assert auc[2] > auc[1] + 0.02
    assert auc[3] < auc[1] - 0.05
    assert auc[4] > auc[1] + 0.02


def test_the_stated_auc_is_the_one_that_the_committed_rows_give_within_sampling_error():
    auc = auc_by_version()

    # 2,000 of the 5,048 test rows: the standard error of an AUC near 0.65 with 1,375 and 625 of a class is 0.013.
    for version, measured in auc.items():
        assert measured == pytest.approx(example_version("visits", version).metrics["auc"], abs=3 * 0.013)


def test_the_digits_champion_names_the_right_one_of_ten_digits():
    probabilities, labels = answers_of(example_version("digits", 1))

    assert probabilities.shape == (200, 10)
    assert (probabilities.argmax(axis=1) == labels).mean() > 0.9


@EVERY_VERSION
def test_a_listed_file_is_the_file_that_was_measured(example):
    content = example.read()

    assert hashlib.sha256(content).hexdigest() == example.sha256
    assert len(content) <= 120 * 1_024


@EVERY_VERSION
def test_the_schemas_describe_the_tensors_of_the_file(example):
    inputs, outputs = compile_input_schema(example.input_schema), compile_output_schema(example.output_schema)

    onnx = OnnxModel(example.read(), example.label)

    assert [(spec.name, spec.datatype, spec.shape[1:]) for spec in onnx.inputs] == [
        (spec.name, spec.datatype, spec.shape) for spec in inputs.tensors
    ]
    by_name = {spec.name: spec for spec in onnx.outputs}
    assert outputs.tensor is not None
    assert (by_name[outputs.tensor].datatype, by_name[outputs.tensor].shape[1:]) == (outputs.datatype, outputs.shape)


@EVERY_VERSION
def test_every_feature_of_an_example_tells_a_reader_what_it_is(example):
    descriptions = [feature["description"] for feature in example.input_schema["features"]]

    assert all(len(description) > 10 for description in descriptions)


@EVERY_VERSION
def test_held_out_answers_and_inputs_are_like_the_baselines(example):
    probabilities, _ = answers_of(example)
    scores = probabilities[:, 1] if example.model_name == "visits" else probabilities.max(axis=1)

    found = example_baselines(example)

    assert baselines_of({"baseline": baselines_to_json(found)}) == found
    assert isinstance(found.prediction, NumericBaseline)
    assert abs(scores.mean() - found.prediction.mean) < 0.1 * found.prediction.standard_deviation
    single = [feature["name"] for feature in example.input_schema["features"] if not feature.get("shape")]
    assert list(found.inputs) == single
    assert all(baseline.rows == len(example_rows(example.model_name)) for baseline in found.inputs.values())


@EVERY_VERSION
def test_the_baseline_histogram_holds_every_training_row(example):
    baseline = example.baseline

    assert sum(baseline["bin_counts"]) == baseline["count"] > 1_000
    assert len(baseline["bin_edges"]) == len(baseline["bin_counts"]) + 1
    centres = (np.array(baseline["bin_edges"][:-1]) + np.array(baseline["bin_edges"][1:])) / 2
    # The mean of binned values is off by at most half a bin.
    assert np.average(centres, weights=baseline["bin_counts"]) == pytest.approx(baseline["mean"], abs=0.025)
    assert 0 < baseline["std"] < math.sqrt(baseline["mean"] * (1 - baseline["mean"]))


def test_the_rows_are_2000_different_entities_of_both_classes():
    rows = example_rows()

    assert len(rows) == len({row.entity_id for row in rows}) == 2_000
    assert {row.label for row in rows} == {0, 1}


def test_an_unknown_example_is_refused_with_the_known_ones():
    with pytest.raises(UnknownVersion) as refused:
        example_version("visits", 9)
    with pytest.raises(UnknownModel):
        example_rows("parrots")

    assert "visits:1, visits:2" in refused.value.next_step


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input": np.zeros((1, 8), np.float32)}, r"must have shape \[-1, 9\], has \[1, 8\]"),
        ({"input": np.zeros(9, np.float32)}, r"has \[9\]"),
        ({"input": np.zeros((1, 9), np.float64)}, "must be FP32, is float64"),
        ({"inputs": np.zeros((1, 9), np.float32)}, r"missing \['input'\], not known \['inputs'\]"),
    ],
)
def test_a_model_refuses_tensors_that_are_not_its_own(inputs, message):
    onnx = OnnxModel(example_version("visits", 1).read(), "visits:1")

    with pytest.raises(InputInvalid, match=message):
        onnx.run(inputs)


def test_a_file_that_is_no_model_is_refused_by_name():
    with pytest.raises(UnknownVersion, match="parrots:1 is not an ONNX model"):
        OnnxModel(b"not a model", "parrots:1")
