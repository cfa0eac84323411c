"""Tokens of a real issuer beside keys, against a real Postgres: who may what, and whom the audit names."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from asgi import lifespan
from e2e.stack import register, sql
from joserfc.jwk import RSAKey
from loopback.issuer import AUDIENCE, Issuer, an_issuer, ec_key, signed, unsigned
from pydantic import SecretStr

from understudy.adapters.dev_server.example_models import example_rows
from understudy.entrypoints.proxy.api.app import create_app
from understudy.settings import Settings

GRANTS = '{"groups": {"oncall": ["read", "operate:visits"], "shop": ["predict:visits"]}}'
POLICY = "/v1/models/visits/policy"


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with an_issuer() as issuer:
        issuer.keys = {"rsa": RSAKey.generate_key(2048), "ec": ec_key()}
        yield issuer


@pytest.fixture
async def proxy(
    issuer: Issuer, tmp_path: Path, database_url: str, model_port: Callable[[str], int]
) -> AsyncIterator[httpx2.AsyncClient]:
    champion = await register(database_url, 1, [model_port("visits:1")])
    other = await register(database_url, 1, [1], model_name="digits")
    for model, version in (("visits", champion), ("digits", other)):
        await sql(
            database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)", model, version
        )
    settings = Settings(
        database_url=SecretStr(database_url), metrics_port=0, state_dir=tmp_path, auth=True,
        oidc_issuer=issuer.name, oidc_audience=AUDIENCE, oidc_jwks_url=issuer.url, oidc_scopes=GRANTS,
    )  # fmt: skip
    app = create_app(settings)
    transport = httpx2.ASGITransport(app=app)
    async with lifespan(app), httpx2.AsyncClient(transport=transport, base_url="http://proxy", timeout=60) as client:
        await issuer.was_asked.wait()
        yield client


async def asked(
    proxy: httpx2.AsyncClient, token: str, method: str = "GET", path: str = POLICY, **request: Any
) -> httpx2.Response:
    """What the proxy answers once it has the issuer's keys."""
    headers = {"authorization": f"Bearer {token}", **request.pop("headers", {})}
    while True:
        answer = await proxy.request(method, path, headers=headers, **request)
        if answer.json().get("code") != "E517":
            return answer


async def test_a_token_gives_the_scopes_of_its_claims_and_its_subject_is_the_actor(proxy, issuer, database_url):
    oncall, shop = issuer.token("rsa", groups=["oncall"]), issuer.token("ec", sub="till-7", groups="shop")
    change: dict[str, Any] = {"json": {"fallback": False, "reason": "a test"}, "headers": {"if-match": '"1"'}}

    changed = await asked(proxy, oncall, "PATCH", **change)
    others = await asked(proxy, oncall, "PATCH", "/v1/models/digits/policy", **change)
    keys = await asked(proxy, oncall, "GET", "/v1/keys")
    inputs = {"entity_id": "c-1", "inputs": example_rows("visits")[0].inputs}
    predicted = await asked(proxy, shop, "POST", "/v1/models/visits/predict", json=inputs)
    reading = await asked(proxy, shop)

    assert (changed.status_code, changed.json()["changed"]) == (200, True), changed.text
    assert [(one.status_code, one.json()["code"]) for one in (others, keys, reading)] == [(403, "E403")] * 3
    assert predicted.status_code == 200, predicted.text
    (row,) = await sql(
        database_url, "SELECT actor, via FROM PolicyAudit WHERE generation = 2 AND model_name = 'visits'"
    )
    assert tuple(row) == ("oidc:dana", "http")


async def test_a_token_that_is_not_to_be_believed_is_refused_without_a_word_of_it(proxy, issuer, capfd):
    claims = issuer.claims(groups=["oncall"])
    bad = {
        "the token is for another audience": issuer.token("rsa", aud="https://shop"),
        "the token is of another issuer": issuer.token("rsa", iss="https://issuer"),
        "the token has expired": issuer.token("ec", exp=claims["iat"] - 61),
        "the token's algorithm is none of ES256, EdDSA, RS256": unsigned(claims, kid="rsa"),
        "the token's algorithm is not that of its key": signed(issuer.keys["ec"], claims, kid="rsa"),
        "the token's signature is wrong": signed(ec_key(), claims, kid="ec"),
        "the token brings a key, or the address of one": signed(
            issuer.keys["ec"], claims, kid="ec", jku="http://127.0.0.1:1/keys"
        ),
    }
    for words, token in bad.items():
        answer = await asked(proxy, token)
        found = answer.json()
        assert (answer.status_code, found["code"], found["detail"]) == (401, "E401", words)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert not any(part in answer.text for part in token.split(".") if part)
    said = "".join(capfd.readouterr())
    assert not any(part in said for token in bad.values() for part in token.split(".") if part)
    assert (await asked(proxy, "nokey.secret")).json()["detail"] == "the key is unknown or revoked"
