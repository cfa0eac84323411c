"""An answer of HTTP/1.1 is the same however its bytes are cut, and is bounded."""

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters.model_servers.channels import MAX_ANSWER_BYTES
from understudy.adapters.model_servers.http.answer_reader import (
    MAX_HEAD_BYTES,
    MAX_WIRE_BYTES,
    AnswerReader,
    HttpAnswer,
)
from understudy.adapters.model_servers.http_failures import HttpCallFailed

ANSWERS = {
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello": HttpAnswer(200, b"hello"),
    b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n": HttpAnswer(
        404, b"hello"
    ),
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n": HttpAnswer(200, b""),
    b"HTTP/1.1 206 Partial\r\ncontent-length: 0\r\nx: y\r\n\r\n": HttpAnswer(206, b""),
}


@given(st.sampled_from(sorted(ANSWERS)), st.data())
def test_an_answer_is_the_same_however_it_is_cut(text, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1), max_size=6)))
    reader = AnswerReader()

    found = [reader.feed(text[start:end]) for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert found == [None] * len(cuts) + [ANSWERS[text]]
    assert not reader.is_last


@given(st.binary(max_size=300))
def test_whatever_comes_is_an_answer_or_a_failure_with_its_reason(noise):
    reader = AnswerReader()
    try:
        reader.feed(b"HTTP/1.1 200 OK\r\n" + noise)
        reader.end()
    except HttpCallFailed as failure:
        assert failure.what


@pytest.mark.parametrize(
    "text", [b"HTTP/1.0 200 OK\r\n\r\nhello", b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello"]
)
def test_an_answer_without_a_length_ends_with_its_connection(text):
    reader = AnswerReader()

    assert reader.feed(text) is None
    assert (reader.end(), reader.is_last) == (HttpAnswer(200, b"hello"), True)


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_an_answer_that_ends_early_is_none(cut):
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello"[:cut])

    with pytest.raises(HttpCallFailed) as caught:
        reader.end()
    assert caught.value.why == "the answer ended early"


def fed_until_refused(begin: bytes, more: bytes) -> tuple[int, HttpCallFailed]:
    """How many bytes of ``more`` are read before the answer is refused."""
    reader, fed = AnswerReader(), 0
    reader.feed(begin)
    while fed <= 3 * MAX_ANSWER_BYTES:
        try:
            reader.feed(more)
        except HttpCallFailed as failure:
            return fed, failure
        fed += len(more)
    raise AssertionError("it was never refused")


def test_no_more_is_kept_of_an_answer_than_it_may_have():
    fed, failure = fed_until_refused(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65_536)

    assert (fed, failure.what) == (MAX_ANSWER_BYTES, "an answer of more than 4,194,304 bytes")


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ENDLESS = {
    "a head": (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n", "its head"),
    "interim answers": (b"", b"HTTP/1.1 102 Processing\r\n\r\n", "its head"),
    "the extension of a chunk": (CHUNKED + b"3;", b"x=y;", "between the parts of its body"),
    "the trailers": (CHUNKED + b"3\r\nabc\r\n0\r\nx: ", b"yyyy", "between the parts of its body"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_nor_of_what_is_no_body_and_has_no_end(what):
    begin, more, place = ENDLESS[what]
    fed, failure = fed_until_refused(begin, 100 * more)

    assert failure.why == f"{place} has more than 65,536 bytes"
    assert fed <= MAX_HEAD_BYTES


def test_chunks_that_are_more_than_what_is_in_them_are_not_read_for_ever():
    fed, failure = fed_until_refused(CHUNKED, 500 * (b"1;" + b"x" * 128 + b"\r\na\r\n"))

    assert failure.why == "its chunks are more than what is in them"
    assert fed <= MAX_WIRE_BYTES


@pytest.mark.parametrize("status", [204, 304])
def test_after_an_answer_that_has_no_body_and_says_otherwise_its_connection_is_not_kept(status):
    reader = AnswerReader()

    assert reader.feed(b"HTTP/1.1 %d \r\ncontent-length: 5\r\n\r\n" % status) == HttpAnswer(status, b"")
    assert reader.is_last


def test_what_has_no_status_is_no_interim_answer_whose_body_stands_before_that_of_the_next():
    with pytest.raises(HttpCallFailed) as caught:
        AnswerReader().feed(b"HTTP/1.1 000 \r\ncontent-length: 1\r\n\r\n1HTTP/1.1 200 \r\ncontent-length: 1\r\n\r\n2")

    assert caught.value.why == "its status is none"


@pytest.mark.parametrize(
    "text",
    [
        *sorted(ANSWERS),
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (MAX_ANSWER_BYTES + 1) + bytes(200_000),
        b"noise",
    ],
)
def test_a_reader_is_freed_once_its_answer_is_whole_or_refused(text):
    gc.disable()
    try:
        reader = AnswerReader()
        freed = weakref.ref(reader)
        try:
            reader.feed(text)
        except HttpCallFailed as failure:
            failure.with_traceback(None)
        del reader

        assert freed() is None
    finally:
        gc.enable()
