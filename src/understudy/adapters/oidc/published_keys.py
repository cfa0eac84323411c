"""The keys that an issuer publishes (a JWK set), fetched within a deadline and a size.

Source:
    RFC 7517 (JSON Web Key), §4 and §5; RFC 8725 (JSON Web Token Best Current Practices), §3.1 and §3.2.
"""

import asyncio
import json
import ssl
import warnings
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx2
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey

FETCH_SECONDS = 5.0
"""For the whole answer, connecting included."""
MAX_BYTES = 262_144
MAX_KEYS = 100
MIN_RSA_BITS = 2_048
"""Source: RFC 7518 §3.3."""
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
PublicKey = RSAKey | ECKey | OKPKey
PublishedKeys = Mapping[tuple[str | None, str], PublicKey]
"""Keys by their ``kid`` and the algorithm that each is for."""


class NotFetched(Exception):
    """The keys cannot be had; says why, without an address."""


def key_fetcher(url: str) -> Callable[[], Awaitable[PublishedKeys]]:
    """Return what fetches an issuer's keys.

    The system's authorities, or those of ``SSL_CERT_FILE``, are read here and once: that takes 50 ms, in which each
    fetch would keep the event loop from predictions.
    """
    return partial(fetch_keys, url, httpx2.create_ssl_context())


async def fetch_keys(url: str, authorities: ssl.SSLContext, *, timeout_seconds: float = FETCH_SECONDS) -> PublishedKeys:
    """Return what an issuer publishes of keys that tokens may be signed with.

    Raises:
        NotFetched: The issuer is down, slow or redirects, or the answer is too long or no JWK set.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            return keys_of(await _body(url, authorities))
    except TimeoutError:
        raise NotFetched(f"no whole answer within {timeout_seconds:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as problem:
        raise NotFetched(f"no answer: {_words(problem)}") from None


def _words(problem: Exception) -> str:
    """Return what failed; of a certificate also why, without the name that it is not for."""
    cause: BaseException | None = problem
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    kind = type(problem).__name__
    return kind if cause is None else f"{kind}, {cause.verify_message.partition(',')[0]}"


async def _body(url: str, authorities: ssl.SSLContext) -> bytes:
    trusts = urlsplit(url).hostname not in _LOOPBACK  # no HTTP proxy for a call to this machine
    body = bytearray()
    async with (
        httpx2.AsyncClient(
            timeout=FETCH_SECONDS, follow_redirects=False, trust_env=trusts, verify=authorities
        ) as client,
        client.stream("GET", url, headers={"accept": "application/jwk-set+json, application/json"}) as response,
    ):
        if response.status_code != httpx2.codes.OK:
            raise NotFetched(f"the answer has the status {response.status_code}")
        async for part in response.aiter_bytes():
            body += part
            if len(body) > MAX_BYTES:
                raise NotFetched(f"the answer has more than {MAX_BYTES} bytes")
    return bytes(body)


def keys_of(body: bytes) -> PublishedKeys:
    """Return the keys of a JWK set; those for other purposes and algorithms are passed over.

    Raises:
        NotFetched: It is none.
    """
    try:
        document = json.loads(body)
        listed = document["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NotFetched("the answer is no JWK set") from None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise NotFetched(f"the answer is no JWK set, or has more than {MAX_KEYS} keys")
    found: dict[tuple[str | None, str], PublicKey] = {}
    for one in listed:
        if isinstance(one, dict):
            kid, read = one.get("kid"), _read(one)
            if read is not None and (kid is None or isinstance(kid, str)):
                algorithm, key = read
                found.setdefault((kid, algorithm), key)
    return found


def _read(jwk: dict[str, Any]) -> tuple[str, PublicKey] | None:
    """Return a key with the only algorithm that it is for; ``None``: it is not for signatures that are accepted."""
    kind, curve = jwk.get("kty"), jwk.get("crv")
    public: dict[str, Any] = {name: jwk[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in jwk}
    try:
        if kind == "RSA":
            # The library warns of short keys, which are refused.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SecurityWarning)
                rsa = RSAKey.import_key(public)
                is_long = rsa.public_key.key_size >= MIN_RSA_BITS
            found: tuple[str, PublicKey] | None = ("RS256", rsa) if is_long else None
        elif (kind, curve) == ("EC", "P-256"):
            found = ("ES256", _usable(ECKey.import_key(public)))
        elif (kind, curve) == ("OKP", "Ed25519"):
            found = ("EdDSA", _usable(OKPKey.import_key(public)))
        else:
            return None
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    if found is None or jwk.get("use", "sig") != "sig" or jwk.get("alg", found[0]) not in _NAMES[found[0]]:
        return None
    return found


_NAMES = {"RS256": ("RS256",), "ES256": ("ES256",), "EdDSA": ("EdDSA", "Ed25519")}
"""What a key may name its algorithm; RFC 9864 has a name of its own for the curve."""


def _usable(key: ECKey | OKPKey) -> ECKey | OKPKey:
    """Return a key whose numbers make one: the library makes it when it is first used."""
    _ = key.public_key
    return key
