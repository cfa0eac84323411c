"""Twin of the system's resolver: a test says which addresses a name has."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from understudy.core.upstream.endpoint_rules import Address, Target
from understudy.ports.upstream.resolver import NameNotResolved


class MemoryResolver:
    """Answers from a dictionary, which a test changes as pods come and go."""

    def __init__(self, names: Mapping[str, Sequence[str]]) -> None:
        self.names = {name: list(addresses) for name, addresses in names.items()}
        self.questions = 0

    async def addresses(self, target: Target) -> Sequence[Address]:
        """See the port."""
        self.questions += 1
        found = self.names.get(target.host)
        if found is None:
            raise NameNotResolved("Name or service not known")
        if not found:
            raise NameNotResolved("it has no address")
        return [ip_address(text) for text in dict.fromkeys(found)]
