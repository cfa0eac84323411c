"""An answer of HTTP/1.1 is the same however its bytes are cut, and is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters.model_servers.channels import MAX_ANSWER_BYTES
from understudy.adapters.model_servers.http.answer_reader import MAX_HEAD_BYTES, AnswerReader, HttpAnswer
from understudy.adapters.model_servers.http_failures import HttpCallFailed

ANSWERS = {
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello": HttpAnswer(200, b"hello"),
    b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n": HttpAnswer(
        404, b"hello"
    ),
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n": HttpAnswer(200, b""),
    b"HTTP/1.1 204 No Content\r\n\r\n": HttpAnswer(204, b""),
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
    while fed <= 2 * MAX_ANSWER_BYTES:
        try:
            reader.feed(more)
        except HttpCallFailed as failure:
            return fed, failure
        fed += len(more)
    raise AssertionError("it was never refused")


def test_no_more_is_kept_of_an_answer_than_it_may_have():
    fed, failure = fed_until_refused(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65_536)

    assert (fed, failure.what) == (MAX_ANSWER_BYTES, "an answer of more than 4,194,304 bytes")


@pytest.mark.parametrize(
    ("begin", "more"), [(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"), (b"", b"HTTP/1.1 102 Processing\r\n\r\n")]
)
def test_nor_of_a_head_or_of_interim_answers_without_end(begin, more):
    fed, failure = fed_until_refused(begin, 100 * more)

    assert "its head has more than" in failure.why
    assert fed <= MAX_HEAD_BYTES
