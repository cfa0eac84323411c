import orjson
import pytest
from builders import a_version
from hypothesis import given
from hypothesis import strategies as st
from traffic.ended_calls import an_ended

from understudy.core.schema.outputs import Prediction
from understudy.entrypoints.proxy.messages.answers import answer_of, identify
from understudy.errors import BackendUnavailable


def new_id() -> str:
    return "0123456789abcdef" * 2


@given(st.binary(max_size=200) | st.from_regex(rb"[!-~]{1,128}", fullmatch=True))
def test_a_request_id_is_echoed_only_when_it_is_safe_in_a_header_and_made_otherwise(value):
    request_id, lines = identify({b"x-request-id": value}, new_id)

    is_safe = 0 < len(value) <= 128 and all(0x21 <= byte <= 0x7E for byte in value)
    assert request_id == (value.decode() if is_safe else new_id())
    assert lines == b"x-request-id: %b\r\n" % request_id.encode()


def test_a_trace_is_continued_with_a_span_of_its_own():
    parent = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"

    _, lines = identify({b"traceparent": parent, b"x-request-id": b"mine"}, new_id)

    answered = b"traceresponse: 00-" + b"a" * 32 + b"-0123456789abcdef-00\r\n"
    assert lines == b"x-request-id: mine\r\n" + answered


@pytest.mark.parametrize("parent", [b"junk", b"00-" + b"0" * 32 + b"-" + b"b" * 16 + b"-01"])
def test_a_trace_context_that_cannot_be_used_is_not_answered(parent):
    assert identify({b"traceparent": parent}, new_id) == identify({}, new_id)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=40))
def test_an_answer_names_its_version_whatever_the_label_is(label):
    call = an_ended(1)
    call.version = a_version(f"v{label}")
    call.prediction = Prediction(b'{"label":"100 %s"}', None)

    lines, body = answer_of(call, name_version=True)

    assert orjson.loads(body) == {
        "prediction": {"label": "100 %s"},
        "model": "visits",
        "version": f"v{label}",
        "role": "champion",
        "prediction_id": call.prediction_id,
        "generation": 1,
    }
    assert lines.startswith(b"content-type: application/json\r\nx-prediction-id: %b\r\n" % call.prediction_id.encode())
    assert lines.count(b"\r\n") == lines.count(b"\n") == 7
    assert lines.isascii()


def test_an_error_has_the_receipt_without_a_content_type_and_a_cache_status():
    call = an_ended(1)
    call.started, call.routed, call.ready, call.ended = 1.0, 1.001, 1.003, 1.0134
    call.prediction, call.error = None, BackendUnavailable()

    lines, body = answer_of(call, name_version=False)

    assert body == b""
    assert lines == (
        b"x-prediction-id: %b\r\n"
        b"server-timing: route;dur=1.00, features;dur=2.00, cache;desc=bypass, upstream;dur=10.40\r\n"
        b"x-policy-generation: 1\r\n" % call.prediction_id.encode()
    )
