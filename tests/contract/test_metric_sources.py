"""Metric sources and their twin: what each answer of a Prometheus API comes to, and that nothing raises."""

from collections.abc import AsyncIterator

import pytest
from loopback.prometheus import PrometheusServer
from loopback.receiver import HANG

from understudy.adapters.http.metric_sources import MAX_ANSWER_BYTES, HttpMetricSources
from understudy.adapters.memory.metric_sources import MemoryMetricSources
from understudy.core.canary.metric_samples import ReadProblem
from understudy.ports.rollout.metric_sources import MetricAnswer, MetricSources

START, END = 60_000, 60_120
MATRIX = b'{"status":"success","data":{"resultType":"matrix","result":[%s]}}'


@pytest.fixture
async def server() -> AsyncIterator[PrometheusServer]:
    async with PrometheusServer() as found:
        found.series = {
            "fine": [lambda at: 2 / 3 if at < END else None],
            "some_nan": [lambda at: "NaN" if at == START else "+Inf" if at == END else 7.0],
            "nan": [lambda _: "NaN"],
            "two": [lambda _: 1.0, lambda _: 2.0],
        }
        yield found


@pytest.fixture
async def sources(server: PrometheusServer) -> AsyncIterator[HttpMetricSources]:
    found = HttpMetricSources({"shop": server.url + "/"}, {"shop": "s3cr3t-token"}, timeout_seconds=0.5)
    yield found
    await found.close()


@pytest.fixture(params=["memory", "http"])
def either(request: pytest.FixtureRequest, sources: HttpMetricSources) -> MetricSources:
    if request.param == "http":
        return sources
    known = {"fine": 2 / 3, "nan": ReadProblem.NO_NUMBER, "two": ReadProblem.SEVERAL_SERIES}
    return MemoryMetricSources({"shop": known})


@pytest.mark.parametrize(
    ("source", "query", "problem"),
    [
        ("shop", "fine", ReadProblem.NONE),
        ("shop", "none", ReadProblem.NO_SERIES),
        ("shop", "nan", ReadProblem.NO_NUMBER),
        ("shop", "two", ReadProblem.SEVERAL_SERIES),
        ("invented", "fine", ReadProblem.UNKNOWN_SOURCE),
    ],
)
async def test_a_query_has_values_or_the_reason_why_there_are_none(either: MetricSources, source, query, problem):
    answer = await either.read(source, query, START, END)

    assert answer.problem is problem
    assert bool(answer.values) is (problem is ReadProblem.NONE)
    assert set(answer.values.values()) <= {0.666667}
    assert set(answer.values) <= {START, START + 60, END}
    assert either.names == {"shop"}


async def test_values_that_are_no_numbers_are_left_out(sources: HttpMetricSources):
    assert await sources.read("shop", "some_nan", START, END) == MetricAnswer({START + 60: 7.0})


async def test_a_value_is_0_where_what_is_divided_by_it_would_leave_the_floats(
    sources: HttpMetricSources, server: PrometheusServer
):
    server.series["tiny"] = [lambda at: {START: "1e-300", END: "-5e-324"}.get(at, "1e-59")]

    assert (await sources.read("shop", "tiny", START, END)).values == {START: 0.0, START + 60: 1e-59, END: 0.0}


async def test_a_source_gets_its_token_and_a_query_that_is_wrong_says_why(
    sources: HttpMetricSources, server: PrometheusServer
):
    answer = await sources.read("shop", "sum(up", START, END)

    assert answer.problem is ReadProblem.WRONG_QUERY
    assert answer.detail == "400 1:8: parse error: unclosed left parenthesis"
    assert server.requests[0][0]["authorization"] == "Bearer s3cr3t-token"


async def test_a_token_that_has_a_part_of_the_address_in_it_is_redacted_whole(server: PrometheusServer):
    sources = HttpMetricSources({"shop": f"{server.url}/s3cr3t"}, {"shop": "s3cr3t-token"}, timeout_seconds=5)
    server.instead = (401, "", b"no s3cr3t-token")

    answer = await sources.read("shop", "fine", START, END)
    await sources.close()

    assert answer.detail == "401 no ***"


async def test_no_answer_of_a_part_of_the_stores_is_asked_for(sources: HttpMetricSources, server: PrometheusServer):
    await sources.read("shop", "fine", START, END)

    assert server.requests[0][1].endswith(b"&timeout=0.5&partial_response=false&deny_partial_response=1")


@pytest.mark.parametrize(
    ("instead", "problem"),
    [
        ((307, "location: http://127.0.0.1:1/\r\n", b""), ReadProblem.REDIRECTS),
        ((401, "", b"no s3cr3t-token"), ReadProblem.DENIED),
        ((401, "", b"no" * 145 + b"s3cr3t-token"), ReadProblem.DENIED),
        ((403, "", b""), ReadProblem.DENIED),
        ((404, "", b"404 page not found"), ReadProblem.UNREADABLE),
        ((422, "", b'{"status":"error","error":"query timed out"}'), ReadProblem.WRONG_QUERY),
        ((500, "", b"busy"), ReadProblem.FAILED),
        ((503, "", b""), ReadProblem.FAILED),
        ((200, "", b"<html>"), ReadProblem.UNREADABLE),
        ((200, "", b'{"status":"success","data":{"resultType":"vector","result":[]}}'), ReadProblem.UNREADABLE),
        ((200, "", MATRIX % b'{"metric":{},"values":[[1,"x"]]}'), ReadProblem.UNREADABLE),
        ((200, "", MATRIX % b'{"metric":{},"values":[[1e400,"1"]]}'), ReadProblem.UNREADABLE),
        ((200, "", MATRIX % b'{"metric":{},"histograms":[]}'), ReadProblem.NO_NUMBER),
        ((200, "", MATRIX % b'{"metric":{},"values":[[60060,"1"]]}{}'), ReadProblem.UNREADABLE),
        ((200, "", MATRIX % b'{"metric":{},"values":[[60060,"1e300"]]}'), ReadProblem.NO_NUMBER),
        ((200, "", MATRIX % b'{"metric":{},"values":[[60060,"1e999"]]}'), ReadProblem.NO_NUMBER),
        ((200, "", MATRIX % b'{"metric":{},"values":[[59940,"1"],[60180,"1"]]}'), ReadProblem.UNREADABLE),
        ((200, "", b" " * (MAX_ANSWER_BYTES + 1)), ReadProblem.HUGE),
        (HANG, ReadProblem.SLOW),
    ],
)
async def test_an_answer_that_says_nothing_is_a_problem_and_has_no_secret(
    sources: HttpMetricSources, server: PrometheusServer, instead, problem
):
    server.instead = instead

    answer = await sources.read("shop", "fine", START, END)

    assert (answer.problem, answer.values) == (problem, {})
    assert "s3cr3t" not in answer.detail
    assert len(server.requests) == 1


async def test_a_source_that_is_down_or_may_not_be_reached_is_a_problem():
    addresses = {"down": "http://127.0.0.1:1", "metadata": "http://metadata.example:80"}
    sources = HttpMetricSources(addresses, {}, timeout_seconds=5, resolve=lambda *_: ["169.254.169.254"])

    down, refused = [await sources.read(name, "up", START, END) for name in addresses]
    await sources.close()

    assert down.problem is refused.problem is ReadProblem.DOWN
    assert "169.254.169.254 is" in refused.detail


async def test_values_of_moments_that_were_not_asked_for_are_left_out(
    sources: HttpMetricSources, server: PrometheusServer
):
    said = b'{"metric":{},"values":[[59940,"1"],[60000,"2"],[60030,"3"],[60120,"4"],[99999999999999999999,"5"]]}'
    server.instead = (200, "", MATRIX % said)

    assert (await sources.read("shop", "fine", START, END)).values == {START: 2.0, END: 4.0}
