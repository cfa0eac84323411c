"""A file of sources is read whole, or refused with every place that is wrong."""

from pathlib import Path

import pytest

from understudy.adapters.files.refusal import FileRefused
from understudy.adapters.files.sources import read_sources
from understudy.core.rollout.sources.version_source import OnNew

ONE = "kind: mlflow\nmodel: fraud\nurl: https://mlflow.internal\nalias: challenger\ngroup: onnx\n"
IMAGE = "kind: oci\nmodel: visits\nurl: oci://registry.internal/models/visits:canary\ngroup: onnx\n"


def read(tmp_path: Path, text: str):
    path = tmp_path / "sources.yaml"
    path.write_text(text)
    return read_sources(path)


def test_a_source_has_what_the_file_says_and_else_the_defaults(tmp_path: Path):
    plain, full = read(
        tmp_path,
        ONE + "---\nkind: mlflow\nmodel: 1.10\nurl: http://127.0.0.1:5000/mlflow\nregistered_model: eu.fraud\n"
        "alias: next\nversion: eu-{version}\non_new: register\nendpoints: fraud-{version}:8080\n"
        "backend: {path_prefix: '/v{version}'}\ntoken_env: MLFLOW\n",
    )

    assert (plain.registered_model, plain.version, plain.on_new) == ("fraud", "{version}", OnNew.ROLLOUT)
    assert plain.name == "fraud@challenger"
    assert (full.model_name, full.registered_model, full.on_new) == ("1.10", "eu.fraud", OnNew.REGISTER)
    assert (plain.first_percent, plain.require_validation) == (10, False)
    assert (full.backend, full.token_env) == ({"path_prefix": "/v{version}"}, "MLFLOW")


def test_a_tag_of_an_image_is_a_source_as_an_alias_is(tmp_path: Path):
    [image] = read(tmp_path, IMAGE + "require_validation: true\nfirst_percent: 5\nplan: fast\n")

    assert (image.kind, image.alias, image.name) == ("oci", "canary", "visits@canary")
    assert (image.group, image.require_validation, image.first_percent, image.plan) == ("onnx", True, 5, "fast")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("[]", "1:1: expected one source"),
        ("kind: mlflow\nmodel: fraud\nurl: https://m\n", "1:1: alias is missing"),
        (ONE.replace("mlflow\n", "wandb\n", 1), "1:7: kind is mlflow or oci, not 'wandb'"),
        (ONE + "aliass: x\n", "6:1: there is no field 'aliass'"),
        (ONE + "alias: x\n", "6:1: alias is there twice: first on line 4"),
        (ONE + "plan: [1, 2]\n", "6:7: plan is a text"),
        (ONE + "plan:\n", "6:6: plan is a text"),
        (ONE + "version: new\n", "6:10: each version needs a label of its own"),
        (ONE + "endpoints: a:1\n", "6:12: agents of the group"),
        (ONE.replace("group: onnx\n", ""), "1:1: say where versions are served: group, endpoints, or backend with"),
        (ONE.replace("group: onnx", "backend: {model_name: fraud}"), "1:1: say where versions are served"),
        (ONE.replace("group: onnx", "endpoints: a:1\nrequire_validation: true"), "6:21: agents validate a version"),
        (ONE + "require_validation: yes\n", "6:21: require_validation is true or false, not 'yes'"),
        (ONE + "first_percent: 0\n", "6:16: first_percent is 1 to 100, not '0'"),
        (ONE + "first_percent: 1e1\n", "6:16: first_percent is 1 to 100, not '1e1'"),
        (ONE + "on_new: register\nfirst_percent: 5\n", "7:16: on_new: register starts no rollout"),
        (IMAGE + "alias: canary\n", "5:8: alias is of MLflow"),
        (IMAGE + "artifacts: s3://m\n", "5:12: artifacts is of MLflow"),
        (IMAGE.replace(":canary", ""), "3:6: expected oci://registry/repository:tag"),
        (IMAGE.replace("canary", "canary@sha256:" + "a" * 64), "3:6: an address with a digest is always the same"),
        (IMAGE.replace("oci://", "oci://ana:secret@"), "3:6: expected oci://registry/repository:tag"),
        (IMAGE.replace("oci://", "https://"), "3:6: expected oci://registry/repository:tag"),
        (ONE + "on_new: register\nplan: fast\n", "7:7: on_new: register starts no rollout"),
        (ONE + "on_new: validate\n", "6:9: on_new is register or rollout"),
        (ONE + "backend: x\n", "6:10: backend has names"),
        (ONE.replace("https://", "https://ana:secret@"), "3:6: a login is no part of url"),
        (ONE.replace("https://mlflow.internal", "s3://mlflow"), "3:6: url is http://HOST"),
        (ONE.replace("https://mlflow.internal", "https://[::1"), "3:6: url is http://HOST"),
        (ONE + "---\n" + ONE, "7:1: fraud has a source already, on line 1"),
        (ONE + "plan: &a fast\n", "anchors and aliases are not read"),
        (ONE + "plan: \x00\n", "no text may have"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, said: str):
    with pytest.raises(FileRefused) as refused:
        read(tmp_path, text)

    assert said in str(refused.value)
    assert "ana:secret" not in str(refused.value)


def test_all_problems_are_named_at_once(tmp_path: Path):
    with pytest.raises(FileRefused) as refused:
        read(tmp_path, "kind: wandb\nmodel: fraud\non_new: x\n")

    assert str(refused.value).count("sources.yaml:") == 4
