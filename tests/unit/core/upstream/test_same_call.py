"""Versions that a model server does not tell apart."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from understudy.core.upstream.same_call import same_call, same_calls

AT = ("127.0.0.1:8611",)


class Called(NamedTuple):
    """What says whom a version's calls go to."""

    version: str
    backend: Mapping[str, Any] = {}
    protocol: str = "oip"
    endpoints: tuple[str, ...] = AT
    model_name: str = "spend"


def test_two_versions_that_leave_it_to_one_server_are_the_same_call():
    found = same_call(Called("2"), Called("1"))

    assert found is not None
    assert found.is_certain
    assert found.words == "1 and 2 are the same call at 127.0.0.1:8611: one model there answers both"
    assert found.advice.startswith("Register 1 with --backend version=1 and 2 with --backend version=2, or as")


def test_one_that_leaves_it_to_the_server_may_get_the_model_that_the_other_one_names():
    found = same_call(Called("2", {"version": "2"}), Called("1"))

    assert found is not None
    assert not found.is_certain
    assert found.words == "1 lets the server at 127.0.0.1:8611 choose its version, which may be the model of 2"
    assert found.advice.startswith("Register 1 with --backend version=1, or as")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Called("2", {"version": "2"}), Called("1", {"version": "1"})),
        (Called("2", {"model_name": "spend-2"}), Called("1")),
        (Called("2", endpoints=("127.0.0.1:8612",)), Called("1")),
        (Called("2", endpoints=()), Called("1", endpoints=())),
        (Called("2", protocol="tfserving"), Called("1", protocol="oip")),
        (Called("2", {"signature_name": "rank"}, "tfserving"), Called("1", protocol="tfserving")),
        (Called("2", {"path_prefix": "/2"}, "oip-http"), Called("1", {"path_prefix": "/1"}, "oip-http")),
        (Called("2", {"path": "/2/score"}, "json"), Called("1", {"path": "/1/score"}, "json")),
        (Called("2", {"token_env": "UNDERSTUDY_BACKEND_TOKEN_2"}), Called("1")),
    ],
)
def test_a_server_that_can_tell_two_versions_apart_is_no_finding(one, other):
    assert same_call(one, other) is None
    assert same_call(other, one) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Called("2", {"version": 7}), Called("1", {"version": "7"})),
        (Called("2", {"model_name": "spend"}), Called("1")),
        (Called("2", {"hedge": False, "typed_contents": True}), Called("1")),
        (Called("2", {"signature_name": "serving_default"}, "tfserving"), Called("1", {"version": 0}, "tfserving")),
        (Called("2", {"version": "2", "model_name": "spend-2"}, "mlflow"), Called("1", {}, "mlflow")),
        (Called("2", {"path": "/score"}, "json"), Called("1", {"path": "/score"}, "json")),
        (Called("2", endpoints=("a:1", *AT)), Called("1", endpoints=(*AT, "b:1"))),
    ],
)
def test_settings_that_choose_no_model_tell_no_two_versions_apart(one, other):
    found = same_call(one, other)

    assert found is not None
    assert found.is_certain
    assert found.endpoints == AT


def test_a_protocol_that_names_no_version_has_another_advice():
    found = same_call(Called("2", {"version": "2"}, "mlflow"), Called("1", {"version": "1"}, "mlflow"))

    assert found is not None
    assert found.advice == "Give each a server of its own: calls of this protocol name no version."


def test_a_version_is_not_compared_with_itself():
    assert [found.other for found in same_calls(Called("2"), [Called("1"), Called("2"), Called("3")])] == ["1", "3"]
