"""The version that a source registers: like the champion, but for its files and where it is served."""

from datetime import UTC, datetime

import pytest

from understudy.core.rollout.sources.version_source import NOTE, Offered, SourceSpec
from understudy.core.schema.described import DescribedModel, DescribedTensor
from understudy.errors import ModelContradicts
from understudy.ports.registry.registry import VersionRecord
from understudy.rollout.source_follower import new_version

SCHEMA = {
    "features": [{"name": "age", "dtype": "float32"}, {"name": "income", "dtype": "float32"}],
    "tensors": [{"name": "x", "dtype": "float32", "features": ["age", "income"]}],
}
CHAMPION = VersionRecord(
    id=6, model_name="fraud", version="6", status="champion", artifact_path="s3://m/6", artifact_digest="sha256:6",
    base_model="trees-v2", family="trees", framework="sklearn", protocol="oip", endpoints=("models:8001",),
    input_schema=SCHEMA, output_schema={"tensor": "p"}, metrics={"auc": 0.9}, backend={"model_name": "fraud"},
    deterministic=False, cache_ttl_seconds=60, timeout_ms=80, created_at=datetime(2026, 11, 1, tzinfo=UTC),
    deployed_at=None,
)  # fmt: skip
SPEC = SourceSpec("mlflow", "fraud", "https://mlflow", "eu.fraud", "challenger")
OFFERED = Offered("7", "mlflow-artifacts:/1/m-9", {"registered_model": "eu.fraud", "version": "7"}, "ana")


def said(size: int = 2) -> DescribedModel:
    return DescribedModel("version 7 of eu.fraud", (DescribedTensor("x", "FP32", (-1, size)),), (), "mlflow")


def test_it_has_the_champions_schemas_and_settings_and_says_what_it_is_from():
    new = new_version(SPEC, OFFERED, "7", CHAMPION, said())

    assert (new.input_schema, new.output_schema, new.protocol) == (SCHEMA, {"tensor": "p"}, "oip")
    assert (new.deterministic, new.cache_ttl_seconds, new.timeout_ms) == (False, 60, 80)
    assert (new.base_model, new.family, new.framework) == ("trees-v2", "trees", "mlflow")
    assert (new.endpoints, new.backend, new.group_name) == (("models:8001",), {"model_name": "fraud"}, None)
    assert new.metrics == {NOTE: {"kind": "mlflow", "url": "https://mlflow", **OFFERED.note}}
    assert new.artifact_digest is None


def test_its_servers_and_files_are_those_that_the_source_names():
    own = SPEC._replace(
        endpoints="a-{version}:1, b-{version}:1", backend={"model_name": "fraud-{version}"}, artifacts="s3://store"
    )
    by_agents = SPEC._replace(group="onnx")

    served = new_version(own, OFFERED, "7", CHAMPION, said())
    loaded = new_version(by_agents, OFFERED, "7", CHAMPION, said())

    assert (served.endpoints, served.backend) == (("a-7:1", "b-7:1"), {"model_name": "fraud-7"})
    assert served.artifact_path == "s3://store/1/m-9"
    assert (loaded.endpoints, loaded.group_name) == ((), "onnx")


def test_a_model_with_other_tensors_is_refused_with_what_differs():
    with pytest.raises(ModelContradicts, match=r"version 7 of eu\.fraud is unlike version 6: the input x"):
        new_version(SPEC, OFFERED, "7", CHAMPION, said(3))
