import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.entrypoints.proxy.headers import Honoured, read_headers
from understudy.errors import HeaderInvalid


def test_no_honoured_header_asks_for_nothing():
    assert read_headers([(b"host", b"x"), (b"accept", b"*/*")]) == Honoured()


def test_the_shortest_deadline_holds():
    asked = read_headers(
        [(b"x-request-timeout-ms", b"80"), (b"x-envoy-expected-rq-timeout-ms", b"70"), (b"grpc-timeout", b"60m")]
    )

    assert asked.timeout_seconds == 0.06


@pytest.mark.parametrize(
    ("value", "seconds"), [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"4m", 0.004), (b"5u", 5e-6), (b"6n", 6e-9)]
)
def test_grpc_timeouts_have_units(value, seconds):
    assert read_headers([(b"grpc-timeout", value)]).timeout_seconds == pytest.approx(seconds)


@given(st.sampled_from([b"x-request-timeout-ms", b"grpc-timeout"]), st.binary(max_size=20))
def test_any_deadline_is_a_time_above_zero_or_refused(name, value):
    try:
        asked = read_headers([(name, value)])
    except HeaderInvalid as refused:
        assert name.decode() in refused.detail
    else:
        assert asked.timeout_seconds is not None
        assert asked.timeout_seconds >= 0


@given(st.binary(max_size=200))
def test_a_request_id_is_echoed_only_when_it_is_safe_in_a_header(value):
    request_id = read_headers([(b"x-request-id", value)]).request_id

    assert request_id is None or (request_id == value and value.isascii() and b"\n" not in value and b"\r" not in value)


def test_a_trace_is_continued():
    asked = read_headers([(b"traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")])

    assert asked.trace_id == b"a" * 32
    assert read_headers([(b"traceparent", b"junk")]).trace_id is None


def test_a_compressed_body_is_refused():
    with pytest.raises(HeaderInvalid):
        read_headers([(b"content-encoding", b"gzip")])
    assert read_headers([(b"content-encoding", b"identity")]) == Honoured()
