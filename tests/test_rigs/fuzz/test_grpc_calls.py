"""What a call over gRPC ended with is judged by its class, and a bomb by what it must be refused as."""

import grpc
import pytest

from rigs.fuzz.attack import Tally
from rigs.fuzz.grpc_calls import judge_call
from rigs.fuzz.grpc_messages import INFER, GrpcCase

PLAIN = GrpcCase(INFER, b"")
BOMB = GrpcCase(INFER, b"", "gzip", frozenset({"E103"}))


@pytest.mark.parametrize(
    ("case", "code", "details", "is_found"),
    [
        (PLAIN, grpc.StatusCode.OK, "", False),
        (PLAIN, grpc.StatusCode.INVALID_ARGUMENT, "E100 The body is no JSON", False),
        (PLAIN, grpc.StatusCode.INTERNAL, "E502 The model server", False),
        (PLAIN, grpc.StatusCode.INTERNAL, "E500 A defect", True),
        (BOMB, grpc.StatusCode.RESOURCE_EXHAUSTED, "E103 The body is too long", False),
        (BOMB, grpc.StatusCode.RESOURCE_EXHAUSTED, "E507 The proxy is overloaded", True),
        (BOMB, grpc.StatusCode.OK, "", True),
    ],
)
def test_a_call_that_ended_otherwise_is_found(case, code, details, is_found):
    assert bool(judge_call(case, code, details)) is is_found


def test_two_tallies_of_a_class_are_one():
    found, other = Tally("bombs"), Tally("bombs")
    found.note([], b"a", 1.0)
    other.note(["no answer"], b"b", 2.0)
    other.statuses["413"] += 1

    found.add(other)

    assert (found.sent, found.broken, found.slowest_seconds) == (2, 1, 2.0)
    assert (dict(found.statuses), found.findings) == ({"413": 1}, {"no answer": b"b"})
