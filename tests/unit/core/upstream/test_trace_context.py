"""Which trace context a call has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.upstream.trace_context import MAX_STATE, TraceContext, read_trace_context

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01".encode()
HOSTILE = {
    "nothing": b"",
    "garbage": b"\xff\x00 garbage",
    "10 kB": b"00-" + b"a" * 10_000,
    "upper case": GOOD.upper(),
    "no such version": b"ff" + GOOD[2:],
    "more than this version has": GOOD + b"-what",
    "no trace": f"00-{'0' * 32}-{SPAN}-01".encode(),
    "no span": f"00-{TRACE}-{'0' * 16}-01".encode(),
    "two in one": GOOD + b"," + GOOD,
}


@pytest.mark.parametrize(("flags", "is_sampled"), [(b"00", False), (b"01", True), (b"03", True), (b"fe", False)])
def test_a_caller_names_its_trace_its_span_and_whether_it_is_sampled(flags, is_sampled):
    found = read_trace_context([(b"host", b"x"), (b"traceparent", GOOD[:-2] + flags)])

    assert found == TraceContext(TRACE, SPAN, is_sampled)
    assert found.traceparent == f"00-{TRACE}-{SPAN}-0{int(is_sampled)}"


def test_what_a_version_to_come_adds_is_not_read():
    assert read_trace_context([(b"traceparent", b"01" + GOOD[2:] + b"-what-ever")]) == TraceContext(TRACE, SPAN, True)


@pytest.mark.parametrize("why", sorted(HOSTILE))
def test_what_cannot_be_used_is_as_if_it_had_not_been_sent(why):
    assert read_trace_context([(b"traceparent", HOSTILE[why])]) is None


def test_two_callers_contradict_each_other():
    assert read_trace_context([(b"traceparent", GOOD), (b"traceparent", GOOD)]) is None


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ([b"vendor=a b"], "vendor=a b"),
        ([b"one=1", b"t@two=2"], "one=1,t@two=2"),
        ([b"one=1, two=2"], "one=1, two=2"),
        ([b"one"], ""),
        ([b"one=\xe9"], ""),
        ([b"one=1\r\nx: y"], ""),
        ([b"one=" + b"x" * MAX_STATE], ""),
        ([b"a=" + b" ," * 250], ""),
        ([b",".join(b"k%d=1" % n for n in range(33))], ""),
        ([], ""),
    ],
)
def test_what_other_systems_add_is_passed_on_where_it_is_a_list_of_theirs(values, state):
    found = read_trace_context([(b"traceparent", GOOD), *((b"tracestate", value) for value in values)])

    assert found is not None
    assert found.state == state


@given(st.lists(st.tuples(st.sampled_from([b"traceparent", b"tracestate"]), st.binary(max_size=80)), max_size=4))
def test_no_header_is_an_error(headers):
    found = read_trace_context(headers)

    assert found is None or read_trace_context([(b"traceparent", found.traceparent.encode())]) is not None
