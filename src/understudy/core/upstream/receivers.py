"""Addresses of receivers, gates, metric sources and judges as settings have them: a name for each, a secret."""

import re
from base64 import b64decode
from collections.abc import Mapping

from understudy.core.connection_urls import http_problem
from understudy.core.upstream.endpoint_rules import NO_RULES, Target, judge_address

MAX_RECEIVERS = 100
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_PLACE = re.compile(
    r"(?P<scheme>https?)://([^/?#]*@)?(\[(?P<v6>[^]/?#]*)\]|(?P<host>[^:/?#]*))(:(?P<port>[0-9]{0,5}))?([/?#].*)?",
    re.IGNORECASE,
)


_SETTINGS = {"metric source": "UNDERSTUDY_METRIC_SOURCES", "judge": "UNDERSTUDY_JUDGES"}
_KEY_PREFIX = "whsec_"
_KEY_BYTES = range(24, 65)
"""Source: Standard Webhooks 1.0, "Signature scheme": a secret has 24 to 64 bytes."""


def signing_key(text: str) -> bytes:
    """Read the secret that questions to gates are signed with, ``whsec_`` and its bytes in base64.

    Raises:
        ValueError: It is none; no part of it is repeated.
    """
    try:
        key = b64decode(text.removeprefix(_KEY_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not text.startswith(_KEY_PREFIX) or len(key) not in _KEY_BYTES:
        raise ValueError(
            f"expected {_KEY_PREFIX} and {_KEY_BYTES.start} to {_KEY_BYTES.stop - 1} bytes in base64: "
            "echo whsec_$(openssl rand -base64 32) makes one"
        )
    return key


def parse_receivers(text: str, *, noun: str = "receiver") -> Mapping[str, str]:
    """Read ``name=https://host/path``, one a line or separated by spaces; lines that begin with ``#`` are comments.

    Raises:
        ValueError: Naming the one that is wrong and why, and no part of an address.
    """
    found: dict[str, str] = {}
    lines = (line.strip() for line in text.splitlines())
    for number, entry in enumerate((part for line in lines if not line.startswith("#") for part in line.split()), 1):
        name, separator, url = entry.partition("=")
        if not separator or not _NAME.fullmatch(name):
            raise ValueError(f"entry {number} is not name=https://host/path, with a name such as ops-chat")
        if name in found:
            raise ValueError(f"the {noun} {name} is there twice")
        problem = http_problem(url) or _literal_problem(url)
        if problem is not None:
            raise ValueError(f"the {noun} {name}: {problem}")
        found[name] = url
    if len(found) > MAX_RECEIVERS:
        raise ValueError(f"there are {len(found)} {noun}s, and at most {MAX_RECEIVERS}")
    return found


def parse_sources(text: str) -> Mapping[str, str]:
    """Read ``name=https://host:9090``, the base addresses of Prometheus APIs, in the form of receivers.

    Raises:
        ValueError: Naming the one that is wrong and why, and no part of an address.
    """
    found = parse_receivers(text, noun="metric source")
    for name, url in found.items():
        if "?" in url or "#" in url:
            raise ValueError(f"the metric source {name}: expected the base of its API, without ? and #")
    return found


def parse_tokens(text: str, known: Mapping[str, str], noun: str) -> Mapping[str, str]:
    """Read ``name=token``, one a line or separated by spaces, for some of the ``known`` addresses.

    Raises:
        ValueError: Naming the one that is wrong and why, and no part of a token.
    """
    found: dict[str, str] = {}
    for number, entry in enumerate(text.split(), 1):
        name, separator, token = entry.partition("=")
        if not separator or not _TOKEN.fullmatch(token):
            raise ValueError(f"entry {number} is not name=token")
        if name not in known:
            raise ValueError(f"entry {number} is for a {noun} that {_SETTINGS[noun]} does not have")
        if name in found:
            raise ValueError(f"entry {number} is a second token for the {noun} {name}")
        if "@" in known[name].partition("://")[2].partition("/")[0]:
            raise ValueError(f"entry {number} is for the {noun} {name}, whose address has a user already")
        found[name] = token
    return found


def receiver_target(url: str) -> Target:
    """Return where a receiver's address leads.

    Raises:
        ValueError: It has no host, or is no address of HTTP.
    """
    found = _PLACE.fullmatch(url)
    host = "" if found is None else (found["v6"] or found["host"] or "").rstrip(".").lower()
    if found is None or not host:
        raise ValueError("expected https://host/path")
    return Target(host, int(found["port"] or (443 if found["scheme"].lower() == "https" else 80)))


def _literal_problem(url: str) -> str | None:
    target = receiver_target(url)
    address = target.literal
    why = None if address is None else judge_address(target.host, address, NO_RULES)
    return None if why is None else f"its address {why}"
