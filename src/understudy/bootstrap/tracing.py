"""What ``OTEL_*`` asks for, and the tracer that provides it. OpenTelemetry is imported for no other process."""

import os
import re
from collections.abc import Mapping
from importlib import import_module
from math import nan
from typing import Any, NamedTuple
from urllib.parse import unquote

from understudy import DISTRIBUTION, __version__
from understudy.core.connection_urls import http_problem
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.ports.telemetry.tracing import Tracer
from understudy.settings import Settings

FLUSH_SECONDS = 2.0
"""Longest time that a process takes at its end to send the spans that it still has."""
EXTRA_HINT = f"Install the extra that makes traces, pip install '{DISTRIBUTION}[otel]', or unset the OTEL_* variables."
EXPORTERS = ("otlp", "console", "none")
PROTOCOL = "http/protobuf"
SAMPLERS = (
    "always_on", "always_off", "traceidratio",
    "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
)  # fmt: skip
DEFAULT_ENDPOINT = "http://localhost:4318"
MAX_QUEUE_SPANS = 65_536
_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_ADAPTER = "understudy.adapters.telemetry.otel"


class TracesRefused(Exception):
    """Traces are asked for and cannot be made; says why, and what to do next."""

    def __init__(self, detail: str, next_step: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.next_step = next_step


class Traces(NamedTuple):
    """How traces are made; ``url`` is ``None`` for those that go to standard output."""

    url: str | None
    headers: Mapping[str, str]
    timeout_seconds: float
    resource: Mapping[str, str]
    sampler: str
    ratio: float
    queue_spans: int


def wanted_traces(settings: Settings) -> Traces | None:
    """Return what the settings ask for; ``None``: no traces. A variable that is empty is one that is not set.

    Raises:
        TracesRefused: A variable cannot be used; the detail names it. Its value is repeated unless it may be secret.
    """
    endpoint, traces_endpoint = settings.otel_exporter_otlp_endpoint, settings.otel_exporter_otlp_traces_endpoint
    exporter = settings.otel_traces_exporter or ("otlp" if endpoint or traces_endpoint else "none")
    if (settings.otel_sdk_disabled or "").lower() == "true" or exporter == "none":
        return None
    _check_choice("OTEL_TRACES_EXPORTER", exporter, EXPORTERS)
    protocol = settings.otel_exporter_otlp_traces_protocol or settings.otel_exporter_otlp_protocol or PROTOCOL
    if exporter == "otlp":
        _check_choice("OTEL_EXPORTER_OTLP_PROTOCOL", protocol, (PROTOCOL,))
    sampler = settings.otel_traces_sampler or "parentbased_always_on"
    _check_choice("OTEL_TRACES_SAMPLER", sampler, SAMPLERS)
    return Traces(
        url=_url(endpoint, traces_endpoint) if exporter == "otlp" else None,
        headers=_headers(settings),
        timeout_seconds=_number(
            "OTEL_EXPORTER_OTLP_TIMEOUT", settings.otel_exporter_otlp_timeout or "10000", _Range(100, 600_000, " ms")
        )
        / 1000,
        resource=_resource(settings),
        sampler=sampler,
        ratio=_number("OTEL_TRACES_SAMPLER_ARG", settings.otel_traces_sampler_arg or "1", _Range(0, 1)),
        queue_spans=int(
            _number("OTEL_BSP_MAX_QUEUE_SIZE", settings.otel_bsp_max_queue_size or "2048", _Range(1, MAX_QUEUE_SPANS))
        ),
    )


def check_traces(settings: Settings) -> None:
    """Say before anything is opened that traces are asked for and cannot be made.

    Raises:
        TracesRefused: A variable cannot be used, or the extra is not installed.
    """
    wanted = wanted_traces(settings)
    if wanted is None:
        return
    try:
        _load().check_environment()  # some of them are read when it is imported
    except ValueError as problem:
        raise TracesRefused(
            f"OpenTelemetry's library cannot use one of its own OTEL_* variables: {problem}",
            "Correct or unset it: docs/how-to/trace-a-call.md names those that it reads.",
        ) from None


def open_tracer(settings: Settings, telemetry: Telemetry) -> Tracer | None:
    """Return the tracer that the settings ask for, if they do; must run after any fork, since it starts a thread.

    Raises:
        TracesRefused: As :func:`check_traces`.
    """
    wanted = wanted_traces(settings)
    if wanted is None:
        return None
    otel = _load()
    for outcome in ("sent", "failed", "dropped"):
        telemetry.count("trace_spans_total", outcome, by=0)

    def count(outcome: str, spans: int) -> None:
        telemetry.count("trace_spans_total", outcome, by=spans)

    collector = None if wanted.url is None else otel.Collector(wanted.url, wanted.headers, wanted.timeout_seconds)
    tracer: Tracer = otel.OtelTracer(
        otel.exporter_of(collector),
        count,
        sampler=otel.sampler_of(wanted.sampler, wanted.ratio),
        resource=wanted.resource,
        queue_spans=wanted.queue_spans,
    )
    return tracer


def _load() -> Any:
    try:
        return import_module(_ADAPTER)
    except ModuleNotFoundError as problem:
        raise TracesRefused(f"OTEL_* asks for traces, and {problem.name} is not installed", EXTRA_HINT) from None


def _check_choice(variable: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise TracesRefused(f"{variable}={value[:100]} cannot be used here", f"Set it to {' or '.join(choices)}.")


def _url(endpoint: str | None, traces_endpoint: str | None) -> str:
    variable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" if traces_endpoint else "OTEL_EXPORTER_OTLP_ENDPOINT"
    url = traces_endpoint or f"{(endpoint or DEFAULT_ENDPOINT).rstrip('/')}/v1/traces"
    if http_problem(url) is not None or "@" in url:
        raise TracesRefused(
            f"{variable} is no address of a collector",
            "Name it as http://collector:4318; a key goes into OTEL_EXPORTER_OTLP_HEADERS, or a file that "
            "OTEL_EXPORTER_OTLP_HEADERS_FILE names.",
        )
    return url


def _headers(settings: Settings) -> Mapping[str, str]:
    variable, given = "OTEL_EXPORTER_OTLP_TRACES_HEADERS", settings.otel_exporter_otlp_traces_headers
    if given is None:
        variable, given = "OTEL_EXPORTER_OTLP_HEADERS", settings.otel_exporter_otlp_headers
    found = _pairs(variable, given.get_secret_value() if given is not None else None)
    if not all(_FIELD_NAME.fullmatch(name) and _FIELD_VALUE.fullmatch(value) for name, value in found.items()):
        # The library that sends them would say so with the value.
        raise TracesRefused(
            f"{variable} has what no header may have: a line break, or a blank at an end",
            "Separate the pairs by commas, all on one line, and encode other signs as in URLs.",
        )
    return found


def _resource(settings: Settings) -> Mapping[str, str]:
    named = {"service.name": settings.otel_service_name} if settings.otel_service_name else {}
    return {
        "service.name": "understudy",
        "service.version": __version__,
        "service.instance.id": f"{settings.instance}:{os.getpid()}",
        "deployment.environment.name": settings.environment,
        **_pairs("OTEL_RESOURCE_ATTRIBUTES", settings.otel_resource_attributes),
        **named,
    }


def _pairs(variable: str, text: str | None) -> dict[str, str]:
    """Read ``name=value,name=value`` with values encoded as in URLs."""
    found = {}
    for pair in filter(None, map(str.strip, (text or "").split(","))):
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise TracesRefused(f"{variable} is no list of name=value", "Separate the pairs by commas.")
        found[unquote(name.strip())] = unquote(value.strip())
    return found


class _Range(NamedTuple):
    least: float
    most: float
    unit: str = ""


def _number(variable: str, text: str, allowed: _Range) -> float:
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not allowed.least <= value <= allowed.most:
        raise TracesRefused(
            f"{variable}={text[:100]} cannot be used",
            f"Set it to {allowed.least:.10g} to {allowed.most:.10g}{allowed.unit}.",
        )
    return value
