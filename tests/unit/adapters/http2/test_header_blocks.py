"""Header blocks of peers: what is read in one pass is what a decoder with tables reads."""

import pytest
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters.http2.header_blocks import BlockReader, plain_fields

NAMES = st.one_of(
    st.sampled_from([":path", ":method", "content-type", "te", "user-agent", "x-entity-id"]),
    st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=200),
)
VALUES = st.one_of(
    st.sampled_from(["POST", "trailers", "application/grpc", ""]),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=400),
)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=12)


@pytest.mark.deep
@given(st.lists(st.tuples(FIELDS, st.booleans(), st.one_of(st.none(), st.integers(0, 4_096))), max_size=8))
def test_blocks_say_the_same_whatever_table_and_coding_the_peer_uses(blocks):
    encoder, reader = Encoder(), BlockReader()
    for fields, is_huffman, size in blocks:
        if size is not None:
            encoder.header_table_size = size

        found = reader.read(encoder.encode(fields, huffman=is_huffman))

        assert found == [(name.encode(), value.encode()) for name, value in fields]


@pytest.mark.deep
@given(st.binary(max_size=200))
def test_any_bytes_are_read_in_one_pass_as_a_decoder_reads_them_or_left_to_it(block):
    found = plain_fields(block)
    if found is None:
        return
    decoder = Decoder()
    decoder.header_table_size = 0
    try:
        decoded = decoder.decode(block, raw=True)
    except HPACKError as problem:
        raise AssertionError(f"{block!r} was read as {found}") from problem
    assert found == [(bytes(name), bytes(value)) for name, value in decoded]


def test_a_short_block_of_many_fields_is_left_to_the_decoder_that_counts_them():
    assert plain_fields(b"\x83" * 100) == [(b":method", b"POST")] * 100
    assert plain_fields(b"\x83" * 101) is None
