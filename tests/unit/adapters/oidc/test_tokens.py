"""Tokens are believed by the issuer's published keys alone."""

import asyncio
import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from joserfc.jwk import OKPKey
from loopback.issuer import AUDIENCE, Issuer, by_shared_secret, ec_key, published, signed, unsigned, with_header

from understudy.adapters.oidc.published_keys import NotFetched, PublishedKeys, keys_of
from understudy.adapters.oidc.tokens import MAX_ASKED, MAX_STALE_SECONDS, REFETCH_SECONDS, OidcTokens
from understudy.core.routing.token_grants import parse_grants
from understudy.core.routing.token_rules import TokenRules
from understudy.errors import TokenKeysAway, Unauthenticated

GRANTS = parse_grants('{"groups": {"oncall": ["operate:fraud"]}}')


class World:
    """An issuer whose keys are fetched without HTTP, and clocks that are set."""

    def __init__(self, *, max_seconds: float = 86_400.0, **options: Any) -> None:
        self.issuer = Issuer()
        self.issuer.url = "https://issuer/keys"
        self.issuer.keys = {"ec": ec_key(), "ed": OKPKey.generate_key("Ed25519")}
        self.clock, self.ahead = 1_000.0, 0.0
        self.fetches, self.problem, self.was_fetched = 0, "", asyncio.Event()
        rules = TokenRules("https://issuer", AUDIENCE, GRANTS, max_seconds=max_seconds)
        self.tokens = OidcTokens(rules, self.fetch, wall=self.wall, now=lambda: self.clock, **options)

    def wall(self) -> float:
        return float(self.issuer.claims()["iat"]) + self.ahead

    async def fetch(self) -> PublishedKeys:
        self.fetches += 1
        self.was_fetched.set()
        if self.problem:
            raise NotFetched(self.problem)
        return published_keys(self.issuer.keys)


def published_keys(keys: dict[str, Any], **fields: Any) -> PublishedKeys:
    return keys_of(json.dumps(published(keys, **fields)).encode())


@pytest.fixture
async def world() -> World:
    world = World()
    await world.tokens.fetch_once()
    return world


def refusal(world: World, token: str) -> str:
    with pytest.raises(Unauthenticated) as refused:
        world.tokens.caller(token)
    assert token.split(".")[1][:20] not in refused.value.detail + refused.value.next_step
    return refused.value.detail


@pytest.mark.parametrize("kid", ["ec", "ed"])
async def test_a_token_by_a_published_key_is_its_subjects(world, kid):
    caller = world.tokens.caller(world.issuer.token(kid, groups=["oncall"]))

    assert (caller.id, set(caller.scopes)) == ("oidc:dana", {"operate:fraud"})


async def test_a_token_without_the_name_of_its_key_is_by_the_only_one_of_its_kind(world):
    token = signed(world.issuer.keys["ec"], world.issuer.claims())

    assert world.tokens.caller(token).id == "oidc:dana"
    world.issuer.keys["other"] = ec_key()
    await world.tokens.fetch_once()
    assert "does not name its key" in refusal(world, signed(world.issuer.keys["ec"], world.issuer.claims(sub="kim")))


async def test_no_token_is_believed_that_the_issuer_did_not_sign(world):
    issuer, ec, claims = world.issuer, world.issuer.keys["ec"], world.issuer.claims()
    good, public = issuer.token("ec"), ec.as_dict(private=False)
    by_secret = by_shared_secret(ec.as_pem(private=False), claims, kid="ec")
    none_of = "the token's algorithm is none of ES256, EdDSA, RS256"

    assert refusal(world, unsigned(claims, kid="ec")) == none_of
    assert refusal(world, unsigned(claims, kid="ec") + "AAAA") == none_of
    assert refusal(world, by_secret) == none_of
    assert refusal(world, with_header(good, alg="None", kid="ec")) == none_of
    assert refusal(world, with_header(good, alg=["ES256"], kid="ec")) in (none_of, "the token is no signed JWT")
    assert refusal(world, with_header(good, alg="EdDSA", kid="ec")) == "the token's algorithm is not that of its key"
    assert refusal(world, with_header(good, alg="RS256", kid="ed")) == "the token's algorithm is not that of its key"
    assert refusal(world, signed(ec_key(), claims, kid="ec")) == "the token's signature is wrong"
    assert refusal(world, with_header(good, alg="ES256", kid="ec", typ="at+jwt")) == "the token's signature is wrong"
    assert refusal(world, good[:-4] + "AAAA") == "the token's signature is wrong"
    for elsewhere in ({"jku": "http://127.0.0.1/keys"}, {"jwk": public}, {"x5u": "http://x"}, {"crit": ["b64"]}):
        brings = "the token brings a key, or the address of one"
        assert refusal(world, with_header(good, alg="ES256", kid="ec", **elsewhere)) == brings
    for kid in ("../ec", "http://127.0.0.1/keys", "' OR 1=1 --", "", "ed\x00"):
        with pytest.raises(TokenKeysAway, match="not known yet"):
            world.tokens.caller(signed(ec, claims, kid=kid))
    assert refusal(world, with_header(good, alg="ES256", kid=7)) == "the token does not name its key (kid)"
    assert world.fetches == 1
    await world.tokens.fetch_once()
    for kid in ("../ec", "http://127.0.0.1/keys", "' OR 1=1 --", "", "ed\x00"):
        unknown = "the token names a key (kid) that its issuer does not publish"
        assert refusal(world, signed(ec, claims, kid=kid)) == unknown


async def test_header_fields_that_mean_nothing_here_are_passed_over_as_the_standard_has_it(world):
    ec, claims = world.issuer.keys["ec"], world.issuer.claims()

    for more in ({"nonce": "4Jz"}, {"signer": "arn:" + "a" * 500}, {"x5t": "QUJD"}):
        assert world.tokens.caller(signed(ec, claims, kid="ec", **more)).id == "oidc:dana"


@pytest.mark.parametrize("token", ["ey.ey.ey", "eyJ9.e30.x", "..", "ey..", f"{'ey' * 3000}.a.b"])
async def test_what_is_no_token_is_refused(world, token):
    with pytest.raises(Unauthenticated, match="no signed JWT"):
        world.tokens.caller(token)


@pytest.mark.parametrize(
    ("said", "words"), [([], "no JSON object"), ("dana", "no JSON object"), (None, "no JSON object")]
)
async def test_claims_are_an_object(world, said, words):
    assert words in refusal(world, signed(world.issuer.keys["ec"], said, kid="ec"))


async def test_a_token_is_verified_once_and_refused_once_it_is_over(world):
    token = world.issuer.token("ec")
    first = world.tokens.caller(token)

    assert world.tokens.caller(token) is first
    world.ahead = 661.0
    assert refusal(world, token) == "the token has expired"


async def test_so_many_verified_tokens_are_kept_at_most():
    world = World(max_kept=3)
    await world.tokens.fetch_once()
    first = world.tokens.caller(world.issuer.token("ed", sub="first"))

    others = [world.issuer.token("ed", sub=f"dana-{number}") for number in range(8)]
    callers = [world.tokens.caller(token) for token in others]

    assert len(world.tokens) == 3
    assert world.tokens.caller(others[-1]) is callers[-1]
    assert world.tokens.caller(world.issuer.token("ed", sub="first")) is not first


async def test_a_key_that_was_published_a_moment_after_a_fetch_is_waited_for_and_one_that_never_was_is_refused(world):
    world.issuer.keys["new"] = ec_key()
    token, other = world.issuer.token("new"), signed(ec_key(), world.issuer.claims(), kid="never")

    for unknown in (token, other):
        with pytest.raises(TokenKeysAway, match="not known yet"):
            world.tokens.caller(unknown)
    await world.tokens.fetch_once()

    assert world.tokens.caller(token).id == "oidc:dana"
    assert "does not publish" in refusal(world, other)
    world.clock += REFETCH_SECONDS + 0.1
    with pytest.raises(TokenKeysAway, match="not known yet"):
        world.tokens.caller(other)


async def test_names_of_unknown_keys_that_are_remembered_have_a_bound(world):
    for number in range(MAX_ASKED):
        with pytest.raises(TokenKeysAway):
            world.tokens.caller(signed(world.issuer.keys["ec"], world.issuer.claims(), kid=f"k{number}"))

    assert "does not publish" in refusal(world, signed(world.issuer.keys["ec"], world.issuer.claims(), kid="more"))


async def test_how_long_the_issuer_is_away_is_told_after_each_fetch():
    told: list[float] = []
    world = World(tell_away=told.append)

    await world.tokens.fetch_once()
    world.problem = "no answer: ConnectError"
    await world.tokens.fetch_once()
    world.clock += 40.0
    await world.tokens.fetch_once()
    world.problem = ""
    await world.tokens.fetch_once()

    assert told == [0.0, 1.0, 40.0, 0.0]


async def test_what_a_key_signed_is_not_believed_once_the_key_is_not_published_any_more(world):
    token = world.issuer.token("ec")
    world.tokens.caller(token)

    world.issuer.keys["ec"] = ec_key()
    await world.tokens.fetch_once()

    assert refusal(world, token) == "the token's signature is wrong"


async def test_nothing_is_believed_of_an_issuer_that_publishes_no_key_any_more(world):
    token = world.issuer.token("ec")
    world.tokens.caller(token)

    world.issuer.keys.clear()
    await world.tokens.fetch_once()

    with pytest.raises(TokenKeysAway):
        world.tokens.caller(token)
    await world.tokens.fetch_once()
    assert "does not publish" in refusal(world, token)


async def test_while_the_issuer_is_down_its_last_keys_are_believed_for_a_day():
    world = World()
    with pytest.raises(TokenKeysAway) as away:
        world.tokens.caller(world.issuer.token("ec"))
    assert away.value.retry_after_seconds is not None
    await world.tokens.fetch_once()
    world.problem = "no answer: ConnectError"

    world.clock += MAX_STALE_SECONDS
    await world.tokens.fetch_once()
    assert world.tokens.caller(world.issuer.token("ec")).id == "oidc:dana"
    world.clock += 1
    with pytest.raises(TokenKeysAway):
        world.tokens.caller(world.issuer.token("ec", sub="kim"))


async def test_a_token_that_was_verified_is_not_believed_for_longer_than_its_key():
    world = World(max_seconds=31 * 86_400.0)
    await world.tokens.fetch_once()
    token = world.issuer.token("ec", exp=int(world.wall()) + 30 * 86_400)
    world.tokens.caller(token)
    world.problem = "no answer: ConnectError"

    world.clock += MAX_STALE_SECONDS + 1
    await world.tokens.fetch_once()

    with pytest.raises(TokenKeysAway):
        world.tokens.caller(token)


async def test_the_keys_are_fetched_at_once_and_again_when_a_token_names_another():
    world = World(refetch_seconds=0.0)
    task = asyncio.create_task(world.tokens.run())

    async with asyncio.timeout(5):
        await world.was_fetched.wait()
        world.was_fetched.clear()
        world.issuer.keys["new"] = ec_key()
        with pytest.raises(TokenKeysAway):
            world.tokens.caller(world.issuer.token("new"))
        await world.was_fetched.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert world.fetches == 2


def test_keys_for_other_purposes_are_passed_over():
    key = ec_key()
    secret = {"kty": "oct", "k": urlsafe_b64encode(b"secret" * 8).decode(), "kid": "s"}

    unusable: list[list[Any]] = [
        [], [secret], [{}], ["x"], [{"kty": "EC", "crv": "P-256"}], [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}],
        published({"a": key}, use="enc")["keys"], published({"a": key}, alg="ES384")["keys"],
        [ec_key().generate_key("P-384").as_dict(private=False)], published({"a": key}, x="AAAA")["keys"],
    ]  # fmt: skip
    for listed in unusable:
        assert published_keys_of(listed) == {}
    assert set(published_keys_of([secret, *published({"a": key}, alg="ES256")["keys"]])) == {("a", "ES256")}


def published_keys_of(listed: Any) -> PublishedKeys:
    return keys_of(json.dumps({"keys": listed}).encode())


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"keys": {}}', b'{"keys": ' + b"[" * 100_000])
def test_what_is_no_key_set_is_refused(body):
    with pytest.raises(NotFetched, match="no JWK set"):
        keys_of(body)
