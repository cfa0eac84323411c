"""Name resolution of an endpoint, and the judgement of its addresses: gRPC gets addresses and resolves no names.

If gRPC resolved the name itself, it might get another address than the one that was judged (DNS rebinding).
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Literal, NamedTuple, TypeAlias

from understudy.core.upstream.endpoint_rules import (
    NO_RULES,
    Address,
    EndpointRules,
    Target,
    judge_address,
    parse_target,
)
from understudy.errors import BackendUnavailable
from understudy.ports.upstream.resolver import Resolver

RESOLVE_SECONDS = 5.0
MAX_ADDRESSES = 16
"""Of one name that are tried; a name with more is a list of replicas, which ``backend.discover`` makes of it."""


Metadata: TypeAlias = tuple[tuple[str, str], ...]
GrpcClient: TypeAlias = Literal["asyncio", "grpcio"]
"""What makes the calls over gRPC: our own client in the event loop's thread, or gRPC's library, which has threads."""
DEFAULT_GRPC_CLIENT: GrpcClient = "asyncio"


class Tls(NamedTuple):
    """TLS to a server whose certificate is for the endpoint's own host name."""

    authorities: bytes | None
    """Whose certificates are taken, in PEM; ``None``: the usual public ones'."""


class Discovery(NamedTuple):
    """How the addresses of names become replicas."""

    resolver: Resolver
    interval_seconds: float = 5.0
    """Between two questions for the addresses of a name."""
    on_failure: Callable[[], None] = lambda: None
    """Called each time that a name is not resolved, or its answer is refused."""


class Wire(NamedTuple):
    """How the replicas of a version are reached."""

    rules: EndpointRules = NO_RULES
    tls: Tls | None = None
    """``None``: plain text."""
    metadata: Metadata = ()
    """Sent with every call, such as a token."""
    grpc_client: GrpcClient = DEFAULT_GRPC_CLIENT
    """What calls it, where it speaks gRPC."""
    discovery: Discovery | None = None
    """Makes a replica of each address that an endpoint's name has; ``None``: each endpoint is one replica."""


PLAIN_WIRE = Wire()


async def find_addresses(endpoint: str, rules: EndpointRules) -> tuple[Target, Sequence[Address]]:
    """Return where an endpoint is: every address of it that may be connected to.

    Raises:
        BackendUnavailable: It cannot be read or resolved, or one of its addresses is forbidden (then none of the
            others is used either: the owner of the name is not to be trusted).
    """
    try:
        target = parse_target(endpoint)
    except ValueError as problem:
        raise BackendUnavailable(f"the endpoint {endpoint[:60]!r} cannot be used: {problem}") from None
    addresses = [target.literal] if target.literal is not None else await _resolve(target)
    require_permitted(endpoint, target, addresses, rules)
    return target, addresses


def require_permitted(endpoint: str, target: Target, addresses: Sequence[Address], rules: EndpointRules) -> None:
    """Refuse an endpoint of which one address may not be connected to.

    Raises:
        BackendUnavailable: There is one; the message names it.
    """
    for address in addresses:
        why = judge_address(target.host, address, rules)
        if why is not None:
            raise BackendUnavailable(f"the endpoint {endpoint} is refused: {address} {why}")


async def _resolve(target: Target) -> list[Address]:
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError):
        raise BackendUnavailable(f"the name of the endpoint {target.host}:{target.port} cannot be resolved") from None
    # An IPv6 address may come with its zone, which only link-local ones need; those are refused without it too.
    return [ip_address(text) for text in dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found)][
        :MAX_ADDRESSES
    ]
