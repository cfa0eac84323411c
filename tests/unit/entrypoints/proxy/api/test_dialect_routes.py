"""Who may ask what in other protocols, and that their page names it."""

import asyncio
import re
from pathlib import Path

import pytest

from understudy.entrypoints.proxy.api.authorization import ACCESS
from understudy.entrypoints.proxy.api.dialect_routes import ROUTES, routes_at
from understudy.entrypoints.proxy.dialects.dialect import Target

PAGE = Path(__file__).resolve().parents[5] / "docs" / "reference" / "dialects.md"
OPEN = {"/", "/ping", "/health", "/version", "/v2/health/live", "/v2/health/ready"}


def named(path: str) -> str:
    return path.replace("{model}", "visits").replace("{version}", "1").replace("{label}", "stable")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_every_path_but_health_asks_for_a_key_and_for_the_scope_that_the_page_says(start, route):
    proxy = await start(auth=True)
    reader = [(b"authorization", b"Bearer visitor.secret")]  # predict:visits, and no more

    without = await proxy.ask(named(route.path), b"{}", method=route.method)
    with_predict = await proxy.ask(named(route.path), b"{}", method=route.method, headers=reader)

    is_call = route.path.endswith((":predict", ":classify", ":regress", "/infer", "/invocations"))
    assert without.status == (200 if route.path in OPEN else 401)
    assert with_predict.status != 401
    assert (with_predict.status == 403) is not (is_call or route.path in OPEN)


async def test_no_body_is_read_before_its_sender_was_let_in(start):
    proxy = await start(auth=True, receive_seconds=30)
    caller = [(b"authorization", b"Bearer visitor.secret")]  # predict:visits, and no more

    async with asyncio.timeout(5):
        for path in (named(route.path) for route in ROUTES if route.method == "POST"):
            assert (await proxy.ask(path, ends=False)).status == 401
        for path in ("/v1/models/visits/versions/2:predict", "/v2/models/visits/versions/2/infer"):
            assert (await proxy.ask(path, headers=caller, ends=False)).status == 403


def test_the_page_names_every_path():
    text = PAGE.read_text(encoding="utf-8")
    shown = set(re.findall(r"`(?:GET|POST) (/[^`]*)`|`((?:/|…)[^`]+)`", text))
    paths = {one for pair in shown for one in pair if one}

    tails = {path.removeprefix("…") for path in paths if path.startswith("…")}
    assert [route.path for route in ROUTES if route.path not in paths and not route.path.endswith(tuple(tails))] == []


def test_no_path_of_ours_is_a_dialects_too():
    ours = {(method, path) for method, path in ACCESS if routes_at(named(path).replace("{", "").replace("}", ""))}

    assert ours == set()


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/v1/models/a%2Fb:predict", ("a/b", None, None)),
        ("/v1/models/a:predict:predict", ("a:predict", None, None)),
        ("/V1/MODELS/Iris:Predict", ("Iris", None, None)),
        ("/v1/models/m/labels/stable:predict", ("m", None, "stable")),
        ("/v2/models/m/versions/7%2Fx/infer", ("m", "7/x", None)),
        ("/v2/models/" + "m" * 600 + "/infer", ("m" * 600, None, None)),
    ],
)
def test_a_calls_path_names_its_model_and_version(path, names):
    targets = [target for route, target in routes_at(path) if route.method == "POST"]

    assert targets == [Target(*names)]


@pytest.mark.parametrize(
    "path",
    ["/v1/models/m:rollback", "/v1/models/m/predict", "/v1/models/m/predict:batch", "/v1/models/m/n:predict", "/v2/"],
)
def test_other_paths_are_no_dialects(path):
    assert routes_at(path) == ()
