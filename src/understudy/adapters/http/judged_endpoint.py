"""An address of an operator's over HTTP: it is judged as its name resolves, and what was judged is connected to.

If the client resolved the name itself, it might get another address than the one that was judged (DNS rebinding). So no
proxy of the environment is used either, which would resolve it anew; and no redirect is followed.
"""

import asyncio
import logging
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress

import httpx2

from understudy.adapters.http.answers import delivery_of, secret_parts, without_secrets
from understudy.adapters.http.name_resolver import NameResolver, Resolve
from understudy.core.alerts.alerts import Delivery
from understudy.core.upstream.endpoint_rules import NO_RULES, Address, Target, judge_address
from understudy.core.upstream.receivers import receiver_target

CONNECT_SECONDS = 2.0
"""Longest wait for one of several addresses: one that drops packets must leave time for the next one."""
_LIMITS = httpx2.Limits(max_connections=20, max_keepalive_connections=4)


class AddressRefused(Exception):
    """A name leads where nothing of ours may connect to."""


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

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Delivery:
        """Send a body once; every problem is an answer without a status."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                target = receiver_target(self._url)
                addresses = await self._judged_addresses(target)
                return await self._post_to_one(addresses, body, headers)
        except TimeoutError:
            return Delivery(None, f"no answer within {self._timeout_seconds:g} s")
        except Exception as problem:  # noqa: BLE001 - an address may raise anything in the library; nothing was sent
            return Delivery(None, without_secrets(f"{type(problem).__name__}: {problem}", self._secrets))

    async def _post_to_one(self, addresses: Sequence[Address], body: bytes, headers: Mapping[str, str]) -> Delivery:
        """Send to the first address that can be connected to."""
        connect_seconds = min(CONNECT_SECONDS, self._timeout_seconds / len(addresses))
        for address in addresses[:-1]:
            try:
                return await self._post(address, body, headers, connect_seconds)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await self._post(addresses[-1], body, headers, self._timeout_seconds)

    async def _post(
        self, address: Address, body: bytes, headers: Mapping[str, str], connect_seconds: float
    ) -> Delivery:
        url = httpx2.URL(self._url)
        host = url.netloc.decode()  # without user and password
        async with self._client.stream(
            "POST",
            url.copy_with(host=str(address)),
            content=body,
            headers={**headers, "host": host},
            timeout=httpx2.Timeout(self._timeout_seconds, connect=connect_seconds),
            # No certificate has the dot that ends a full name.
            extensions={"sni_hostname": url.raw_host.decode().rstrip(".")},
        ) as response:
            return await delivery_of(response, self._secrets)

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
