"""Each error has a gRPC status, and what is sent with it stays within what clients take."""

from urllib.parse import quote

import grpc
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy import errors
from understudy.entrypoints.proxy.rpc.statuses import (
    CODE,
    ERRORS,
    MAX_PROBLEM_BYTES,
    MAX_SENTENCE_BYTES,
    PUSHBACK,
    code_of,
    status_parts,
)
from understudy.errors import InputInvalid, Violation, leaf_errors

PATH = "/inference.GRPCInferenceService/ModelInfer"
CODES = {
    errors.MalformedBody: "INVALID_ARGUMENT",
    errors.InputInvalid: "INVALID_ARGUMENT",
    errors.BodyTooLarge: "RESOURCE_EXHAUSTED",
    errors.UnknownModel: "NOT_FOUND",
    errors.Unauthenticated: "UNAUTHENTICATED",
    errors.ScopeMissing: "PERMISSION_DENIED",
    errors.NotOffered: "UNIMPLEMENTED",
    errors.QuotaExceeded: "RESOURCE_EXHAUSTED",
    errors.BadAnswer: "INTERNAL",
    errors.InternalFault: "INTERNAL",
    errors.BackendUnavailable: "UNAVAILABLE",
    errors.VersionUnloaded: "UNAVAILABLE",
    errors.Overloaded: "RESOURCE_EXHAUSTED",
    errors.NotLogged: "UNAVAILABLE",
}


@pytest.mark.parametrize("error", leaf_errors())
def test_every_error_has_a_code_that_says_that_it_failed(error):
    assert code_of(error.__new__(error)) not in {grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN}


@pytest.mark.parametrize(("error", "code"), CODES.items())
def test_the_codes_are_those_that_clients_act_on(error, code):
    assert code_of(error()).name == code


def test_a_client_is_told_whether_to_try_again():
    overloaded = dict(status_parts(errors.Overloaded(), PATH, None)[1])
    away = dict(status_parts(errors.BackendUnavailable("none"), PATH, None)[1])
    unloaded = dict(status_parts(errors.VersionUnloaded("2 is loaded at no server"), PATH, None)[1])
    quota = dict(status_parts(errors.QuotaExceeded(retry_after_seconds=7), PATH, None)[1])

    assert (overloaded[PUSHBACK], away[PUSHBACK], quota.get(PUSHBACK)) == ("-1", "1000", None)
    assert (overloaded["retry-after"], quota["retry-after"]) == ("1", "7")
    assert (unloaded[CODE], unloaded["retry-after"], unloaded[PUSHBACK]) == ("E509", "10", "10000")


def test_the_sentence_names_the_row_the_place_and_the_next_step():
    sentence, trailers = status_parts(InputInvalid.naming(Violation("/inputs/0/data/3", "is NaN")), PATH, 1)

    assert sentence.startswith("E101 The inputs do not match the model version: row 1: 1 problem, at /inputs/0/data/3")
    assert "Next: " in sentence
    problem = orjson.loads(dict(trailers)[ERRORS])
    assert (dict(trailers)[CODE], problem["instance"], len(problem["errors"])) == ("E101", PATH, 1)


@given(
    st.lists(st.tuples(st.text(max_size=300), st.text(max_size=300)), min_size=1, max_size=40), st.text(max_size=900)
)
def test_what_is_sent_with_a_status_is_bounded_whatever_an_error_names(places, detail):
    error = InputInvalid(detail, tuple(Violation(f"/{pointer}", what) for pointer, what in places))

    sentence, trailers = status_parts(error, PATH, None)

    assert len(quote(sentence)) <= MAX_SENTENCE_BYTES
    assert len(dict(trailers).get(ERRORS, b"")) <= MAX_PROBLEM_BYTES
