"""What an HTTP receiver answered: its outcome, when it wants to be asked again, and its words without our secrets."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import httpx2

from understudy.core.alerts.alerts import Delivery, Outcome

_DETAIL_BYTES = 500
_DRAIN_BYTES = 1_024
_BODY_SECONDS = 0.5
"""How long the beginning of a body may take: its status has said what the answer is."""
_MIN_SECRET = 6
"""Characters: a shorter part of an address is no token, and redacting it would make errors unreadable."""


async def delivery_of(response: httpx2.Response, secrets: Sequence[str]) -> Delivery:
    """Return a receiver's answer, of whose body no more is read than is kept.

    Of a 2xx a little is read and dropped: only a body that was read to its end leaves a connection to be used again.
    The status counts, whatever becomes of the body.
    """
    delivery = Delivery(response.status_code, retry_after_seconds=_retry_after_seconds(response))
    if delivery.outcome is Outcome.DELIVERED:
        await _beginning(response, _DRAIN_BYTES)
        return delivery
    said = await _beginning(response, _DETAIL_BYTES + max(map(len, secrets), default=0))
    return delivery._replace(detail=without_secrets(said, secrets)[:_DETAIL_BYTES])


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """Return a text with three stars in the place of each secret; the longest ones are to be first."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def secret_parts(secret: str) -> tuple[str, ...]:
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
    """Return the beginning of the receiver's answer, however long that is, or as much of it as comes in time."""
    found = b""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in response.aiter_raw():
                found += part
                if len(found) > most_bytes:
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
