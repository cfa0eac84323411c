"""Receivers of notifications over HTTP, by the names that a setting gives their addresses."""

from collections.abc import Mapping

import httpx2

from understudy.adapters.http.judged_endpoint import JudgedEndpoint
from understudy.adapters.http.name_resolver import Resolve, addresses_of
from understudy.core.alerts.alerts import Delivery
from understudy.core.alerts.events import EventFormat, ModelEvent, event_body


class HttpReceivers:
    """Implements ``ports.Receivers``.

    Args:
        addresses: Of the receivers, by their names; treated as secrets, because many contain a token.
        environment: This installation's name, which receivers are told.
        timeout_seconds: Longest time of one send, resolving and connecting included.
        resolve: Returns the addresses of a name; called in a thread.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        environment: str,
        *,
        timeout_seconds: float,
        resolve: Resolve = addresses_of,
    ) -> None:
        self._environment = environment
        # One for all: it holds the system's certificates. It does read SSL_CERT_FILE.
        context = httpx2.create_ssl_context() if addresses else None
        self._receivers = {
            name: JudgedEndpoint(url, timeout_seconds, context, resolve) for name, url in addresses.items() if context
        }

    async def send(self, receiver: str, event_format: EventFormat, event: ModelEvent) -> Delivery:
        known = self._receivers.get(receiver)
        if known is None:
            return Delivery(None, f"UNDERSTUDY_RECEIVERS of the monitor that leads has no receiver {receiver}")
        try:
            body = event_body(event, event_format, self._environment)
        except Exception as problem:  # noqa: BLE001 - a row that a person wrote may hold anything; others must go on
            return Delivery(None, f"the event cannot be written: {type(problem).__name__}")
        headers = {"content-type": event_format.content_type, "idempotency-key": event.id}
        return await known.post(body, headers)

    async def close(self) -> None:
        """Close the connections."""
        for receiver in self._receivers.values():
            await receiver.close()
