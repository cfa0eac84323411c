"""The bodies of the control plane: everything that is wrong is named at once, with its place."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.entrypoints.proxy.api.openapi.control import CONTROL
from understudy.entrypoints.proxy.control.bodies import (
    PolicyChange,
    Remark,
    RollbackAsked,
    RolloutStart,
    read_whole_number,
)
from understudy.errors import BodyInvalid, MalformedBody, RequestError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("version", "plan", "salt", "reason", "champion", "challenger_weight", "fallback", "category_roles", "x")


def body_of(**fields: Any) -> bytes:
    return orjson.dumps(fields)


start, read_remark, read_change = RolloutStart.read, Remark.read, PolicyChange.read


def pointers_of(refused: pytest.ExceptionInfo[BodyInvalid]) -> list[str]:
    return [pointer for pointer, _ in refused.value.violations]


@pytest.mark.parametrize(
    ("call", "read"), [("start_rollout", start), ("roll_back", RollbackAsked.read), ("change_policy", read_change)]
)
def test_the_description_has_the_fields_that_are_read_and_no_others(call, read):
    content = CONTROL[call]["openapi_extra"]["requestBody"]["content"]
    described = content["application/json"]["schema"]["properties"]

    with pytest.raises(BodyInvalid) as refused:
        read(body_of(nonsense=1))

    (said,) = [detail for pointer, detail in refused.value.violations if pointer == "/nonsense"]
    assert said.partition("there are ")[2].split(", ") == list(described)


def test_a_start_names_a_version_and_why():
    asked = start(body_of(version="7", reason="weekly"))

    assert (asked.version, asked.plan, asked.reason) == ("7", None, "weekly")


@pytest.mark.parametrize("plan", ["fast", "2,10,50,100", {"steps": [5, 100], "canary_limits": {"alpha": 0.01}}, None])
def test_a_plan_is_a_name_weights_an_object_or_left_to_the_risk(plan):
    assert start(body_of(version="7", reason="x", plan=plan)).plan == plan


PLAN = {"salt": "plan", "steps": [5, 100]}


@pytest.mark.parametrize(
    ("fields", "salt"),
    [
        ({}, "fresh"),
        ({"salt": "spring"}, "spring"),
        ({"salt": None}, None),
        ({"plan": PLAN}, "plan"),
        ({"plan": PLAN, "salt": None}, None),
    ],
)
def test_a_salt_is_fresh_unless_the_body_names_one_or_none(fields, salt):
    assert start(body_of(version="7", reason="x", **fields)).hashed_salt(lambda: "fresh") == salt


def test_a_dry_run_needs_no_reason():
    assert start(body_of(version="7"), dry_run=True).reason is None
    with pytest.raises(BodyInvalid) as refused:
        start(body_of(version="7"))
    assert pointers_of(refused) == ["/reason"]


def test_everything_that_is_wrong_with_a_start_is_named_at_once():
    with pytest.raises(BodyInvalid) as refused:
        start(body_of(version=7, salt="", reason="x" * 1_001, **{"a/b~c": 1}))

    assert set(pointers_of(refused)) == {"/version", "/salt", "/reason", "/a~1b~0c"}
    assert refused.value.detail == "4 problems"


@pytest.mark.parametrize(
    ("plan", "pointer"),
    [
        ("5,3", "/plan"),
        ("nowhere", "/plan"),
        (7, "/plan"),
        ({"steps": [10, {"weight_percent": 5}, 100]}, "/plan/steps/1/weight_percent"),
        ({"tea": 1}, "/plan/tea"),
        ({"canary_policy": "tea"}, "/plan/canary_policy"),
        ({"canary_limits": {"alpha": "a lot"}}, "/plan/canary_limits"),
        ({"canary_limits": {"tea": 1}}, "/plan/canary_limits"),
        ({"canary_limits": {"dwell_seconds": 60}}, "/plan/canary_limits/dwell_seconds"),
        ({"canary_limits": {"min_requests": 60}}, "/plan/canary_limits/min_requests"),
        ({"canary_limits": {"maximum_seconds": 60}}, "/plan/canary_limits/maximum_seconds"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused_at_its_place(plan, pointer):
    with pytest.raises(BodyInvalid) as refused:
        start(body_of(version="7", reason="x", plan=plan))

    assert pointer in pointers_of(refused)
    assert "a lot" not in str(refused.value.violations)


def test_a_reason_may_be_left_out_with_its_body():
    assert [read_remark(body).reason for body in (b"", b"{}", b'{"reason":null}')] == [None] * 3
    assert read_remark(body_of(reason="lunch")).reason == "lunch"
    with pytest.raises(BodyInvalid) as refused:
        read_remark(body_of(reson="lunch"))
    assert pointers_of(refused) == ["/reson"]


def test_a_change_holds_what_the_body_names_and_nothing_else():
    asked = read_change(body_of(challenger=None, challenger_weight=0, fallback=False, reason="over"))

    assert asked.changes == {"challenger": None, "challenger_weight": 0, "fallback": False}
    assert asked.reason == "over"


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({}, ""),
        ({"reason": "nothing else"}, ""),
        ({"champion": None}, "/champion"),
        ({"challenger_weight": 101}, "/challenger_weight"),
        ({"challenger_weight": True}, "/challenger_weight"),
        ({"shadow_percent": 1.0}, "/shadow_percent"),
        ({"fallback": 1}, "/fallback"),
        ({"category_roles": {"vip": "shadow"}}, "/category_roles/vip"),
        ({"category_roles": []}, "/category_roles"),
        ({"rollout_id": 4}, "/rollout_id"),
        ({"generation": 4}, "/generation"),
    ],
)
def test_a_change_that_cannot_be_used_is_refused_at_its_place(fields, pointer):
    with pytest.raises(BodyInvalid) as refused:
        read_change(body_of(**fields))

    assert pointer in pointers_of(refused)


@pytest.mark.parametrize("body", [b"[]", b"7", b"null", b'"x"'])
def test_a_body_is_an_object(body):
    for read in (start, read_change, read_remark):
        with pytest.raises(BodyInvalid) as refused:
            read(body)
        assert pointers_of(refused)[0] == ""


def test_a_body_that_is_no_json_is_refused_with_the_position():
    for read in (start, read_change, read_remark):
        with pytest.raises(MalformedBody, match="line 1"):
            read(b'{"reason": }')


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6))
def test_no_body_does_anything_but_be_read_or_be_refused(document):
    body = orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS)

    for read in (start, read_change, read_remark):
        try:
            read(body)
        except RequestError as problem:
            assert problem.detail


@given(st.text(max_size=20))
def test_a_number_fits_64_bits_or_is_none(text):
    number = read_whole_number(text)

    assert number is None or 0 <= number < 2**63
