"""An address of an operator's over HTTP: it is judged as its name resolves, and what was judged is connected to.

If the client resolved the name itself, it might get another address than the one that was judged (DNS rebinding). So no
proxy of the environment is used either, which would resolve it anew; and no redirect is followed.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import NamedTuple, TypeVar

import httpx2

from understudy.adapters.http.answers import delivery_of, secret_parts, without_secrets
from understudy.adapters.http.name_resolver import NameResolver, Resolve
from understudy.core.alerts.alerts import Delivery
from understudy.core.upstream.endpoint_rules import NO_RULES, Address, Target, judge_address
from understudy.core.upstream.receivers import receiver_target

Answer = TypeVar("Answer")
CONNECT_SECONDS = 2.0
"""Longest wait for one of several addresses: one that drops packets must leave time for the next one."""
_LIMITS = httpx2.Limits(max_connections=20, max_keepalive_connections=4)


class AddressRefused(Exception):
    """A name leads where nothing of ours may connect to."""


class FetchProblem(Enum):
    """Why there is no answer."""

    LATE = auto()
    HUGE = auto()
    """More bytes than were to be read."""
    UNREACHED = auto()


class Fetched(NamedTuple):
    """An answer with its body, or why there is none."""

    status: int = 0
    body: bytes = b""
    problem: FetchProblem | None = None
    detail: str = ""
    """Of the problem, without secrets."""


class _Sent(NamedTuple):
    """What is sent."""

    body: bytes
    headers: Mapping[str, str]


class _TooLargeError(Exception):
    """A body is longer than what is read of it."""


class JudgedEndpoint:
    """One address, with connections of its own, so that one that hangs takes none of another's."""

    def __init__(self, url: str, timeout_seconds: float, context: ssl.SSLContext, resolve: Resolve) -> None:
        # At INFO the client's library logs each address, and a receiver's address is its password.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        self._url = url
        self._secrets = _secrets_of(url)
        self._timeout_seconds = timeout_seconds
        self._resolver = NameResolver(resolve)
        self._client = httpx2.AsyncClient(
            timeout=timeout_seconds,
            headers={"user-agent": "understudy", "accept-encoding": "identity"},  # its words are read as they come
            trust_env=False,
            verify=context,
            limits=_LIMITS,
        )

    @property
    def secrets(self) -> Sequence[str]:
        """The parts of its address to redact, the longest first."""
        return self._secrets

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Delivery:
        """Send a body once; every problem is an answer without a status."""

        async def read(response: httpx2.Response) -> Delivery:
            return await delivery_of(response, self._secrets)

        try:
            return await self._exchange(_Sent(body, headers), read)
        except TimeoutError:
            return Delivery(None, f"no answer within {self._timeout_seconds:g} s")
        except Exception as problem:  # noqa: BLE001 - an address may raise anything in the library; nothing was sent
            return Delivery(None, without_secrets(f"{type(problem).__name__}: {problem}", self._secrets))

    async def fetch(self, body: bytes, headers: Mapping[str, str], most_bytes: int) -> Fetched:
        """Send a body once and return the answer with its body; every problem is an answer without a status."""

        async def read(response: httpx2.Response) -> Fetched:
            found = bytearray()
            async for part in response.aiter_raw():
                found += part
                if len(found) > most_bytes:
                    raise _TooLargeError(f"more than {most_bytes:,} bytes")
            return Fetched(response.status_code, bytes(found))

        try:
            return await self._exchange(_Sent(body, headers), read)
        except (TimeoutError, httpx2.TimeoutException):
            return Fetched(problem=FetchProblem.LATE, detail=f"no answer within {self._timeout_seconds:g} s")
        except _TooLargeError as problem:
            return Fetched(problem=FetchProblem.HUGE, detail=str(problem))
        except Exception as problem:  # noqa: BLE001 - an address may raise anything in the library
            said = without_secrets(f"{type(problem).__name__}: {problem}", self._secrets)
            return Fetched(problem=FetchProblem.UNREACHED, detail=said)

    async def _exchange(self, sent: _Sent, read: Callable[[httpx2.Response], Awaitable[Answer]]) -> Answer:
        """Send to the first address that can be connected to, and return what ``read`` makes of the answer."""
        async with asyncio.timeout(self._timeout_seconds):
            addresses = await self._judged_addresses(receiver_target(self._url))
            connect_seconds = min(CONNECT_SECONDS, self._timeout_seconds / len(addresses))
            for address in addresses[:-1]:
                try:
                    return await self._post(address, sent, connect_seconds, read)
                except (httpx2.ConnectError, httpx2.ConnectTimeout):
                    continue
            return await self._post(addresses[-1], sent, self._timeout_seconds, read)

    async def _post(
        self,
        address: Address,
        sent: _Sent,
        connect_seconds: float,
        read: Callable[[httpx2.Response], Awaitable[Answer]],
    ) -> Answer:
        url = httpx2.URL(self._url)
        host = url.netloc.decode()  # without user and password
        async with self._client.stream(
            "POST",
            url.copy_with(host=str(address)),
            content=sent.body,
            headers={**sent.headers, "host": host},
            timeout=httpx2.Timeout(self._timeout_seconds, connect=connect_seconds),
            # No certificate has the dot that ends a full name.
            extensions={"sni_hostname": url.raw_host.decode().rstrip(".")},
        ) as response:
            return await read(response)

    async def _judged_addresses(self, target: Target) -> Sequence[Address]:
        """Return the addresses of the receiver's host, each of which may be connected to.

        Raises:
            AddressRefused: One of them may not; then none of the others is used either.
            NameNotResolved: The name has no address, or no name server answers.
        """
        addresses = [target.literal] if target.literal is not None else await self._resolver.addresses(target)
        for address in addresses:
            why = judge_address(target.host, address, NO_RULES)
            if why is not None:
                raise AddressRefused(f"{address} {why}")
        return addresses


def _secrets_of(url: str) -> tuple[str, ...]:
    """Return the parts of an address to redact: also its host, which errors of certificates have in them."""
    host = ""
    with suppress(ValueError):
        target = receiver_target(url)
        host = target.host if target.literal is None else ""
    return (*secret_parts(url), *filter(None, [host]))
