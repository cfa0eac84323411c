"""The signature of an MLflow model, as ``mlflow.log_model`` writes it, and what is none."""

import os

import pytest

from understudy.adapters.files.mlflow_model import MAX_BYTES, read_mlflow
from understudy.adapters.files.refusal import FileRefused
from understudy.core.schema.described import DescribedTensor

COLUMNS = """\
artifact_path: model
flavors:
  python_function:
    env:
      conda: conda.yaml
      virtualenv: python_env.yaml
    loader_module: mlflow.sklearn
    model_path: model.pkl
    python_version: 3.12.3
  sklearn:
    code: null
    pickled_model: model.pkl
    serialization_format: cloudpickle
    sklearn_version: 1.7.2
mlflow_version: 3.6.0
model_size_bytes: 1061
model_uuid: 0d1f66fc55a84b1a9d0f2f6a0a9d7d3f
run_id: 5c2cf8b7e0b34eb8bd2aaba5c1a1ea29
signature:
  inputs: '[{"type": "double", "name": "age", "required": true}, {"type": "string", "name": "plan",
    "required": false}, {"type": "datetime", "name": "since", "required": true}]'
  outputs: '[{"type": "long", "name": "predict", "required": true}]'
  params: null
utc_time_created: '2026-11-02 10:11:12.131415'
"""
TENSOR = """\
signature:
  inputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 28, 28]}}]'
  outputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 10]}}]'
"""


def test_each_column_is_a_tensor_of_one_value_and_the_only_answer_has_no_name(tmp_path):
    (tmp_path / "MLmodel").write_text(COLUMNS)

    found = read_mlflow(tmp_path)

    assert found.inputs == (
        DescribedTensor("age", "FP64", (-1, 1)),
        DescribedTensor("plan", "BYTES", (-1, 1), is_optional=True),
        DescribedTensor("since", "of the type datetime", (-1, 1)),
    )
    assert found.outputs == (DescribedTensor("", "INT64", (-1, 1)),)
    assert (found.source, found.framework) == (str(tmp_path), "mlflow")


def test_a_tensor_without_a_name_gets_one(tmp_path):
    (tmp_path / "MLmodel").write_text(TENSOR)

    found = read_mlflow(tmp_path)

    assert found.inputs == (DescribedTensor("input-0", "FP32", (-1, 28, 28)),)
    assert found.outputs == (DescribedTensor("", "FP32", (-1, 10)),)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("flavors: {}", "it has no signature"),
        ("", "it has no signature"),
        ("signature: {inputs: '{}'}", "the signature's inputs are no list in JSON"),
        ("signature: {inputs: '[1]'}", "the signature's inputs are no list in JSON"),
        ('signature: {inputs: \'[{"type": "tensor", "tensor-spec": {"dtype": "int8"}}]\'}', "a shape of a tensor"),
        ('signature: {inputs: \'[{"type": "long", "name": 7}]\'}', "a name that is no text"),
        ("a: &x [1]\nb: *x", "anchors and aliases are not read"),
        ("signature: !!python/object:os.system {}", "tags are not read"),
        ("a: [", "it is no YAML"),
        ("a: " + "x" * MAX_BYTES, "has more than 524,288 bytes"),
    ],
    ids=["none", "empty", "object", "numbers", "no shape", "name", "alias", "tag", "no YAML", "too long"],
)
def test_what_is_no_signature_is_refused_in_words(tmp_path, content, words):
    (tmp_path / "MLmodel").write_text(content)

    with pytest.raises(FileRefused, match=words):
        read_mlflow(tmp_path)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(FileRefused, match="MLmodel cannot be read: No such file"):
        read_mlflow(tmp_path)


def test_a_signature_that_is_a_device_or_a_pipe_is_refused_and_not_read_to_its_end(tmp_path):
    (tmp_path / "MLmodel").symlink_to("/dev/zero")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "MLmodel")

    for folder in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(FileRefused, match="it is a pipe or a device"):
            read_mlflow(folder)
