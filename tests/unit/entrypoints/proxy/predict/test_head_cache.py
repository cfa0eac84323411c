"""A head that was met before means what it meant then, and nothing else is remembered."""

import pytest

from understudy.entrypoints.proxy.messages.headers import RequestOptions
from understudy.entrypoints.proxy.predict.head_cache import MAX_HEAD, MAX_HEADS, REST_CALLS, CachedHead, HeadCache

BODY = b'{"entity_id":"a"}'


def a_head(*lines: bytes) -> bytes:
    return b"\r\n".join((b"POST /v1/models/visits/predict HTTP/1.1", *lines, b"", b""))


def meaning(body_bytes: int = len(BODY)) -> CachedHead:
    return CachedHead("/v1/models/visits/predict", "visits", RequestOptions(), body_bytes)


def test_a_head_is_known_by_its_bytes_and_the_body_by_its_length():
    heads = HeadCache()
    heads.learn(a_head(b"host: x") + BODY, meaning(), {b"host": b"x"})

    assert heads.find(a_head(b"host: x") + BODY) == (meaning(), BODY)
    for other in (
        a_head(b"host: y") + BODY,
        a_head(b"Host: x") + BODY,
        a_head(b"host: x") + BODY[:-1],
        a_head(b"host: x") + BODY + b"G",
        b"\r\n" + a_head(b"host: x") + BODY,
        a_head(b"host: x")[:-1],
        b"",
    ):
        assert heads.find(other) is None


@pytest.mark.parametrize("name", [b"x-request-id", b"traceparent", b"transfer-encoding"])
def test_a_head_that_names_its_request_or_frames_its_body_in_another_way_is_not_remembered(name):
    heads = HeadCache()
    heads.learn(a_head(name + b": 1") + BODY, meaning(), {name: b"1"})
    assert heads.find(a_head(name + b": 1") + BODY) is None


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n" + a_head() + BODY,  # empty lines that a parser passes over
        a_head() + BODY + b"\r\n",
        a_head() + b"3\r\nabc\r\n0\r\n\r\n",
        b"POST /",
        a_head(b"cookie: " + b"c" * MAX_HEAD) + BODY,
    ],
)
def test_what_is_not_a_short_head_and_then_the_body_is_not_remembered(request_bytes):
    heads = HeadCache()
    heads.learn(request_bytes, meaning(), {})
    assert heads.find(request_bytes) is None
    assert heads.find(a_head() + BODY) is None


def learn_made_up(heads: HeadCache, numbers: range) -> None:
    for number in numbers:
        if not heads.is_resting():
            heads.learn(a_head(b"x: %d" % number) + BODY, meaning(), {})


def known_of(heads: HeadCache, numbers: range) -> int:
    return sum(heads.find(a_head(b"x: %d" % number) + BODY) is not None for number in numbers)


def test_callers_who_make_up_heads_cannot_make_us_remember_them_all():
    heads = HeadCache()
    learn_made_up(heads, range(MAX_HEADS))
    assert known_of(heads, range(MAX_HEADS)) == MAX_HEADS

    learn_made_up(heads, range(MAX_HEADS, MAX_HEADS + 10))

    assert known_of(heads, range(MAX_HEADS + 10)) == 10


def test_where_no_head_comes_again_none_is_kept_for_a_while_and_then_they_are_again():
    heads = HeadCache()

    learn_made_up(heads, range(MAX_HEADS + 1 + REST_CALLS))
    assert known_of(heads, range(MAX_HEADS + 1 + REST_CALLS)) == 0

    learn_made_up(heads, range(3))
    assert known_of(heads, range(3)) == 3
