"""What the head of a request must be, before anything is done with the request."""

import pytest

from understudy.entrypoints.proxy.processes.uvicorn_process import head_rules_from
from understudy.entrypoints.proxy.server.head_rules import NO_RULES, HeadRules, absolute_target_problem
from understudy.errors import CrossSiteRequest, HeaderInvalid, HostUnknown
from understudy.settings import Settings

HOST = (b"host", b"127.0.0.1:8080")
FORM = (b"content-type", b"application/x-www-form-urlencoded")
EVIL = (b"origin", b"https://evil.example")
PLAIN = b"/v1/models"


def judged(rules: HeadRules, *headers: tuple[bytes, bytes], method: bytes = b"POST", target: bytes = PLAIN) -> object:
    """Return the kind of error, or ``None``."""
    problem = rules.problem(method, target, "1.1", headers)
    return None if problem is None else type(problem)


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ([], "host: expected one"),
        ([HOST, HOST], "host: expected one"),
        ([(b"host", b"a b")], "host: expected a name or an address"),
        ([(b"host", b"user@proxy")], "host: expected a name or an address"),
        ([(b"host", b"x" * 256)], "host: expected a name or an address"),
        ([(b"host", b"x" * 60_000)], "host: expected a name or an address"),
        ([HOST, (b"authorization", b"Bearer a.b"), (b"authorization", b"Bearer c.d")], "authorization: there are two"),
        ([HOST, (b"x-entity-id", b"alice"), (b"x-entity-id", b"bob")], "x-entity-id: there are two"),
        ([HOST, (b"x-category", b"a"), (b"x-category", b"a")], "x-category: there are two"),
        ([HOST, (b"x-request-timeout-ms", b"nan"), (b"x-request-timeout-ms", b"5000")], "x-request-timeout-ms: there"),
        (
            [HOST, (b"grpc-timeout", b"1S"), (b"accept", b"*/*"), (b"grpc-timeout", b"1S")],
            "grpc-timeout: there are two",
        ),
        (
            [HOST, (b"x-envoy-expected-rq-timeout-ms", b"70"), (b"x-envoy-expected-rq-timeout-ms", b"0")],
            "x-envoy-expected-rq-timeout-ms: there are two",
        ),
        ([HOST, (b"transfer-encoding", b"gzip, chunked")], "transfer-encoding: expected chunked"),
        ([HOST, (b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"chunked")], "transfer-encoding"),
    ],
)
def test_a_head_that_http_does_not_permit_is_named(headers, says):
    problem = NO_RULES.problem(b"POST", PLAIN, "1.1", headers)

    assert isinstance(problem, HeaderInvalid)
    assert problem.detail.startswith(says)


@pytest.mark.parametrize(
    ("target", "version", "says"),
    [
        (PLAIN, "2.0", "the request line: expected HTTP/1.1"),
        (PLAIN, "0.9", "the request line: expected HTTP/1.1"),
        (b"/livez#fragment", "1.1", "the request line: a target has no fragment"),
    ],
)
def test_a_request_line_that_http_does_not_permit_is_named(target, version, says):
    problem = NO_RULES.problem(b"GET", target, version, [HOST])

    assert isinstance(problem, HeaderInvalid)
    assert problem.detail == says


@pytest.mark.parametrize(
    "target", [b"http://evil.example/livez", b"HTTPS://127.0.0.1:80/livez", b"http://u@127.0.0.1:8080/", b"x://?a"]
)
def test_a_target_that_names_another_host_than_the_host_field_is_refused(target):
    problem = absolute_target_problem(target, [HOST])

    assert isinstance(problem, HeaderInvalid)
    assert problem.detail == "host: expected the one that the request's target names"


@pytest.mark.parametrize("target", [b"/livez", b"/a?from=http://evil.example/", b"*", b"http://127.0.0.1:8080/livez?a"])
def test_a_target_that_is_a_path_or_names_the_same_host_passes(target):
    assert absolute_target_problem(target, [HOST]) is None


def test_what_http_permits_passes():
    chunked = (b"transfer-encoding", b" Chunked ")

    assert NO_RULES.problem(b"POST", PLAIN, "1.1", [HOST, chunked, (b"authorization", b"Bearer a.b")]) is None
    deadlines = [(b"x-request-timeout-ms", b"80"), (b"grpc-timeout", b"60m"), (b"x-envoy-expected-rq-timeout-ms", b"7")]
    assert NO_RULES.problem(b"POST", PLAIN, "1.1", [HOST, *deadlines, (b"cookie", b"a"), (b"cookie", b"b")]) is None
    assert NO_RULES.problem(b"GET", PLAIN, "1.0", []) is None
    for host in (b"", b"proxy", b"proxy.shop.example:8080", b"[::1]", b"[::1]:80", b"10.0.0.1:", b"my_service"):
        assert NO_RULES.problem(b"GET", PLAIN, "1.1", [(b"host", host)]) is None
    assert isinstance(NO_RULES.problem(b"POST", PLAIN, "1.0", [HOST, chunked]), HeaderInvalid)


LOCAL = head_rules_from(Settings(host="127.0.0.1", host_names="predict.internal, *.shop.example"))


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "[::1]:8080", "192.0.2.7", "localhost", "LOCALHOST.:80", "a.localhost", "predict.internal:1",
     "eu.shop.example"],
)  # fmt: skip
def test_addresses_local_names_and_names_of_the_list_are_hosts_of_a_local_proxy(host):
    assert judged(LOCAL, (b"host", host.encode()), method=b"GET") is None


@pytest.mark.parametrize(
    "host", ["evil.example:8080", "localhost.evil.example", "shop.example", "", "127.0.0.1.nip.io"]
)
def test_any_other_name_is_refused_so_that_dns_rebinding_reads_nothing(host):
    assert judged(LOCAL, (b"host", host.encode()), method=b"GET") is HostUnknown


@pytest.mark.parametrize(
    ("settings", "is_checked"),
    [
        ({}, True),
        ({"host": "0.0.0.0"}, False),
        ({"auth": True}, False),
        ({"host": "0.0.0.0", "auth": False}, False),
        ({"host": "0.0.0.0", "auth": False, "host_names": "predict.internal"}, True),
        ({"host": "0.0.0.0", "host_names": "predict.internal"}, True),
    ],
)
def test_names_are_checked_on_loopback_without_keys_and_wherever_there_is_a_list(settings, is_checked):
    found = judged(head_rules_from(Settings(**settings)), (b"host", b"evil.example"), method=b"GET")

    assert found is (HostUnknown if is_checked else None)


@pytest.mark.parametrize("text", ["https://predict.internal", "predict.internal:8080", "a..b", "a b"])
def test_a_list_of_names_with_what_is_no_name_is_refused(text):
    with pytest.raises(ValueError, match="is no host name"):
        Settings(host_names=text)


@pytest.mark.parametrize(
    "kind",
    [FORM, (b"content-type", b"multipart/form-data; boundary=x"), (b"content-type", b"text/plain;charset=UTF-8"), None],
)
@pytest.mark.parametrize(
    "whence",
    [EVIL, (b"origin", b"null"), (b"origin", b"http://localhost:3000"), (b"sec-fetch-site", b"cross-site"),
     (b"sec-fetch-site", b"same-site")],
)  # fmt: skip
def test_a_body_that_a_page_of_another_site_can_send_unasked_is_refused(kind, whence):
    headers = [HOST, whence, *([kind] if kind is not None else [])]

    assert judged(LOCAL, *headers) is CrossSiteRequest
    assert judged(NO_RULES, *headers) is None


@pytest.mark.parametrize(
    "headers",
    [
        [FORM],  # curl -d
        [FORM, (b"origin", b"http://127.0.0.1:8080"), (b"sec-fetch-site", b"same-origin")],
        [FORM, (b"sec-fetch-site", b"none")],
        [EVIL, (b"content-type", b"Application/JSON; charset=utf-8")],  # a browser asks first, and gets no permission
    ],
)
def test_curl_the_proxys_own_pages_and_json_are_not_refused(headers):
    assert judged(LOCAL, HOST, *headers) is None


def test_what_changes_nothing_may_come_from_anywhere():
    assert judged(LOCAL, HOST, EVIL, method=b"GET") is None


def test_where_keys_are_needed_pages_are_not_looked_for():
    assert not head_rules_from(Settings(host="0.0.0.0")).refuses_pages
    assert head_rules_from(Settings(host="0.0.0.0", auth=False)).refuses_pages
