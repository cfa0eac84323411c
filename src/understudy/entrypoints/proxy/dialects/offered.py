"""What other protocols' paths and services need of the open proxy."""

from typing import Any, Protocol

from understudy.core.routing.policy import PolicySnapshot
from understudy.entrypoints.proxy.dialects.handler import DialectHandler
from understudy.serving.upstream.version_readiness import VersionReadiness


class Offered(Protocol):
    """The open proxy."""

    @property
    def dialects(self) -> DialectHandler:
        """Answers the calls."""

    @property
    def readiness(self) -> VersionReadiness:
        """Knows which versions' model servers answer."""

    async def health(self, *, is_leaving: bool) -> tuple[bool, dict[str, Any]]:
        """Return whether the proxy can answer calls, and why."""

    def snapshot(self) -> PolicySnapshot | None:
        """Return the policies of this moment."""
