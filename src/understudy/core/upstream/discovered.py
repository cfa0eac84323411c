"""Which addresses of a name are replicas, when each of them is one (endpoint discovery)."""

from collections.abc import Collection

from understudy.core.upstream.endpoint_rules import Address

MAX_DISCOVERED = 256
"""Replicas that one name may be. Each has a connection of its own in each process."""


def discovered(known: Collection[Address], found: Collection[Address]) -> list[Address]:
    """Return the addresses that are replicas after an answer, :data:`MAX_DISCOVERED` of them at most.

    Those that are replicas and still in the answer come first, in their order: where an answer has too many, they are
    kept. New ones follow by number, since name servers rotate the order with every answer.
    """
    answer = set(found)
    kept = [address for address in known if address in answer]
    new = sorted(answer.difference(kept), key=lambda address: (address.version, int(address)))
    return [*kept, *new][:MAX_DISCOVERED]
