"""Which addresses a model server may have (against SSRF): judged as written, and again as a name resolves.

The database judges what is written when an endpoint is registered (migration 0008). The proxy judges the address that
it is about to connect to, because a name may resolve to another address every time (DNS rebinding).
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

MAX_PORT = 65_535
LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
FORBIDDEN: Mapping[str, Sequence[Network]] = {
    "is link-local": (ip_network("169.254.0.0/16"), ip_network("fe80::/10")),
    # Those that are not link-local: AWS by IPv6 (EKS Pod Identity, too), Alibaba, Azure's host, Oracle by both, Google
    # and Scaleway by IPv6.
    "is a cloud's metadata service": tuple(
        ip_network(text)
        for text in (
            "fd00:ec2::/32",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:c1::a9fe:a9fe",
            "fd20:ce::254",
            "fd00:42::42",
        )
    ),
    "is site-local, which was abolished (RFC 3879)": (ip_network("fec0::/10"),),
    "is a Teredo tunnel's, which ends at an IPv4 address of its owner's choice": (ip_network("2001::/32"),),
    "is the unspecified address": (ip_network("0.0.0.0/8"), ip_network("::/128")),
    "is no single machine": (ip_network("224.0.0.0/3"), ip_network("ff00::/8")),
}
"""Why, and which networks: forbidden even when an operator's list has them. The database refuses the same ones at
registration (migration 0017); a test compares both lists."""
_NAME = re.compile(r"[a-z0-9_*-]+(\.[a-z0-9_*-]+)*\.?")
_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
_LAST_BYTES = (12, 13, 14, 15)
_HIDING: Sequence[tuple[IPv6Network, Sequence[Sequence[int]]]] = (
    (IPv6Network("2002::/16"), ((2, 3, 4, 5),)),
    (IPv6Network("64:ff9b:1::/48"), ((6, 7, 9, 10), _LAST_BYTES)),
    (IPv6Network("::ffff:0:0:0/96"), (_LAST_BYTES,)),
)
"""IPv6 addresses that a router translates or unpacks to an IPv4 address, and at which bytes they have it: 6to4 (RFC
3056), local-use NAT64 with a prefix of 48 or 96 bits (RFC 8215, RFC 6052), and SIIT (RFC 2765)."""
_IPV4_BITS = 0xFFFF_FFFF
_LAST_SPECIAL = 0xFFFF


class EndpointRules(NamedTuple):
    """An operator's allow list. Empty: every address that is not always forbidden."""

    networks: tuple[Network, ...] = ()
    names: tuple[str, ...] = ()
    """Names in lower case; ``*`` stands for any characters."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no list."""
        return not self.networks and not self.names


NO_RULES = EndpointRules()


class Target(NamedTuple):
    """An endpoint taken apart."""

    host: str
    port: int

    @property
    def literal(self) -> Address | None:
        """The address, when the host is one and not a name."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


def parse_rules(text: str) -> EndpointRules:
    """Read an operator's allow list: networks (``10.0.0.0/8``), addresses and names (``*.models.internal``), by commas.

    Raises:
        ValueError: Naming the entry that is none of these.
    """
    networks, names = [], []
    for entry in filter(None, (part.strip().lower() for part in text.split(","))):
        try:
            networks.append(ip_network(entry))
        except ValueError:
            if not _NAME.fullmatch(entry):
                raise ValueError(f"{entry!r} is neither a network, nor an address, nor a name") from None
            names.append(entry.rstrip("."))
    return EndpointRules(tuple(networks), tuple(names))


def parse_target(endpoint: str) -> Target:
    """Take ``host:port`` apart.

    Raises:
        ValueError: It is not that.
    """
    host, separator, port = endpoint.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("expected host:port")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) <= MAX_PORT or set(host) & set("/@ %\\"):
        raise ValueError("expected host:port")
    return Target(host.rstrip(".").lower(), int(port))


def judge_address(host: str, address: Address, rules: EndpointRules) -> str | None:
    """Return why a model server called ``host`` may not be at ``address``; ``None`` when it may.

    A name may resolve to loopback only if it says so itself (``localhost``): otherwise its owner could reach services
    that listen on this machine only. An operator's list may permit it by network.
    """
    for hidden in hidden_addresses(address):
        why = judge_address(host, hidden, NO_RULES)
        if why is not None:
            return f"leads to {hidden}, which {why}"
    address = plain_address(address)
    forbidden = next((why for why, networks in FORBIDDEN.items() if _is_in(address, networks)), None)
    if forbidden is not None:
        return forbidden
    is_listed = _is_in(address, rules.networks)
    if address.is_loopback and not is_listed and not says_loopback(host):
        return "is loopback, though the name is not localhost"
    if rules.is_empty or is_listed or any(fnmatchcase(host, name) for name in rules.names):
        return None
    return "is not on the operator's list (UNDERSTUDY_ENDPOINT_ALLOW)"


def is_listed(target: Target, rules: EndpointRules) -> bool:
    """Whether a list names an endpoint's host as it is written: by a name, or as an address by a network."""
    literal = target.literal
    if literal is not None and _is_in(plain_address(literal), rules.networks):
        return True
    return any(fnmatchcase(target.host, name) for name in rules.names)


def plain_address(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for (mapped, compatible, NAT64), or the address itself."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64 or (address in _COMPATIBLE and int(address) > _LAST_SPECIAL):
            return IPv4Address(int(address) & _IPV4_BITS)
    return address


def hidden_addresses(address: Address) -> list[IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address may lead to, beside :func:`plain_address`; 0.0.0.0 is none."""
    if isinstance(address, IPv4Address):
        return []
    found = next((positions for network, positions in _HIDING if address in network), ())
    hidden = [IPv4Address(bytes([address.packed[place] for place in places])) for places in found]
    return [one for one in hidden if int(one) != 0]


def grpc_target(addresses: Sequence[Address], port: int) -> str:
    """Return an endpoint's addresses as gRPC's target, which asks no name server; IPv4 among IPv6 is mapped."""
    if all(isinstance(address, IPv4Address) for address in addresses):
        return "ipv4:" + ",".join(f"{address}:{port}" for address in addresses)
    mapped = (f"::ffff:{address}" if isinstance(address, IPv4Address) else str(address) for address in addresses)
    return "ipv6:" + ",".join(f"[{address}]:{port}" for address in mapped)


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def says_loopback(host: str) -> bool:
    """Whether an endpoint's host, as :func:`parse_target` returns it, is this machine by its own name or address."""
    if host in LOOPBACK_NAMES or host.endswith(".localhost"):
        return True
    try:
        return plain_address(ip_address(host)).is_loopback
    except ValueError:
        return False
