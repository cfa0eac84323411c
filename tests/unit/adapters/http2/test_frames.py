"""Frames are cut out of a stream of bytes, however it comes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters.http2.frames import (
    CONTINUATION,
    DATA,
    DEFAULT_FRAME_BYTES,
    END_HEADERS,
    HEADERS,
    PADDED,
    ConnectionFault,
    FrameReader,
    frame,
    head_frames,
    unpadded,
)

FRAMES = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=50)), max_size=8
)


@pytest.mark.deep
@given(FRAMES, st.lists(st.integers(0, 500), max_size=6))
def test_frames_are_the_same_wherever_the_bytes_are_parted(frames, places):
    sent = b"".join(frame(*one) for one in frames)
    marks = [0, *sorted(min(place, len(sent)) for place in places), len(sent)]
    reader = FrameReader()

    got = [one for start, end in pairwise(marks) for one in reader.cut(sent[start:end])]

    assert got == frames


def test_a_frame_over_the_limit_is_refused_by_its_head():
    with pytest.raises(ConnectionFault, match="a frame of"):
        list(FrameReader().cut(frame(DATA, 0, 1, bytes(DEFAULT_FRAME_BYTES + 1))[:9]))


def test_a_long_header_block_goes_on_in_continuations():
    got = list(FrameReader().cut(head_frames(3, b"abcdefg", 3)))

    assert got == [(HEADERS, 0, 3, b"abc"), (CONTINUATION, 0, 3, b"def"), (CONTINUATION, END_HEADERS, 3, b"g")]


@pytest.mark.parametrize(("payload", "content"), [(b"\0x", b"x"), (b"\2x\0\0", b"x"), (b"\1\0", b"")])
def test_padding_is_taken_off(payload, content):
    assert unpadded(PADDED, payload) == content


@pytest.mark.parametrize("payload", [b"", b"\1", b"\4abc"])
def test_padding_longer_than_its_frame_is_a_fault(payload):
    with pytest.raises(ConnectionFault):
        unpadded(PADDED, payload)
