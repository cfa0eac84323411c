"""Where names of model servers are: the addresses that a name has now."""

from collections.abc import Sequence
from typing import Protocol

from understudy.core.upstream.endpoint_rules import Address, Target


class NameNotResolved(Exception):
    """No name server has an answer, or none in time; the message says which."""


class Resolver(Protocol):
    """Asks for the addresses of names. An answer says nothing of whether they may be connected to."""

    async def addresses(self, target: Target) -> Sequence[Address]:
        """Return all addresses of a name, IPv4 and IPv6, each once and in no order; never none.

        Raises:
            NameNotResolved: There is no answer, it has no address, or it did not come in time.
        """
