"""A file of sources is read whole, or refused with every place that is wrong."""

from pathlib import Path

import pytest

from understudy.adapters.files.refusal import FileRefused
from understudy.adapters.files.sources import read_sources
from understudy.core.rollout.sources.version_source import OnNew

ONE = "kind: mlflow\nmodel: fraud\nurl: https://mlflow.internal\nalias: challenger\n"


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
    assert (full.backend, full.token_env) == ({"path_prefix": "/v{version}"}, "MLFLOW")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("[]", "1:1: expected one source"),
        ("kind: mlflow\nmodel: fraud\nurl: https://m\n", "1:1: alias is missing"),
        (ONE.replace("mlflow\n", "wandb\n", 1), "1:7: kind is mlflow, not 'wandb'"),
        (ONE + "aliass: x\n", "5:1: there is no field 'aliass'"),
        (ONE + "alias: x\n", "5:1: alias is there twice: first on line 4"),
        (ONE + "plan: [1, 2]\n", "5:7: plan is a text"),
        (ONE + "plan:\n", "5:6: plan is a text"),
        (ONE + "version: new\n", "5:10: each version needs a label of its own"),
        (ONE + "group: gpu\nendpoints: a:1\n", "6:12: agents of the group"),
        (ONE + "on_new: register\nplan: fast\n", "6:7: on_new: register starts no rollout"),
        (ONE + "on_new: validate\n", "5:9: on_new is register or rollout"),
        (ONE + "backend: x\n", "5:10: backend has names"),
        (ONE.replace("https://", "https://ana:secret@"), "3:6: a login is no part of url"),
        (ONE.replace("https://mlflow.internal", "s3://mlflow"), "3:6: url is http://HOST"),
        (ONE.replace("https://mlflow.internal", "https://[::1"), "3:6: url is http://HOST"),
        (ONE + "---\n" + ONE, "6:1: fraud has a source already, on line 1"),
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
