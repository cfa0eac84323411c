"""What a gRPC status means for the replica and for the caller."""

import grpc
import grpc.aio
import pytest

from understudy.adapters.model_servers.status import MAX_DETAIL_CHARACTERS, NotTaken, result_of, said, translated
from understudy.core.upstream.replicas import CallResult
from understudy.errors import BadAnswer, DeadlineExceeded

MARK = "org.pytorch.serve."


def an_error(code: grpc.StatusCode, details: str = "") -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


@pytest.mark.parametrize(
    ("code", "details", "result"),
    [
        (grpc.StatusCode.UNAVAILABLE, "", CallResult.UNAVAILABLE),
        (grpc.StatusCode.UNAVAILABLE, f"{MARK}http.BadRequestException", CallResult.REFUSED),
        (grpc.StatusCode.INTERNAL, "", CallResult.REFUSED),
        (grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2", CallResult.UNAVAILABLE),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "", CallResult.UNABLE),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 4)", CallResult.REFUSED),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", CallResult.LATE),
        (grpc.StatusCode.INVALID_ARGUMENT, "", CallResult.REFUSED),
    ],
)
def test_a_status_and_its_details_say_what_is_held_against_the_replica(code, details, result):
    assert result_of(an_error(code, details), MARK) is result


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (CallResult.LATE, DeadlineExceeded),
        (CallResult.UNABLE, NotTaken),
        (CallResult.UNAVAILABLE, NotTaken),
        (CallResult.REFUSED, BadAnswer),
    ],
)
def test_only_a_call_that_another_replica_may_take_is_not_taken(result, kind):
    assert type(translated(an_error(grpc.StatusCode.INTERNAL), result, 1.0)) is kind


def test_a_servers_words_are_kept_as_one_short_printable_line():
    words = said(an_error(grpc.StatusCode.INTERNAL, "no\nsuch \x1b[31m tensor " + "x" * 1_000))

    assert words.startswith("no such [31m tensor x")
    assert len(words) == MAX_DETAIL_CHARACTERS
