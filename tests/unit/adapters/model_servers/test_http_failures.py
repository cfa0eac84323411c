"""What a status over HTTP means, and which of a server's words are kept."""

import pytest

from understudy.adapters.model_servers.http_failures import failure_of_status, words_of
from understudy.adapters.model_servers.status import NotTaken, said, translated
from understudy.core.upstream.replicas import CallResult
from understudy.errors import BadAnswer

FASTAPI = (
    b'{"detail":[{"type":"missing","loc":["body","rows",0,"age"],"msg":"Field required",'
    b'"input":{"name":"Ada Lovelace"}}]}'
)


@pytest.mark.parametrize(
    ("status", "result"),
    [
        *((status, CallResult.UNAVAILABLE) for status in (408, 502, 503, 504)),
        *((status, CallResult.UNABLE) for status in (301, 307, 401, 403, 404, 405, 429, 501)),
        *((status, CallResult.REFUSED) for status in (400, 409, 413, 422, 500)),
    ],
)
def test_a_status_says_what_is_held_against_the_replica(status, result):
    failure = failure_of_status(status, b"")

    assert failure.result is result
    assert type(translated(failure, result, 1.0)) is (BadAnswer if result is CallResult.REFUSED else NotTaken)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":"no such model"}', "no such model"),
        (b'{"error_code":"BAD_REQUEST","message":"wrong schema"}', "wrong schema"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (FASTAPI, "body.rows.0.age: Field required"),
        (b"upstream connect error", "upstream connect error"),
        (b'{"code":7}', '{"code":7}'),
        (b'{"detail":[1,{}]}', ": "),
        (b'{"error":null}', '{"error":null}'),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"", ""),
    ],
)
def test_a_servers_words_are_found_where_it_has_them_and_inputs_are_left_out(body, words):
    assert words_of(body) == words


def test_no_more_of_a_servers_words_is_kept_than_a_line():
    assert said(failure_of_status(500, b"a\nb \x1b[2J" + b"x" * 900_000)).startswith("a b [2Jxxx")
    assert len(said(failure_of_status(500, b"x" * 900_000))) == 200
