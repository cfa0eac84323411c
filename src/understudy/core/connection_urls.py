"""What is wrong with the URL of a Postgres, a Redis or an HTTP receiver, said without any part of the URL.

A generated password often has characters that mean something in URLs. Clients then take a part of it for the port, the
path or a parameter, and their errors repeat that part. So a URL is checked before a client reads it, and one that a
client might read in another way than its author meant is refused.
"""

import re
from ipaddress import IPv6Address
from typing import NamedTuple
from unicodedata import normalize
from urllib.parse import unquote

ENCODE = (
    "within user, password and parameters write % as %25, / as %2F, ? as %3F, # as %23, @ as %40, & as %26, "
    "[ as %5B and ] as %5D"
)
MAX_PORT = 65_535
_HAS_MEANING = f"a character of the user or the password has a meaning in URLs: {ENCODE}"
_PARTS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(\?(?P<query>[^#]*))?(?P<rest>#.*)?"
)
_PORT = re.compile(r"[0-9]{0,5}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]*")
_DELIMITERS = frozenset("/?#@:")
_BRACKETS = frozenset("[]")
_POSTGRES_PARAMETERS = frozenset((
    "application_name", "client_encoding", "connect_timeout", "database", "dbname", "gsslib", "host", "krbsrvname",
    "options", "passfile", "password", "port", "search_path", "service", "sslcert", "sslcrl", "sslkey", "sslmode",
    "sslnegotiation", "sslpassword", "sslrootcert", "ssl_max_protocol_version", "ssl_min_protocol_version",
    "statement_timeout", "target_session_attrs", "user",
))  # fmt: skip
_REDIS_NUMBERS = frozenset((
    "db", "health_check_interval", "max_connections", "protocol", "socket_connect_timeout", "socket_read_size",
    "socket_timeout", "ssl_min_version", "timeout",
))  # fmt: skip
_REDIS_PARAMETERS = _REDIS_NUMBERS | frozenset((
    "client_name", "encoding", "encoding_errors", "legacy_responses", "lib_name", "lib_version", "password",
    "retry_on_timeout", "socket_keepalive", "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_cert_reqs",
    "ssl_certfile", "ssl_check_hostname", "ssl_ciphers", "ssl_exclude_verify_flags", "ssl_include_verify_flags",
    "ssl_keyfile", "ssl_password", "username",
))  # fmt: skip
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_PLUS = "a + of the password is read as a space behind the ?: write it as %2B"
_SECRET_PARAMETERS = frozenset(("password", "sslpassword", "ssl_password"))


class _Url(NamedTuple):
    """A URL taken apart (RFC 3986, appendix B); nothing is decoded."""

    scheme: str
    account: str | None
    """User and password, up to the last @ of the authority; ``None``: there is no @."""
    place: str
    """Hosts and ports."""
    tail: str
    """All that follows the place."""
    query: str | None
    has_fragment: bool


def postgres_problem(url: str) -> str | None:
    """Return why a URL cannot be one of Postgres; ``None`` when a client reads it as its author meant.

    Several hosts, sockets, libpq's parameters and SQLAlchemy's ``postgresql+asyncpg://`` are understood.
    """
    parts = _apart(url)
    if parts is None or parts.scheme.partition("+")[0] not in ("postgresql", "postgres"):
        return "expected postgresql://user:password@host:port/name"
    # The client ends the account at the first @, other programs at the last one.
    if _is_misread(url, parts) or "@" in (parts.account or "") or "@" in parts.tail or parts.has_fragment:
        return _HAS_MEANING
    if parts.place and not all(map(_is_place, parts.place.split(","))):
        return _no_port("a host or a port")
    return _postgres_parameters_problem(parts.query)


def redis_problem(url: str) -> str | None:
    """Return why a URL cannot be one of Redis; ``None`` when the client reads it as its author meant."""
    parts = _apart(url)
    if parts is None or parts.scheme not in ("redis", "rediss", "unix"):
        return "expected redis://user:password@host:port/number, rediss://… with TLS, or unix:///path"
    if _is_misread(url, parts) or "@" in parts.tail or parts.has_fragment:
        return _HAS_MEANING
    if parts.place and not _is_place(parts.place):
        return _no_port("the host or the port")
    return _redis_parameters_problem(parts.query)


def http_problem(url: str) -> str | None:
    """Return why a URL cannot be one of an HTTP receiver; ``None`` when it can.

    Paths with an @, as some receivers have, are understood unless the part before the path could be the beginning of a
    user and a password.
    """
    parts = _apart(url)
    if parts is None or parts.scheme.lower() not in ("http", "https"):
        return "expected https://host/path"
    has_account = parts.account is not None or ":" in parts.place
    if _is_misread(url, parts) or ("@" in parts.tail and has_account):
        return f"{_HAS_MEANING}; the same for an @ of the path"
    return None if parts.place and _is_place(parts.place) else _no_port("the host or the port")


def without_password(url: str) -> str:
    """Return the URL of a Postgres or a Redis as a screen, an error or a process's arguments may have it.

    What goes is the password, before the @ or among the parameters, and the passphrase of a TLS key. The rest stays as
    it is written. Of a URL in which clients may find the password in different places only the scheme is left.
    """
    parts = _apart(url)
    if parts is None:
        return "…"
    if _fields(parts.query) is None or _is_misread(url, parts) or "@" in parts.tail or parts.has_fragment:
        return f"{parts.scheme}://…"
    user = (parts.account or "").partition(":")[0]
    path = parts.tail.partition("?")[0]
    fields = (parts.query or "").split("&")
    query = "&".join(field for field in fields if field.partition("=")[0] not in _SECRET_PARAMETERS)
    return f"{parts.scheme}://{user and f'{user}@'}{parts.place}{path}{query and f'?{query}'}"


def postgres_user(url: str) -> str | None:
    """Return the login that a Postgres URL names; ``None``: it names none, and the client finds one elsewhere."""
    parts = _apart(url)
    if parts is None:
        return None
    named = (parts.account or "").partition(":")[0] or (_fields(parts.query) or {}).get("user", "")
    return unquote(named) or None


def _apart(url: str) -> _Url | None:
    found = _PARTS.fullmatch(url)
    if found is None:
        return None
    account, separator, place = found["authority"].rpartition("@")
    return _Url(
        found["scheme"],
        account if separator else None,
        place,
        url[found.end("authority") :],
        found["query"],
        has_fragment=found["rest"] is not None,
    )


def _is_misread(url: str, parts: _Url) -> bool:
    """Whether Python's own reader drops a character, or refuses the account with an error that repeats it."""
    account = parts.account or ""
    # Signs such as ℀ (a/c) become delimiters when the reader normalises them.
    plain = f"{account}{parts.place}".replace("@", "").replace(":", "")
    is_changed = not _DELIMITERS.isdisjoint(normalize("NFKC", plain))
    return is_changed or not url.isprintable() or not _BRACKETS.isdisjoint(account)


def _is_place(text: str) -> bool:
    """Whether this is ``host``, ``host:port`` or ``[IPv6 address]:port``."""
    if not text.startswith("["):
        host, _, port = text.partition(":")
        return bool(host) and _BRACKETS.isdisjoint(host) and _is_port(port)
    host, _, rest = text[1:].partition("]")
    return _is_ipv6(host) and rest[:1] in ("", ":") and _is_port(rest[1:])


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_port(text: str) -> bool:
    return bool(_PORT.fullmatch(text)) and int(text or 1) in range(1, MAX_PORT + 1)


def _no_port(what: str) -> str:
    return f"{what} cannot be read; a port is a number up to {MAX_PORT}. If that is a part of a password: {ENCODE}"


def _postgres_parameters_problem(query: str | None) -> str | None:
    fields = _fields(query)
    if fields is None:
        return f"what follows the ? is no list of name=value: {ENCODE}"
    # Other names go to Postgres as settings of the session; behind a password they may be the rest of it.
    if "password" in fields and not fields.keys() <= _POSTGRES_PARAMETERS:
        return f"a parameter beside the password is none that is known here: {ENCODE}"
    if "+" in fields.get("password", ""):
        return _PLUS
    if not all(_is_port(port) and port for port in fields.get("port", "1").split(",")):
        return f"the parameter port is no number up to {MAX_PORT}"
    if not all(host.startswith("/") or _is_place(host) for host in fields.get("host", "/").split(",")):
        return "the parameter host cannot be read"
    return None


def _redis_parameters_problem(query: str | None) -> str | None:
    fields = _fields(query)
    if fields is None or not fields.keys() <= _REDIS_PARAMETERS:
        return f"a parameter behind the ? is none of Redis' client: {ENCODE}"
    if "+" in fields.get("password", ""):
        return _PLUS
    if not all(_NUMBER.fullmatch(fields[name]) for name in _REDIS_NUMBERS & fields.keys()):
        return "a parameter behind the ? must be a number"
    return None


def _fields(query: str | None) -> dict[str, str] | None:
    """Return the parameters; ``None`` when they are no list of ``name=value``."""
    if not query:
        return {}
    pairs = [field.partition("=") for field in query.split("&")]
    if not all(separator and _NAME.fullmatch(name) for name, separator, _ in pairs):
        return None
    return {name: value for name, _, value in pairs}
