"""Addresses of OCI artifacts, ``oci://registry/repository:tag@sha256:…``, and the logins that registries want."""

import base64
import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_ADDRESS: Final = re.compile(
    r"oci://(?P<registry>[A-Za-z0-9.-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?)"
    r"/(?P<repository>[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*)"
    r"(:(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?"
    r"(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_LOOPBACK: Final = re.compile(r"(127(\.[0-9]{1,3}){3}|localhost|\[::1\])(:[0-9]{1,5})?")
MAX_ADDRESS: Final = 1_000


class OciAddress(NamedTuple):
    """A manifest in a registry."""

    registry: str
    """``host`` or ``host:port``."""
    repository: str
    tag: str | None
    digest: str | None
    """Of the manifest; with it the tag is a name for people alone."""

    def pinned(self, digest: str) -> str:
        """Return the address with a digest."""
        tag = f":{self.tag}" if self.tag else ""
        return f"oci://{self.registry}/{self.repository}{tag}@{digest}"


def oci_address(uri: str) -> OciAddress:
    """Read an address.

    Raises:
        ValueError: It is none, or names neither tag nor digest. The message repeats nothing: it may hold a password.
    """
    found = _ADDRESS.fullmatch(uri) if len(uri) <= MAX_ADDRESS else None
    if found is None or not (found["tag"] or found["digest"]):
        raise ValueError("expected oci://registry/repository:tag or oci://registry/repository@sha256:… without a login")
    return OciAddress(found["registry"], found["repository"], found["tag"], found["digest"])


def is_loopback(registry: str) -> bool:
    """Whether a registry is on this machine."""
    return _LOOPBACK.fullmatch(registry) is not None


class OciLogin(NamedTuple):
    """What one registry is shown."""

    user: str
    password: str

    def __repr__(self) -> str:
        """Hide the password from errors and logs."""
        return f"OciLogin(user={self.user!r})"

    @property
    def basic(self) -> str:
        """The value of ``Authorization``."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def parse_logins(text: str) -> Mapping[str, OciLogin]:
    """Read the logins of a ``config.json`` of Docker: of each registry its own.

    Raises:
        ValueError: It is none. The message repeats nothing of it.
    """
    try:
        entries = json.loads(text)["auths"].items()
        logins = {_registry_of(named): _login_of(entry) for named, entry in entries}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ValueError(
            'expected a config.json of Docker, {"auths": {"registry:5000": {"auth": "…"}}}, with a user and a password '
            "for each registry"
        ) from None
    if any("/" in registry for registry in logins):
        raise ValueError("expected a login for each registry, host:port, and none for a path within one")
    return logins


def _registry_of(named: str) -> str:
    """Return the host and port of a key; with its path, unless that is of an API that Docker writes there."""
    host, _, path = named.removeprefix("https://").removeprefix("http://").partition("/")
    return host if path.strip("/") in ("", "v1", "v2") else f"{host}/{path}"


def _login_of(entry: Mapping[str, str]) -> OciLogin:
    if "auth" not in entry:
        return OciLogin(entry["username"] + "", entry["password"] + "")
    user, colon, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
    if not colon:
        raise ValueError("it has no password")
    return OciLogin(user, password)


def parse_registries(text: str) -> frozenset[str]:
    """Read the setting ``UNDERSTUDY_OCI_PLAIN_HTTP``: registries by commas.

    Raises:
        ValueError: An entry is none.
    """
    names = frozenset(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9.\[\]:-]+", name):
            raise ValueError("expected host:port of registries, by commas")
    return names
