"""Alert channels over HTTP: PagerDuty's Events API v2, and any receiver of JSON."""

import asyncio
import logging
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import httpx2

from understudy.core.alerts.alerts import AlertEvent, Delivery, Outcome
from understudy.core.alerts.payloads import pagerduty_request, webhook_body

PAGERDUTY_URL = "https://events.pagerduty.com"
SEND_SECONDS = 10.0
_DETAIL_BYTES = 500
_MIN_SECRET = 6
"""Characters: a shorter part of an address is no token, and redacting it would make errors unreadable."""
_HEADERS = {"content-type": "application/json", "user-agent": "understudy"}


class _HttpChannel:
    """Posts JSON with one deadline, and redacts its secrets from every result."""

    def __init__(self, secret: str, timeout_seconds: float) -> None:
        # At INFO the client's library logs each address, and a webhook's address is its password.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        self._secrets = _secret_parts(secret)
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
                delivery = Delivery(response.status_code, retry_after_seconds=_retry_after_seconds(response))
                if delivery.outcome is Outcome.DELIVERED:
                    return delivery
                said = await _beginning(response, _DETAIL_BYTES + max(map(len, self._secrets), default=0))
                return delivery._replace(detail=self._without_secret(said)[:_DETAIL_BYTES])
        except TimeoutError:
            return Delivery(None, f"no answer within {self._timeout_seconds:g} s")
        except Exception as problem:  # noqa: BLE001 - an address may raise anything in the library; nothing was sent
            return Delivery(None, self._without_secret(f"{type(problem).__name__}: {problem}"))

    def _without_secret(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


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


def _secret_parts(secret: str) -> tuple[str, ...]:
    """Return all parts of a secret to redact, the longest first.

    Of an address that is every part that may be a token: a receiver or the library's errors may contain the path or a
    parameter without the rest, decoded or not.
    """
    pieces = {secret}
    with suppress(ValueError):
        parts = urlsplit(secret)
        if parts.netloc:
            pieces |= {f"{parts.path}?{parts.query}", parts.username or "", parts.password or "", parts.fragment}
            pieces |= {*parts.path.split("/"), *(value for _, value in parse_qsl(parts.query)), *parts.query.split("&")}
            pieces |= {part.partition("=")[2] for part in parts.query.split("&")}
    pieces |= {unquote(piece) for piece in pieces} | {quote(piece) for piece in pieces}
    long = {piece for piece in pieces if len(piece) >= _MIN_SECRET} | {secret} - {""}
    return tuple(sorted(long, key=len, reverse=True))


async def _beginning(response: httpx2.Response, most_bytes: int) -> str:
    """Return the beginning of the receiver's answer, however long that is."""
    found = b""
    async for part in response.aiter_raw():
        found += part
        if len(found) >= most_bytes:
            break
    return found[:most_bytes].decode(errors="replace")


def _retry_after_seconds(response: httpx2.Response) -> float | None:
    """Return the header as seconds from now, whether it holds seconds or a date; ``None`` when it holds neither.

    Source:
        RFC 9110 §10.2.3.
    """
    value = response.headers.get("retry-after", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None
