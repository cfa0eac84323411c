"""Alert channels over HTTP: PagerDuty's Events API v2, and any receiver of JSON."""

import asyncio
import logging

import httpx2

from understudy.adapters.http.answers import delivery_of, secret_parts, without_secrets
from understudy.core.alerts.alerts import AlertEvent, Delivery
from understudy.core.alerts.payloads import pagerduty_request, webhook_body

PAGERDUTY_URL = "https://events.pagerduty.com"
SEND_SECONDS = 10.0
_HEADERS = {"content-type": "application/json", "user-agent": "understudy"}


class _HttpChannel:
    """Posts JSON with one deadline, and redacts its secrets from every result."""

    def __init__(self, secret: str, timeout_seconds: float) -> None:
        # At INFO the client's library logs each address, and a webhook's address is its password.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        self._secrets = secret_parts(secret)
        self._timeout_seconds = timeout_seconds
        self._client = httpx2.AsyncClient(timeout=timeout_seconds, headers=_HEADERS)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _post(self, url: str, body: bytes) -> Delivery:
        try:
            async with (
                asyncio.timeout(self._timeout_seconds),
                self._client.stream("POST", url, content=body) as response,
            ):
                return await delivery_of(response, self._secrets)
        except TimeoutError:
            return Delivery(None, f"no answer within {self._timeout_seconds:g} s")
        except Exception as problem:  # noqa: BLE001 - an address may raise anything in the library; nothing was sent
            return Delivery(None, without_secrets(f"{type(problem).__name__}: {problem}", self._secrets))


class PagerDutyChannel(_HttpChannel):
    """PagerDuty.

    Args:
        routing_key: Of an Events API v2 integration.
        base_url: Where the API is; another one for its European region or for tests.
        timeout_seconds: Longest time of one send.
    """

    name = "pagerduty"

    def __init__(
        self, routing_key: str, *, base_url: str = PAGERDUTY_URL, timeout_seconds: float = SEND_SECONDS
    ) -> None:
        super().__init__(routing_key, timeout_seconds)
        self._routing_key = routing_key
        self._base_url = base_url.rstrip("/")

    async def send(self, event: AlertEvent) -> Delivery:
        path, body = pagerduty_request(event, self._routing_key)
        return await self._post(f"{self._base_url}{path}", body)


class WebhookChannel(_HttpChannel):
    """Any receiver that takes a POST of JSON and answers 2xx.

    Args:
        url: Of the receiver; treated as a secret, because many contain a token.
        timeout_seconds: Longest time of one send.
    """

    name = "webhook"

    def __init__(self, url: str, *, timeout_seconds: float = SEND_SECONDS) -> None:
        super().__init__(url, timeout_seconds)
        self._url = url

    async def send(self, event: AlertEvent) -> Delivery:
        return await self._post(self._url, webhook_body(event))
