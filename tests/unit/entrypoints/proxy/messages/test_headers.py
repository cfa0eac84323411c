import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.entrypoints.proxy.messages.headers import RequestOptions, content_length, identify, read_headers
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


def new_id() -> str:
    return "0123456789abcdef" * 2


@given(st.binary(max_size=200) | st.from_regex(rb"[!-~]{1,128}", fullmatch=True))
def test_a_request_id_is_echoed_only_when_it_is_safe_in_a_header_and_made_otherwise(value):
    identity = identify({b"x-request-id": value}, new_id)

    is_safe = 0 < len(value) <= 128 and all(0x21 <= byte <= 0x7E for byte in value)
    assert identity.request_id == (value.decode() if is_safe else new_id())
    assert identity.lines == b"x-request-id: %b\r\n" % identity.request_id.encode()


def test_a_trace_is_continued_with_a_span_of_its_own():
    parent = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"

    identity = identify({b"traceparent": parent, b"x-request-id": b"mine"}, new_id)

    answered = b"traceresponse: 00-" + b"a" * 32 + b"-0123456789abcdef-00\r\n"
    assert identity.lines == b"x-request-id: mine\r\n" + answered


@pytest.mark.parametrize("parent", [b"junk", b"00-" + b"0" * 32 + b"-" + b"b" * 16 + b"-01"])
def test_a_trace_context_that_cannot_be_used_is_not_answered(parent):
    assert identify({b"traceparent": parent}, new_id) == identify({}, new_id)


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
