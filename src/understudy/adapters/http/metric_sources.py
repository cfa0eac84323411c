"""Prometheus' HTTP API: a query over a time for each version, from addresses that settings name.

Source:
    Prometheus, "HTTP API": ``POST /api/v1/query_range`` with a form, answers with ``status``, ``data`` and ``error``;
    errors of a query are 400 and 422. Thanos, Mimir and VictoriaMetrics speak it as well.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from math import isfinite
from typing import Any
from urllib.parse import urlencode

import orjson

from understudy.adapters.http.judged_endpoint import Fetched, FetchProblem
from understudy.adapters.http.name_resolver import Resolve, addresses_of
from understudy.adapters.http.named_endpoints import NamedEndpoints
from understudy.core.canary.metric_samples import SAMPLE_SECONDS, ReadProblem
from understudy.ports.rollout.metric_sources import MetricAnswer

MAX_ANSWER_BYTES = 1_048_576
"""Two days of one series, a value a minute, take some 80 KB."""
MAX_VALUE = 1e60
"""A value beyond it is no number: its powers overflow a float."""
MIN_VALUE = 1e-60
"""A value nearer to 0 is 0: what is divided by it, and its powers, would leave the floats."""
_PATH = "/api/v1/query_range"
_WHOLE = {"partial_response": "false", "deny_partial_response": "1"}
"""Thanos' and VictoriaMetrics' words for an error where some of their stores do not answer; others ignore them. Of a
part of its pods a version would look like another one."""
_FETCH_PROBLEMS = {
    FetchProblem.LATE: ReadProblem.SLOW,
    FetchProblem.HUGE: ReadProblem.HUGE,
    FetchProblem.UNREACHED: ReadProblem.DOWN,
}
_STATUSES: Mapping[int, ReadProblem] = {
    HTTPStatus.UNAUTHORIZED: ReadProblem.DENIED,
    HTTPStatus.FORBIDDEN: ReadProblem.DENIED,
    HTTPStatus.BAD_REQUEST: ReadProblem.WRONG_QUERY,
    HTTPStatus.UNPROCESSABLE_ENTITY: ReadProblem.WRONG_QUERY,
    HTTPStatus.NOT_FOUND: ReadProblem.UNREADABLE,
    HTTPStatus.METHOD_NOT_ALLOWED: ReadProblem.UNREADABLE,
}


class HttpMetricSources:
    """Implements ``ports.MetricSources``.

    Args:
        addresses: Of the sources, by their names; treated as secrets, because many contain a password.
        tokens: Sent as ``authorization: Bearer`` to the sources of these names.
        timeout_seconds: Longest time of one query, resolving and connecting included.
        resolve: Returns the addresses of a name; called in a thread.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        tokens: Mapping[str, str],
        *,
        timeout_seconds: float,
        resolve: Resolve = addresses_of,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        queries = {name: url.rstrip("/") + _PATH for name, url in addresses.items()}
        self._sources = NamedEndpoints(queries, tokens, timeout_seconds=timeout_seconds, resolve=resolve)

    @property
    def names(self) -> frozenset[str]:
        """The sources that this process knows."""
        return self._sources.names

    async def read(self, source: str, query: str, start: int, end: int) -> MetricAnswer:
        """Ask once, within the deadline; every problem is an answer without values."""
        form = {"query": query, "start": start, "end": end, "step": SAMPLE_SECONDS, "timeout": self._timeout_seconds}
        form |= _WHOLE
        headers = {"content-type": "application/x-www-form-urlencoded"}
        fetched = await self._sources.fetch(source, urlencode(form).encode(), headers, MAX_ANSWER_BYTES)
        if fetched is None:
            return MetricAnswer(problem=ReadProblem.UNKNOWN_SOURCE, detail=f"there is no metric source {source}")
        answer = _answer_of(fetched, range(start, end + 1, SAMPLE_SECONDS))
        return answer._replace(detail=self._sources.detail(source, answer.detail))

    async def close(self) -> None:
        """Close the connections."""
        await self._sources.close()


def _answer_of(fetched: Fetched, asked: range) -> MetricAnswer:
    if fetched.problem is not None:
        return MetricAnswer(problem=_FETCH_PROBLEMS[fetched.problem], detail=fetched.detail)
    status = fetched.status
    if status != HTTPStatus.OK:
        is_redirect = HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST
        usual = ReadProblem.REDIRECTS if is_redirect else ReadProblem.FAILED
        return MetricAnswer(problem=_STATUSES.get(status, usual), detail=f"{status} {_error_of(fetched)}")
    try:
        document = orjson.loads(fetched.body)
        if document["status"] != "success" or document["data"]["resultType"] != "matrix":
            return MetricAnswer(problem=ReadProblem.UNREADABLE, detail="its answer is no matrix")
        return _values_of(document["data"]["result"], asked)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        return MetricAnswer(problem=ReadProblem.UNREADABLE, detail=f"its answer cannot be read: {problem}")


def _values_of(series: Sequence[Mapping[str, Any]], asked: range) -> MetricAnswer:
    if len(series) > 1:
        labels = [", ".join(f"{key}={value}" for key, value in one["metric"].items()) for one in series[:2]]
        return MetricAnswer(
            problem=ReadProblem.SEVERAL_SERIES, detail=f"{len(series)} series, such as {' and '.join(labels)}"
        )
    if not series:
        return MetricAnswer(problem=ReadProblem.NO_SERIES)
    # A series of native histograms has no values.
    pairs = [(int(at), float(text)) for at, text in series[0].get("values", ())]
    own = [(at, value) for at, value in pairs if at in asked]
    if pairs and not own:
        return MetricAnswer(
            problem=ReadProblem.UNREADABLE, detail="its values are of other minutes than were asked for"
        )
    found = {at: _rounded(value) for at, value in own if isfinite(value) and abs(value) <= MAX_VALUE}
    return MetricAnswer(found, ReadProblem.NONE if found else ReadProblem.NO_NUMBER)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}") if abs(value) >= MIN_VALUE else 0.0


def _error_of(fetched: Fetched) -> str:
    """Return what the API says of its error, or whatever came; uncut, or half a secret would be left at the end."""
    try:
        document = orjson.loads(fetched.body)
        return str(document["error"])
    except (LookupError, TypeError, ValueError):
        return fetched.body.decode(errors="replace")
