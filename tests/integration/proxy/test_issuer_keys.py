"""An issuer's keys over real HTTP: whole and in time, or not at all, with the reason."""

import json
import ssl
from collections.abc import AsyncIterator

import pytest
from loopback.certificates import Authority
from loopback.issuer import Issuer, an_issuer, ec_key, http_answer, published

from understudy.adapters.oidc.published_keys import MAX_BYTES, MAX_KEYS, NotFetched, fetch_keys, key_fetcher


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with an_issuer() as issuer:
        issuer.keys = {"ec": ec_key()}
        yield issuer


async def why_not(issuer: Issuer, url: str = "", seconds: float = 5.0, trusts: Authority | None = None) -> str:
    context = ssl.create_default_context(cafile=None if trusts is None else trusts.ca)
    with pytest.raises(NotFetched) as refused:
        await fetch_keys(url or issuer.url, context, timeout_seconds=seconds)
    assert "127.0.0.1" not in str(refused.value)
    return str(refused.value)


async def test_keys_are_those_that_the_issuer_publishes(issuer):
    assert set(await key_fetcher(issuer.url)()) == {("ec", "ES256")}


async def test_the_issuers_certificate_is_judged_by_authorities_that_are_read_once(tmp_path):
    made = Authority(tmp_path / "authority")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*made.sign("127.0.0.1"))
    trusting = ssl.create_default_context(cafile=made.ca)

    async with an_issuer(served) as issuer:
        issuer.keys = {"ec": ec_key()}
        assert set(await fetch_keys(issuer.url, trusting)) == {("ec", "ES256")}
        assert "unable to get local issuer certificate" in await why_not(issuer)
        served.load_cert_chain(*made.sign("issuer.example"))
        assert (await why_not(issuer, trusts=made)).endswith("ConnectError, IP address mismatch")


async def test_an_issuer_that_is_down_slow_or_answers_something_else_is_told_apart(issuer):
    many = published({f"key-{number}": issuer.keys["ec"] for number in range(MAX_KEYS + 1)})
    huge = http_answer(b'{"keys": [' + b" " * MAX_BYTES + b"]}")
    elsewhere = http_answer(b"", "302 Found", f"location: {issuer.url}")
    answers = {
        "has the status 500": http_answer(b"", "500 Internal Server Error"),
        "has the status 302": elsewhere,
        f"more than {MAX_BYTES} bytes": huge,
        f"more than {MAX_KEYS} keys": http_answer(json.dumps(many).encode()),
        "no JWK set": http_answer(b"<html>"),
        "no answer: ": b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{",
    }
    for words, answer in answers.items():
        issuer.answer = lambda answer=answer: answer
        assert words in await why_not(issuer)
    issuer.is_silent = True
    assert await why_not(issuer, seconds=0.2) == "no whole answer within 0.2 s"
    assert "no answer: ConnectError" in await why_not(issuer, "http://127.0.0.1:1/keys")
