"""A version as an engineer describes it."""

import pytest

from understudy.registry.version_description import problems_of


def test_the_three_fields_that_a_version_needs_are_enough():
    assert problems_of({"artifact_path": "s3://models/7", "framework": "sklearn", "input_schema": {}}) == []


def test_a_description_of_a_version_is_refused_with_everything_that_is_wrong_with_it():
    problems = problems_of({"framework": 7, "input_schema": {}, "timeout_ms": True, "colour": "red", "endpoints": [1]})

    assert problems == [
        "artifact_path is missing",
        "framework is not str",
        "timeout_ms is not int",
        "colour is no field of a version",
        "endpoints is a list of host:port",
    ]


@pytest.mark.parametrize("name", ["base_model", "family"])
def test_a_base_model_and_its_family_are_names_of_a_bounded_length_or_absent(name):
    described = {"artifact_path": "s3://models/7", "framework": "sklearn", "input_schema": {}}

    assert problems_of({**described, name: None}) == problems_of({**described, name: "x" * 255}) == []
    assert problems_of({**described, name: ""}) == [f"{name} has 0 characters: 1 to 255"]
    assert problems_of({**described, name: "x" * 256}) == [f"{name} has 256 characters: 1 to 255"]
    assert problems_of({**described, name: 7}) == [f"{name} is not str"]


@pytest.mark.parametrize("described", [None, [], "text", 7])
def test_a_description_is_one_object(described):
    assert problems_of(described) == ["it is not one JSON object"]


def test_an_address_with_a_login_is_refused_without_repeating_it():
    described = {"framework": "onnx", "input_schema": {}}

    (problem,) = problems_of({**described, "artifact_path": "s3://key:secret@models/7"})

    assert problem == "artifact_path has a login in it: the process that reads the artifact has one in its environment"
    assert problems_of({**described, "artifact_path": "oci://r/visits:7@sha256:ab"}) == []


def test_an_address_in_a_store_has_no_query_string_which_may_be_a_signature():
    described = {"framework": "onnx", "input_schema": {}}

    for address in ("s3://models/7?X-Amz-Signature=secret", "oci://r/visits:7?x=secret"):
        (problem,) = problems_of({**described, "artifact_path": address})
        assert problem == "artifact_path has a query string, which is not read and may be a signature: leave it out"
    assert problems_of({**described, "artifact_path": "visits/7?"}) == []
