"""An OIDC issuer on loopback: it publishes its keys over HTTP, and signs tokens with them."""

import asyncio
import hmac
import json
import time
import warnings
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from ssl import SSLContext
from typing import Any

from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry, serialize_compact

AUDIENCE = "https://predict.internal"
Key = RSAKey | ECKey | OKPKey
_ALGORITHMS = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}


def ec_key() -> ECKey:
    return ECKey.generate_key("P-256")


def algorithm_of(key: Key) -> str:
    return _ALGORITHMS[key.key_type]


def published(keys: Mapping[str, Key], **fields: Any) -> dict[str, Any]:
    """The JWK set of keys by their ``kid``."""
    return {"keys": [{**key.as_dict(private=False), "kid": kid, "use": "sig", **fields} for kid, key in keys.items()]}


def signed(key: Key, claims: Any, **header: Any) -> str:
    """A token whose header has the key's algorithm, and what is given; ``None`` leaves a field out."""
    named = {"alg": algorithm_of(key), "typ": "JWT", **header}
    fields = {name: value for name, value in named.items() if value is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)
        registry = JWSRegistry(algorithms=[algorithm_of(key)], strict_check_header=False)
        return serialize_compact(fields, json.dumps(claims), key, registry=registry)


def unsigned(claims: Any, **header: Any) -> str:
    """A token of the algorithm ``none``, which carries no signature."""
    return ".".join([*(_part(one) for one in ({"alg": "none", **header}, claims)), ""])


def by_shared_secret(secret: bytes, claims: Any, **header: Any) -> str:
    """A token of the algorithm HS256, by what is no secret: the library itself refuses to make one."""
    signing = ".".join(_part(one) for one in ({"alg": "HS256", **header}, claims))
    return f"{signing}.{_text(hmac.digest(secret, signing.encode(), 'sha256'))}"


def with_header(token: str, **header: Any) -> str:
    """A token with another header than the one that was signed."""
    return ".".join([_part(header), *token.split(".")[1:]])


def _part(document: Any) -> str:
    return _text(json.dumps(document).encode())


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")


class Issuer:
    """Publishes keys at :attr:`url`; ``answer`` makes the bytes of the answer, or waits as long as it likes."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}
        self.url = ""
        self.asked = 0
        self.was_asked = asyncio.Event()
        self.answer: Callable[[], bytes] | None = None
        self.is_silent = False
        self.open: set[asyncio.StreamWriter] = set()

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[0]

    def claims(self, **other: Any) -> dict[str, Any]:
        """What a token for the proxy says; ``None`` leaves a claim out."""
        now = int(time.time())
        said = {"iss": self.name, "aud": AUDIENCE, "sub": "dana", "iat": now, "exp": now + 600, **other}
        return {name: value for name, value in said.items() if value is not None}

    def token(self, kid: str, **other: Any) -> str:
        """A good token, but for what is given."""
        return signed(self.keys[kid], self.claims(**other), kid=kid)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            self.was_asked.set()
            if self.is_silent:
                await reader.read()
            body = json.dumps(published(self.keys)).encode()
            writer.write(http_answer(body) if self.answer is None else self.answer())
            await writer.drain()
        writer.close()
        self.open.discard(writer)


def http_answer(body: bytes, status: str = "200 OK", *lines: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *lines, "", ""])
    return head.encode() + body


@asynccontextmanager
async def an_issuer(context: SSLContext | None = None) -> AsyncIterator[Issuer]:
    issuer = Issuer()
    server = await asyncio.start_server(issuer._serve, "127.0.0.1", 0, ssl=context)  # noqa: SLF001 - its own server
    scheme = "http" if context is None else "https"
    issuer.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
    try:
        yield issuer
    finally:
        server.close()
        for writer in tuple(issuer.open):
            writer.close()
