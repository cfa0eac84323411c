"""Which paths are traced, and under which route."""

import pytest
from builders import a_version_row, policy_rows

from understudy.adapters.memory.tracing import MemoryTracer
from understudy.entrypoints.proxy.messages.call_span import route_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("raw_path", "route"),
    [
        (b"/v1/models/visits/predict", "/v1/models/{model}/predict"),
        (b"/v1/models/visits/predict%3Abatch", "/v1/models/{model}/predict:batch"),
        (b"/v1/models/visits/versions/7/predict", "/v1/models/{model}/versions/{version}/predict"),
        (b"/v1/models/visits:predict", "/v1/models/{model}:predict"),
        (b"/v1/models/a%2Fb%3apredict", "/v1/models/{model}:predict"),
        (b"/V1/Models/visits/Versions/7:Predict", "/v1/models/{model}/versions/{version}:predict"),
        (b"/v1/models/visits/labels/canary:predict", "/v1/models/{model}/labels/{label}:predict"),
        (b"/v2/models/visits/infer", "/v2/models/{model}/infer"),
        (b"/v2/models/visits/versions/7/infer", "/v2/models/{model}/versions/{version}/infer"),
        (b"/v1/models/visits/infer", None),
        (b"/v2/models/visits:predict", None),
        (b"/v2/models/visits/labels/canary/infer", None),
        (b"/v1/models/visits", None),
    ],
)
def test_calls_have_a_route_without_names_and_nothing_else_has_one(raw_path, route):
    assert route_of(raw_path) == route


@pytest.mark.parametrize(
    ("path", "body", "route"),
    [
        ("/v1/models/visits:predict", {"instances": [[1, 2]]}, "/v1/models/{model}:predict"),
        (
            "/v2/models/visits/infer",
            {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]},
            "/v2/models/{model}/infer",
        ),
    ],
)
async def test_a_call_in_another_protocol_goes_on_in_its_callers_trace(start, path, body, route):
    tracer = MemoryTracer()
    proxy = await start(models={"visits": policy_rows(versions=[a_version_row("1")])}, tracer_of=lambda _: tracer)

    response = await proxy.client.post(path, json=body, headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})

    (span,) = [one for one in tracer.ended if one.kind == "server"]
    assert (span.name, span.context.trace_id) == (f"POST {route}", TRACE)
    assert span.attributes["understudy.prediction_id"] == response.headers["x-prediction-id"]
    assert response.headers["traceresponse"].startswith(f"00-{TRACE}-{span.context.span_id}")
