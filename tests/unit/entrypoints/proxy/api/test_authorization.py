"""Who may ask what: openness is said, not forgotten."""

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Mount

from understudy.bootstrap.proxy import open_parts
from understudy.core.routing.access import ANY_MODEL, Scope
from understudy.entrypoints.proxy.api.app import Proxy, create_api
from understudy.entrypoints.proxy.api.authorization import ACCESS, OPEN, methods_of_path, scope_of_route
from understudy.settings import Settings


def an_api() -> FastAPI:
    return create_api(Proxy(Settings(docs=True), open_parts, lambda: None))


def routes_of(api: FastAPI) -> set[tuple[str, str]]:
    """Return each route's methods and path; a mounted application answers any."""
    return {
        (method, getattr(route, "path", repr(route)))
        for route in api.routes
        for method in getattr(route, "methods", None) or ("ANY",)
    }


def test_every_route_says_what_it_asks_for():
    assert routes_of(an_api()) - ACCESS.keys() == set()


def test_the_table_names_no_route_that_there_is_not():
    assert ACCESS.keys() - routes_of(an_api()) == set()


def test_a_route_that_the_table_does_not_name_is_found():
    api = an_api()
    api.delete("/v1/models/{model}")(lambda: None)
    api.routes.append(Mount("/static", app=FastAPI()))

    assert routes_of(api) - ACCESS.keys() == {("DELETE", "/v1/models/{model}"), ("ANY", "/static")}


def test_nothing_is_open_but_health_and_the_documentation():
    is_open = {path for (_, path), needed in ACCESS.items() if needed is OPEN}

    assert is_open == {"/livez", "/startupz", "/readyz", "/docs", "/openapi.json"}


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("POST", "/v1/models/a%2Fb/predict", (Scope.PREDICT, "a/b")),
        ("POST", "/v1/models/visits/predict:batch", (Scope.PREDICT, "visits")),
        ("POST", "/v1/models/visits/versions/7%2Fx/predict", (Scope.OPERATE, "visits")),
        ("POST", "/v1/models/a%2Fb/rank", (Scope.PREDICT, "a/b")),
        ("POST", "/v1/models/visits/versions/7%2Fx/rank", (Scope.OPERATE, "visits")),
        ("GET", "/v1/models/visits", (Scope.READ, "visits")),
        ("POST", "/v1/models/a%2Fb:rollback", (Scope.OPERATE, "a/b")),
        ("POST", "/v1/registry/models/a%2Fb/versions", (Scope.REGISTER, "a/b")),
        ("PUT", "/v1/registry/models/visits/versions/7/endpoints/a:1", (Scope.REGISTER, "visits")),
        ("DELETE", "/v1/registry/models/visits/versions/7/endpoints/a:1", (Scope.REGISTER, "visits")),
        ("POST", "/v1/registry/models/visits/versions/7:retire", (Scope.REGISTER, "visits")),
        ("POST", "/v1/registry/models/visits/versions/7:restore", (Scope.REGISTER, "visits")),
        ("POST", "/v1/registry/models/visits/versions/7:check", (Scope.OPERATE, "visits")),
        ("POST", "/v1/keys", (Scope.KEYS, None)),
        ("POST", "/v1/keys/k1:revoke", (Scope.KEYS, None)),
        ("GET", "/v1/models", (Scope.READ, ANY_MODEL)),
        ("GET", "/v1/audit", (Scope.READ, ANY_MODEL)),
        ("POST", "/v1/outcomes", (Scope.OUTCOMES, ANY_MODEL)),
        ("GET", "/problems/E403", (Scope.READ, ANY_MODEL)),
        ("GET", "/livez", (OPEN, None)),
        ("POST", "/livez", (Scope.READ, None)),
        ("GET", "/livez/", (Scope.READ, None)),
        ("POST", "/v1/models/visits/versions/7/predict/", (Scope.READ, None)),
    ],
)
def test_a_request_asks_for_the_scope_of_its_route(method, path, needed):
    assert scope_of_route(method, path) == needed


@given(st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "BREW"]), st.text(max_size=30))
def test_whatever_is_no_route_asks_for_a_scope(method, path):
    assert methods_of_path("/" + path) or scope_of_route(method, "/" + path) == (Scope.READ, None)
