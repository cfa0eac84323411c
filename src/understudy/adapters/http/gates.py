"""Gates over HTTP: the same question at each attempt, signed, with an idempotency key, to addresses that settings name.

Source:
    Standard Webhooks 1.0, "Webhook metadata" and "Signature scheme": headers ``webhook-id``, ``webhook-timestamp`` and
    ``webhook-signature``, which is HMAC-SHA256 of the three parts joined by points, in base64 behind ``v1,``.
"""

import hmac
import time
from base64 import b64encode
from collections.abc import Callable, Mapping

from understudy.adapters.http.name_resolver import Resolve, addresses_of
from understudy.adapters.http.named_endpoints import NamedEndpoints
from understudy.core.alerts.alerts import Delivery
from understudy.core.upstream.receivers import signing_key


def signature(secret: bytes, key: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``."""
    signed = b".".join((key.encode(), str(timestamp).encode(), body))
    return f"v1,{b64encode(hmac.digest(secret, signed, 'sha256')).decode()}"


class HttpGates:
    """Implements ``ports.Gates``.

    Args:
        addresses: Of the gates, by their names; treated as secrets, because many contain a token.
        secret: What questions are signed with, as the setting has it; empty only where there is no gate.
        timeout_seconds: Longest time of one attempt, resolving and connecting included.
        resolve: Returns the addresses of a name; called in a thread.
        now: The wall clock, in seconds since the epoch.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        secret: str,
        *,
        timeout_seconds: float,
        resolve: Resolve = addresses_of,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._secret = signing_key(secret) if addresses else b""
        self._now = now
        self._gates = NamedEndpoints(addresses, timeout_seconds=timeout_seconds, resolve=resolve)

    @property
    def names(self) -> frozenset[str]:
        """The gates that this process knows."""
        return self._gates.names

    async def ask(self, name: str, key: str, body: bytes) -> Delivery:
        """Ask once, within the deadline; every problem is an answer without a status."""
        gate = self._gates.get(name)
        if gate is None:
            return Delivery(None, f"UNDERSTUDY_GATES of the monitor that leads has no gate {name}")
        timestamp = int(self._now())
        return await gate.post(
            body,
            {
                "content-type": "application/json",
                "idempotency-key": key,
                "webhook-id": key,
                "webhook-timestamp": str(timestamp),
                "webhook-signature": signature(self._secret, key, timestamp, body),
            },
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._gates.close()
