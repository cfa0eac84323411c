"""Addresses of an operator's by their names, as a setting has them, with the tokens that some of them want."""

from collections.abc import Mapping

import httpx2

from understudy.adapters.http.answers import without_secrets
from understudy.adapters.http.judged_endpoint import Fetched, JudgedEndpoint
from understudy.adapters.http.name_resolver import Resolve, addresses_of

_DETAIL_CHARACTERS = 300


class NamedEndpoints:
    """One judged endpoint for each name.

    Args:
        addresses: By name; treated as secrets, because many contain a token or a password.
        tokens: Sent as ``authorization: Bearer`` to the addresses of these names.
        timeout_seconds: Longest time of one question, resolving and connecting included.
        resolve: Returns the addresses of a name; called in a thread.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        tokens: Mapping[str, str] | None = None,
        *,
        timeout_seconds: float,
        resolve: Resolve = addresses_of,
    ) -> None:
        self._tokens = tokens or {}
        context = httpx2.create_ssl_context() if addresses else None
        self._endpoints = {
            name: JudgedEndpoint(url, timeout_seconds, context, resolve) for name, url in addresses.items() if context
        }

    @property
    def names(self) -> frozenset[str]:
        """The names that this process knows."""
        return frozenset(self._endpoints)

    def get(self, name: str) -> JudgedEndpoint | None:
        """Return the endpoint of a name; ``None``: there is none."""
        return self._endpoints.get(name)

    async def fetch(self, name: str, body: bytes, headers: Mapping[str, str], most_bytes: int) -> Fetched | None:
        """Ask once, with the token of the name; every problem is an answer. ``None``: there is no such name."""
        endpoint, token = self._endpoints.get(name), self._tokens.get(name)
        if endpoint is None:
            return None
        login = {} if token is None else {"authorization": f"Bearer {token}"}
        return await endpoint.fetch(body, {"accept": "application/json", **headers, **login}, most_bytes)

    def detail(self, name: str, text: str) -> str:
        """Return what may be told of an answer: without the secrets of the name, and not all of a long one."""
        endpoint, token = self._endpoints[name], self._tokens.get(name)
        secrets = sorted((*endpoint.secrets, *filter(None, [token])), key=len, reverse=True)
        return without_secrets(text, secrets)[:_DETAIL_CHARACTERS]

    async def close(self) -> None:
        """Close the connections."""
        for endpoint in self._endpoints.values():
            await endpoint.close()
