"""Metadata is what headers are, and the deadline is among them."""

from base64 import b64encode

import pytest

from understudy.entrypoints.proxy.messages.headers import read_headers
from understudy.entrypoints.proxy.rpc.incoming import headers_of, timeout_header
from understudy.errors import HeaderInvalid

ZOE = "Zoë".encode()


@pytest.mark.parametrize("coded", [b64encode(ZOE), b64encode(ZOE).rstrip(b"=")])
def test_metadata_is_headers_and_bytes_of_an_entity_are_its_name(coded):
    metadata = [(b"authorization", b"Bearer a.b"), (b"x-entity-id-bin", coded), (b"user-agent", b"x")]

    assert dict(headers_of(metadata)) == {
        b"authorization": b"Bearer a.b",
        b"x-entity-id": ZOE,
        b"user-agent": b"x",
    }


def test_a_key_in_bytes_is_no_key():
    assert headers_of([(b"authorization-bin", b"QmVhcmVy")]) == [(b"authorization-bin", b"QmVhcmVy")]


@pytest.mark.parametrize("name", [b"content-length", b"content-encoding"])
def test_what_http_says_in_headers_is_not_believed_of_metadata(name):
    assert headers_of([(name, b"7")]) == []


@pytest.mark.parametrize(
    "metadata",
    [
        [(b"authorization", b"Bearer a.b"), (b"authorization", b"Bearer c.d")],
        [(b"x-entity-id", b"a"), (b"x-entity-id-bin", b"YQ")],
        [(b"x-category", b"a"), (b"x-category", b"a")],
        [(b"x-request-timeout-ms", b"1"), (b"x-request-timeout-ms", b"2")],
    ],
)
def test_what_may_mean_either_of_two_is_refused(metadata):
    with pytest.raises(HeaderInvalid, match="two of it"):
        headers_of(metadata)


@pytest.mark.parametrize("value", [b"\xff", b"a", b"a b c d"])
def test_bytes_that_are_not_in_base64_are_refused(value):
    with pytest.raises(HeaderInvalid, match="base64"):
        headers_of([(b"x-entity-id-bin", value)])


@pytest.mark.parametrize(
    ("left", "found"), [(0.25, 0.25), (99.0, 99.0), (150.0, 150.0), (1e9, 99_999.999), (0.0, 1e-6), (-3.0, 1e-6)]
)
def test_the_deadline_is_read_as_that_of_http(left, found):
    assert read_headers(dict([timeout_header(left)])).timeout_seconds == pytest.approx(found, rel=1e-5)
