"""Header blocks of requests: another decoder reads what was meant, whatever was encoded before."""

import pytest
from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters.http2.header_fields import NO_TABLE
from understudy.adapters.model_servers.http2.request_head import metadata_block, request_prefix, timeout_block

TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=700)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz-0123456789", min_size=1, max_size=200)


@pytest.mark.deep
@given(st.lists(st.tuples(NAMES, TEXTS), max_size=5), TEXTS, st.floats(0.001, 1e7), st.booleans())
def test_any_decoder_reads_what_was_meant_and_keeps_none_of_it(metadata, path, seconds, is_secure):
    decoder = Decoder(max_header_list_size=1_000_000)
    block = request_prefix(path, "m:1", is_secure=is_secure) + timeout_block(seconds) + metadata_block(tuple(metadata))

    for first in (NO_TABLE, b"", b""):
        fields = [(str(name), str(value)) for name, value in decoder.decode(first + block)]
        assert fields[:4] == [
            (":method", "POST"),
            (":scheme", "https" if is_secure else "http"),
            (":path", path),
            (":authority", "m:1"),
        ]
        assert fields[len(fields) - len(metadata) :] == metadata
    assert decoder.header_table_size == 0


def test_a_time_has_eight_digits_at_most():
    told = [
        timeout_block(seconds)[len(b"\x00\x0cgrpc-timeout") + 1 :] for seconds in (0.0005, 0.5, 99.999999, 100, 1e9)
    ]

    assert told == [b"500u", b"500000u", b"99999999u", b"100000m", b"99999999m"]


def test_what_cannot_be_a_header_is_left_out():
    metadata = (("a", "line\r\nbreak"), ("ü", "x"), ("b", "ü"), ("c", "\x00"), ("D", "kept"))

    fields = [(str(name), str(value)) for name, value in Decoder().decode(metadata_block(metadata))]
    assert fields == [("d", "kept")]
