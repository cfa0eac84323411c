"""What ``OTEL_*`` asks for, and what it costs not to ask."""

import subprocess
import sys
from textwrap import dedent

import pytest

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.bootstrap.tracing import SAMPLERS, TracesRefused, check_traces, open_tracer, wanted_traces
from understudy.settings import Settings


def asked(**variables: str) -> Settings:
    return Settings.model_validate({f"otel_{name}": value for name, value in variables.items()})


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"service_name": "x", "resource_attributes": "a=b", "traces_sampler": "always_on"},
        {"traces_exporter": "none", "exporter_otlp_endpoint": "http://collector:4318"},
        {"sdk_disabled": "TRUE", "exporter_otlp_endpoint": "http://collector:4318"},
        {"exporter_otlp_endpoint": "", "traces_exporter": ""},
    ],
)
def test_nobody_asks_for_traces(variables):
    assert wanted_traces(asked(**variables)) is None
    assert open_tracer(asked(**variables), MemoryTelemetry()) is None


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({"exporter_otlp_endpoint": "http://collector:4318"}, "http://collector:4318/v1/traces"),
        ({"exporter_otlp_endpoint": "https://collector/otlp/"}, "https://collector/otlp/v1/traces"),
        ({"traces_exporter": "otlp"}, "http://localhost:4318/v1/traces"),
        (
            {"exporter_otlp_endpoint": "http://a:1", "exporter_otlp_traces_endpoint": "http://b:2/mine"},
            "http://b:2/mine",
        ),
        ({"traces_exporter": "console"}, None),
    ],
)
def test_where_traces_go(variables, url):
    wanted = wanted_traces(asked(**variables))

    assert wanted is not None
    assert wanted.url == url


def test_everything_else_has_the_standards_defaults_or_what_is_set():
    usual = wanted_traces(asked(traces_exporter="otlp"))
    changed = wanted_traces(
        asked(
            traces_exporter="otlp", exporter_otlp_headers="authorization=Bearer%20k, x = y",
            exporter_otlp_timeout="500",
            service_name="mine", resource_attributes="service.name=theirs,team=ml%20ops", bsp_max_queue_size="7",
            traces_sampler="traceidratio", traces_sampler_arg="0.25",
        )
    )  # fmt: skip

    assert usual is not None
    assert changed is not None
    assert (usual.timeout_seconds, usual.queue_spans, usual.sampler) == (10.0, 2048, "parentbased_always_on")
    assert (usual.resource["service.name"], usual.resource["deployment.environment.name"]) == ("understudy", "dev")
    assert (changed.timeout_seconds, changed.queue_spans, changed.ratio) == (0.5, 7, 0.25)
    assert changed.headers == {"authorization": "Bearer k", "x": "y"}
    assert (changed.resource["service.name"], changed.resource["team"]) == ("mine", "ml ops")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("traces_exporter", "zipkin"),
        ("exporter_otlp_protocol", "grpc"),
        ("exporter_otlp_endpoint", "collector:4318"),
        ("exporter_otlp_endpoint", "http://me:secret@collector:4318"),
        ("exporter_otlp_endpoint", "http://[collector"),
        ("exporter_otlp_timeout", "10"),
        ("exporter_otlp_timeout", "soon"),
        ("exporter_otlp_headers", "secret"),
        ("exporter_otlp_headers", "authorization=secret\nx-tenant=1"),
        ("exporter_otlp_headers", "authorization=secret%0d%0ax"),
        ("exporter_otlp_headers", "authorization=%20secret"),
        ("exporter_otlp_traces_headers", "secret"),
        ("exporter_otlp_traces_headers", "authorization=abc%0Asecret"),
        ("resource_attributes", "x"),
        ("traces_sampler", "jaeger_remote"),
        ("traces_sampler_arg", "2"),
        ("traces_sampler_arg", "nan"),
        ("bsp_max_queue_size", "0"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named_with_what_to_do_and_no_secret_is_repeated(name, value):
    with pytest.raises(TracesRefused) as refused:
        check_traces(asked(**{"traces_exporter": "otlp", name: value}))

    assert f"OTEL_{name.upper()}" in refused.value.detail
    assert refused.value.next_step
    assert "secret" not in refused.value.detail + refused.value.next_step


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_BSP_SCHEDULE_DELAY", "0"), ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many")]
)
def test_what_the_library_reads_by_itself_and_cannot_use_is_said_before_anything_starts(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    # In a process of its own: the library reads some of them when it is imported.
    program = "from understudy.bootstrap.tracing import check_traces; from understudy.settings import Settings"

    done = subprocess.run(
        [sys.executable, "-c", f"{program}; check_traces(Settings.model_validate({{'otel_traces_exporter': 'otlp'}}))"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert f"TracesRefused: OpenTelemetry's library cannot use one of its own OTEL_* variables: {name}" in done.stderr


def test_headers_of_traces_come_before_the_general_ones():
    wanted = wanted_traces(
        asked(traces_exporter="otlp", exporter_otlp_headers="a=b", exporter_otlp_traces_headers="c=d")
    )

    assert wanted is not None
    assert wanted.headers == {"c": "d"}


@pytest.mark.deep
@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"])
def test_the_library_says_nothing_of_a_header_that_it_cannot_read_itself(monkeypatch, name):
    monkeypatch.setenv(name, 'x-key="canary;secret"')
    program = """
        from understudy.adapters.memory.telemetry import MemoryTelemetry
        from understudy.bootstrap.tracing import open_tracer
        from understudy.settings import Settings
        assert open_tracer(Settings(), MemoryTelemetry()) is not None
    """
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")

    done = subprocess.run(
        [sys.executable, "-c", dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "canary" not in done.stdout + done.stderr


@pytest.mark.deep
@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_every_sampler_that_is_taken_makes_a_tracer(sampler):
    tracer = open_tracer(
        asked(traces_exporter="otlp", traces_sampler=sampler, traces_sampler_arg="0"), MemoryTelemetry()
    )

    assert tracer is not None
    span = tracer.receive("x", None, {})
    await tracer.close(5)

    assert span.is_recorded == sampler.endswith("always_on")


# FastAPI itself needs opentelemetry-api.
HEAVY = (
    "opentelemetry.sdk.",
    "opentelemetry.exporter",
    "opentelemetry.proto",
    "requests",
    "understudy.adapters.telemetry.otel",
)


@pytest.mark.deep
def test_the_proxy_imports_nothing_for_traces_until_somebody_asks_for_them():
    code = (
        "import sys; from understudy.bootstrap.tracing import check_traces; from understudy.settings import Settings\n"
        "from understudy.entrypoints.proxy.processes.launch import leave_out_metrics_sdk; leave_out_metrics_sdk()\n"
        "from understudy.entrypoints.proxy.processes import gunicorn_workers, uvicorn_process\n"
        f"heavy = lambda: sorted(m for m, it in sys.modules.items() if it and m.startswith({HEAVY!r}))\n"
        "check_traces(Settings()); before = heavy()\n"
        "check_traces(Settings(otel_traces_exporter='otlp')); print(before, 'opentelemetry.sdk.trace' in heavy())"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)

    assert done.stdout.strip() == "[] True"


@pytest.mark.deep
def test_where_the_extra_is_missing_the_start_ends_and_says_what_to_install():
    code = (
        "import sys; sys.modules['opentelemetry.sdk.trace'] = None\n"
        "from understudy.entrypoints.cli.main import run; sys.exit(run(['serve', 'proxy']))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120,
        env={"OTEL_TRACES_EXPORTER": "otlp", "PATH": "/usr/bin"},
    )  # fmt: skip

    assert done.returncode == 2
    assert "opentelemetry.sdk.trace is not installed" in done.stderr
    assert "pip install 'understudy-serving[otel]'" in done.stderr
