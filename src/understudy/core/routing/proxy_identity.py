"""What settings say of a proxy that names people: its addresses, and the scopes of each group that it names."""

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network

from understudy.core.routing.access import is_scope

Network = IPv4Network | IPv6Network
EVERYONE = "everyone"
"""The group of all whom the proxy names."""


def parse_networks(text: str) -> tuple[Network, ...]:
    """Return the networks of a setting, by commas.

    Raises:
        ValueError: One is none.
    """
    return tuple(ip_network(one.strip()) for one in text.split(",") if one.strip())


def parse_roles(text: str) -> Mapping[str, frozenset[str]]:
    """Return the scopes of each group: ``ml-oncall=operate,everyone=read,churn-team=operate:churn``.

    Raises:
        ValueError: An entry is not ``GROUP=SCOPE``, or there is no such scope.
    """
    found: dict[str, frozenset[str]] = {}
    for entry in filter(None, (one.strip() for one in text.split(","))):
        group, separator, scope = (part.strip() for part in entry.partition("="))
        if not group or not separator or not is_scope(scope):
            raise ValueError(f"{entry!r} is not GROUP=SCOPE, such as ml-oncall=operate or churn-team=operate:churn")
        found[group] = found.get(group, frozenset()) | {scope}
    return found
