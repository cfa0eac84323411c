"""What a server answers, as a document or as the error that the proxy raised."""

import pickle
from typing import Any

import orjson
import pytest

from understudy.client.problems import ProxyAway, away, error_of, late, retry_after, understood
from understudy.errors import InputInvalid, Overloaded, RequestError, Violation, leaf_errors

PROBLEM = {"code": "E507", "detail": "full", "next": "wait", "title": "x", "status": 503}


@pytest.mark.parametrize("kind", leaf_errors(), ids=lambda kind: kind.code)
def test_every_problem_of_a_proxy_becomes_its_own_error_again(kind):
    found = error_of({"code": kind.code, "title": kind.title, "detail": "so it was", "next": "do that"})

    assert found is not None
    assert type(found) is kind
    assert (found.detail, found.next_step, str(found)) == ("so it was", "do that", "so it was")


@pytest.mark.parametrize("kind", leaf_errors(), ids=lambda kind: kind.code)
def test_an_error_is_handed_on_by_a_process_pool_as_it_is(kind):
    places = [{"pointer": "/inputs/x", "detail": "missing"}]
    before = error_of({"code": kind.code, "detail": "so it was", "next": "do that", "errors": places})

    after = pickle.loads(pickle.dumps(before))

    assert (type(after), str(after), vars(after)) == (type(before), str(before), vars(before))


def test_so_are_a_deadline_that_the_client_kept_and_an_address_without_a_proxy():
    for before in (late(1.0, "POST http://proxy"), away(OSError("refused"), "POST http://proxy")):
        after = pickle.loads(pickle.dumps(before))

        assert (type(after), str(after), vars(after)) == (type(before), str(before), vars(before))


def test_the_places_that_a_problem_names_come_along():
    found = error_of(
        {"code": "E101", "detail": "2 problems", "errors": [{"pointer": "/inputs/x", "detail": "missing"}]}
    )

    assert isinstance(found, RequestError)
    assert found.violations == (Violation("/inputs/x", "missing"),)
    assert found.next_step == InputInvalid.hint


def test_the_text_of_an_error_says_which_places_are_wrong_and_why():
    places = [{"pointer": "/inputs/age", "detail": "missing"}, {"pointer": "", "detail": "expected an object"}]
    found = error_of({"code": "E101", "detail": "2 problems", "errors": places})
    many = error_of({"code": "E101", "detail": "50 problems", "errors": places * 25})

    assert str(found) == "2 problems\n  /inputs/age: missing\n  the body: expected an object"
    assert found is not None
    assert found.detail == "2 problems"
    assert found.__notes__ == [f"E101, what to do next: {InputInvalid.hint}"]
    assert str(many).endswith("\n  and 30 more: violations has all")


@pytest.mark.parametrize("document", [{}, {"code": "E999"}, {"code": None}])
def test_a_problem_that_is_none_of_ours_is_not_taken_for_one(document: dict[str, Any]):
    assert error_of(document) is None


def test_a_problem_is_the_error_that_it_names_with_the_servers_hint():
    with pytest.raises(Overloaded) as raised:
        understood(503, {"retry-after": "2"}, orjson.dumps(PROBLEM))

    assert (raised.value.detail, raised.value.next_step, raised.value.retry_after_seconds) == ("full", "wait", 2)


def test_without_the_hint_nothing_is_asked_for():
    with pytest.raises(Overloaded) as raised:
        understood(503, {}, orjson.dumps(PROBLEM))

    assert raised.value.retry_after_seconds is None


def test_places_come_with_the_error():
    places = [{"pointer": "/inputs/age", "detail": "missing"}, "no place"]
    with pytest.raises(InputInvalid) as raised:
        understood(422, {}, orjson.dumps({"code": "E101", "detail": "1 problem", "errors": places}))

    assert [tuple(place) for place in raised.value.violations] == [("/inputs/age", "missing")]


@pytest.mark.parametrize("places", [5, "x", {"pointer": "/"}, True, None])
def test_places_of_another_form_are_none(places):
    with pytest.raises(InputInvalid) as raised:
        understood(422, {}, orjson.dumps({"code": "E101", "detail": "1 problem", "errors": places}))

    assert raised.value.violations == ()


@pytest.mark.parametrize(
    ("status", "body", "is_passing"),
    [(503, b"<html>", True), (429, b"{}", True), (404, b"<html>", False), (200, b"[1]", False), (200, b"", False)],
)
def test_another_server_is_named_as_such(status, body, is_passing):
    with pytest.raises(ProxyAway, match=r"no Understudy proxy|no proxy of this version") as raised:
        understood(status, {"content-type": "text/html", "retry-after": "7"}, body)

    assert (raised.value.is_passing, raised.value.retry_after_seconds) == (is_passing, 7)


def test_the_text_says_what_was_called_how_often_and_what_to_do_next():
    found = away(OSError("connection refused"), "POST http://proxy:8080/v1/models/visits/predict")
    found.tried = "3 attempts in 0.31 s"

    assert str(found) == (
        "POST http://proxy:8080/v1/models/visits/predict: no proxy answers: connection refused (3 attempts in 0.31 s). "
        f"{found.next_step}"
    )
    assert "UNDERSTUDY_PROXY_URL" in found.next_step
    assert str(ProxyAway("what a caller of its own names")) == "what a caller of its own names"


@pytest.mark.parametrize("said", ["", "soon", "-1", "1.5", "9999999", "Fri, 20 Nov 2026 12:00:00 GMT", "²"])
def test_what_is_no_number_of_seconds_is_no_hint(said):
    assert retry_after({"retry-after": said}) is None
    assert retry_after({"retry-after": " 30 "}) == 30
