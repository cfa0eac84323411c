import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.entrypoints.proxy.messages.headers import RequestOptions, content_length, read_headers
from understudy.errors import HeaderInvalid


def test_no_honoured_header_asks_for_nothing():
    assert read_headers({b"host": b"x", b"accept": b"*/*"}) == RequestOptions()


def test_the_shortest_deadline_holds():
    asked = read_headers(
        {b"x-request-timeout-ms": b"80", b"x-envoy-expected-rq-timeout-ms": b"70", b"grpc-timeout": b"60m"}
    )

    assert asked.timeout_seconds == 0.06


@pytest.mark.parametrize(
    ("value", "seconds"), [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"4m", 0.004), (b"5u", 5e-6), (b"6n", 6e-9)]
)
def test_grpc_timeouts_have_units(value, seconds):
    assert read_headers({b"grpc-timeout": value}).timeout_seconds == pytest.approx(seconds)


@pytest.mark.parametrize("value", [b"0m", b"0H", b"00000000n", b"-1S", b"1", b"m", b"1.5S", b"999999999S", b""])
def test_a_grpc_timeout_that_leaves_no_time_or_cannot_be_read_is_refused(value):
    with pytest.raises(HeaderInvalid, match="grpc-timeout"):
        read_headers({b"grpc-timeout": value})


@given(
    st.sampled_from([b"x-request-timeout-ms", b"x-envoy-expected-rq-timeout-ms", b"grpc-timeout"]),
    st.binary(max_size=20) | st.from_regex(rb"[0-9]{1,9}[HMSmun]?", fullmatch=True),
)
def test_any_deadline_is_a_time_above_zero_or_refused(name, value):
    try:
        asked = read_headers({name: value})
    except HeaderInvalid as refused:
        assert name.decode() in refused.detail
    else:
        assert asked.timeout_seconds is not None
        assert asked.timeout_seconds > 0


def test_a_compressed_body_is_refused():
    with pytest.raises(HeaderInvalid):
        read_headers({b"content-encoding": b"gzip"})
    assert read_headers({b"content-encoding": b"identity"}) == RequestOptions()


blanks = st.sampled_from([b"", b" ", b"\t", b" \t "])


@given(st.integers(0, 10**18 - 1), st.integers(0, 40), blanks)
def test_a_length_is_what_it_says_however_many_zeros_lead_and_blanks_follow(length, zeros, after):
    assert content_length(b"0" * zeros + b"%d" % length + after) == length


@given(st.integers(10**18, 10**30), st.integers(0, 40), blanks)
def test_a_length_of_many_digits_is_over_every_limit(length, zeros, after):
    assert (content_length(b"0" * zeros + b"%d" % length + after) or 0) >= 10**17


@pytest.mark.parametrize("value", [None, b"", b" ", b"-1", b"+1", b"1,1", b"1 1", b"x"])
def test_a_length_that_is_no_number_is_none(value):
    assert content_length(value) is None
