"""Metadata is what headers are, and the deadline is among them."""

import pytest

from understudy.entrypoints.proxy.messages.headers import read_headers
from understudy.entrypoints.proxy.rpc.incoming import address_of, headers_of
from understudy.errors import HeaderInvalid


def test_metadata_is_headers_and_bytes_of_an_entity_are_its_name():
    metadata: list[tuple[str, str | bytes]] = [
        ("authorization", "Bearer a.b"),
        ("x-entity-id-bin", "Zoë".encode()),
        ("user-agent", "x"),
    ]

    assert dict(headers_of(metadata, None)) == {
        b"authorization": b"Bearer a.b",
        b"x-entity-id": "Zoë".encode(),
        b"user-agent": b"x",
    }


def test_a_key_in_bytes_is_no_key():
    assert dict(headers_of([("authorization-bin", b"Bearer a.b")], None)) == {b"authorization-bin": b"Bearer a.b"}


@pytest.mark.parametrize("name", ["content-length", "content-encoding", "grpc-timeout"])
def test_what_http_says_in_headers_is_not_believed_of_metadata(name):
    assert headers_of([(name, "7")], None) == []


@pytest.mark.parametrize(
    "metadata",
    [
        [("authorization", "Bearer a.b"), ("authorization", "Bearer c.d")],
        [("x-entity-id", "a"), ("x-entity-id-bin", b"b")],
        [("x-category", "a"), ("x-category", "a")],
        [("x-request-timeout-ms", "1"), ("x-request-timeout-ms", "2")],
    ],
)
def test_what_may_mean_either_of_two_is_refused(metadata):
    with pytest.raises(HeaderInvalid):
        headers_of(metadata, None)


@pytest.mark.parametrize(
    ("left", "found"), [(0.25, 0.25), (99.0, 99.0), (150.0, 150.0), (1e9, 99_999.999), (0.0, 1e-6), (-3.0, 1e-6)]
)
def test_the_deadline_is_read_as_that_of_http(left, found):
    assert read_headers(dict(headers_of([], left))).timeout_seconds == pytest.approx(found, rel=1e-5)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.7:40000", "192.0.2.7"),
        ("ipv6:%5B2001:db8::7%5D:40000", "2001:db8::/64"),
        ("ipv6:[::ffff:192.0.2.7]:40000", "192.0.2.7"),
        ("ipv6:%5Bfe80::1%25eth0%5D:40000", "fe80::/64"),
        ("unix:/run/x", ""),
    ],
)
def test_a_peer_is_counted_by_the_address_that_a_connection_is_counted_by(peer, address):
    assert address_of(peer) == address
