"""Identity: whom a proxy in front of the console names, and what that one may do by the groups that the proxy names.

Headers count only from an address of the proxy and with the secret that it shares with the console; else they are
ignored, as if they were not there.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_address
from typing import NamedTuple

from starlette.datastructures import Headers

from understudy.core.routing.proxy_identity import EVERYONE, Network, parse_networks, parse_roles
from understudy.settings import Settings

SECRET_HEADER = "x-understudy-proxy-secret"  # noqa: S105 - a header's name
ACTOR = "proxy:"
"""What stands before a name in the audit: no key has it."""
MAX_NAME, MAX_GROUPS = 200, 200


class Named(NamedTuple):
    """One whom the proxy names."""

    name: str
    scopes: frozenset[str]


class Identity(NamedTuple):
    """How a proxy says who comes."""

    header: str
    groups_header: str | None
    secret_sha256: bytes
    networks: Sequence[Network]
    scopes_of_groups: Mapping[str, frozenset[str]]

    def of(self, address: str, headers: Headers) -> Named | None:
        """Return whom a request is of; ``None`` where no proxy of ours says so."""
        names = headers.getlist(self.header)
        groups = [] if self.groups_header is None else headers.getlist(self.groups_header)
        if not self._is_proxy(address, headers) or len(names) != 1 or len(groups) > 1:
            return None  # two are none: it is not known which of them the proxy wrote
        name = _text(names[0]).strip()
        if not 0 < len(name) <= MAX_NAME or not name.isprintable():
            return None
        named = {EVERYONE, *(one.strip() for line in groups for one in _text(line).split(",")[:MAX_GROUPS])}
        scopes = [scopes for group, scopes in self.scopes_of_groups.items() if group in named]
        return Named(f"{ACTOR}{name}", frozenset().union(*scopes))

    def _is_proxy(self, address: str, headers: Headers) -> bool:
        sent = headers.getlist(SECRET_HEADER)
        shown = sha256(_text(sent[0]).encode()).digest() if len(sent) == 1 else b""
        try:
            found = ip_address(address)
        except ValueError:
            return False
        found = getattr(found, "ipv4_mapped", None) or found
        is_there = any(found in network for network in self.networks)
        return compare_digest(shown, self.secret_sha256) and is_there


def _text(value: str) -> str:
    """Return a header's value as a proxy wrote it, in UTF-8; the server reads each byte as a character."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def identity_of(settings: Settings) -> Identity | None:
    """Return how a proxy says who comes; ``None`` where the settings name none."""
    secret = settings.console_proxy_secret
    if settings.console_identity_header is None or secret is None:
        return None
    return Identity(
        settings.console_identity_header,
        settings.console_groups_header,
        sha256(secret.get_secret_value().encode()).digest(),
        parse_networks(settings.console_trusted_proxies or ""),
        parse_roles(settings.console_roles or ""),
    )
