"""Header blocks of answers: what is remembered is what would be read."""

import grpc
import pytest
from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters.http2.frames import ConnectionFault
from understudy.adapters.http2.header_blocks import MAX_HEAD_BYTES
from understudy.adapters.model_servers.http2.answer_head import MAX_KEPT, AnswerHead, HeadReader
from understudy.adapters.model_servers.http2.failures import ended_with

STATUSES = st.sampled_from(["0", "3", "14", "99", "x", ""])
TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=30)
TABLES = st.one_of(st.none(), st.integers(0, 4_096))


@pytest.mark.deep
@given(st.lists(st.tuples(STATUSES, TEXTS, TABLES), max_size=30))
def test_every_block_is_read_as_without_memory_whatever_tables_the_server_uses(blocks):
    encoder, reader = Encoder(), HeadReader()
    for status, text, size in blocks:
        if size is not None:
            encoder.header_table_size = size
        block = encoder.encode([(":status", "200"), ("grpc-status", status), ("x", text)])

        head = reader.read(block)

        number = int(status) if status.isdigit() else -1
        assert head == AnswerHead(200, number, "", ((b"x", text.encode()),) if number else ())


def test_blocks_without_a_table_are_remembered_in_bounded_number():
    encoder, reader = Encoder(), HeadReader()
    encoder.header_table_size = 0
    reader.read(encoder.encode([(":status", "200")]))
    blocks = [encoder.encode([("grpc-message", str(number))]) for number in range(3 * MAX_KEPT)]

    heads = [reader.read(block) for block in blocks + blocks]

    assert [head.message for head in heads] == [str(number) for number in range(3 * MAX_KEPT)] * 2
    assert reader.read(blocks[-1]) is heads[-1]
    assert len(reader._kept) <= MAX_KEPT  # noqa: SLF001 - not shown


def test_what_stands_beside_a_failure_is_told_with_it_as_grpcs_library_tells_it():
    fields = [("grpc-status", "14"), ("grpc-message", "full"), ("retry-after", "1"), ("x", "\xe9")]
    head = HeadReader().read(Encoder().encode([(name, value.encode("latin-1")) for name, value in fields]))

    failure = ended_with(head, 200)

    assert failure is not None
    assert (failure.code(), failure.details()) == (grpc.StatusCode.UNAVAILABLE, "full")
    assert list(failure.trailing_metadata()) == [("retry-after", "1"), ("x", "\xe9")]


def test_fields_longer_than_the_limit_are_a_fault():
    encoder = Encoder()
    with pytest.raises(ConnectionFault, match="cannot be read"):
        HeadReader().read(encoder.encode([("x", "a" * MAX_HEAD_BYTES)], huffman=False))
