"""The fields of a policy's file: those that a policy has, and their JSON Schema."""

import json
from pathlib import Path

from understudy.core.routing.policy_file import (
    FIELDS,
    Entries,
    Place,
    PolicyFile,
    Scalar,
    policy_file_schema,
    read_policy_file,
)
from understudy.registry.changes import POLICY_FIELDS

HERE = Place(1, 1)


def test_a_file_has_every_field_of_a_policy_that_people_set():
    assert set(FIELDS) == set(POLICY_FIELDS) - {"rollout_id"}


def test_the_schema_names_every_field_and_refuses_others():
    schema = policy_file_schema()

    assert list(schema["properties"]) == ["$schema", "model", *FIELDS]
    assert schema["additionalProperties"] is False
    assert all(field["description"] for field in schema["properties"].values())


def test_a_field_that_is_left_out_is_no_field_of_the_file():
    entries = [("model", Scalar(Place(1, 8), "fraud")), ("guard", Scalar(Place(2, 8), "off"))]
    document = Entries(HERE, [(Scalar(HERE, name), value) for name, value in entries])

    file = read_policy_file("fraud.yaml", document)

    assert isinstance(file, PolicyFile)
    assert file.fields == {"guard": "off"}
    assert str(file.problem("champion", "is missing")) == "fraud.yaml:1:8: is missing"


def test_the_schema_for_editors_is_the_one_that_is_printed():
    committed = (Path(__file__).resolve().parents[4] / "deploy" / "policy.schema.json").read_text(encoding="utf-8")

    assert committed == json.dumps(policy_file_schema(), indent=2) + "\n"
