"""Addresses of artifacts: the scheme says what reads them, and an operator says which stores an agent may ask."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*):")
_OBJECTS: Final = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9._-]{1,62})/(?P<key>[^?#]*)")
_STORE: Final = re.compile(r"s3://[a-z0-9][a-z0-9._-]{1,62}(/\S*)?|oci://[A-Za-z0-9.\[\]:-]+(/\S*)?")
_NO_PORT: Final = re.compile(r"^[^\[]*:(?![0-9]{1,5}$)")
REMOTE: Final = frozenset({"s3", "oci"})
"""Schemes of stores that are asked over the network."""


class ObjectAddress(NamedTuple):
    """An object, or all objects below a prefix, of a bucket."""

    bucket: str
    key: str
    """Without a slash at its end: of the object, or of the prefix."""
    is_prefix: bool
    """Whether it was written with a slash at its end, and so can be no object."""


def scheme_of(uri: str) -> str:
    """Return the scheme of an address; empty for a path."""
    found = _SCHEME.match(uri)
    return found[1] if found else ""


def holds_login(uri: str) -> bool:
    """Whether an address names a user or a password before its host; then no message may repeat it."""
    host = uri.partition("://")[2].partition("/")[0]
    is_cut = scheme_of(uri) in REMOTE and _NO_PORT.search(host) is not None  # by a slash in the password
    return "@" in host or is_cut


def object_address(uri: str) -> ObjectAddress:
    """Read ``s3://bucket/key``.

    Raises:
        ValueError: It is none. The message repeats nothing: an address may have a password in it.
    """
    found = _OBJECTS.fullmatch(uri)
    if found is None or "@" in found["bucket"]:
        raise ValueError("expected s3://bucket/key without credentials, query and fragment")
    key = found["key"]
    return ObjectAddress(found["bucket"], key.rstrip("/"), is_prefix=key.endswith("/") or not key)


def parse_stores(text: str) -> tuple[str, ...]:
    """Read the setting ``UNDERSTUDY_ARTIFACT_STORES``: beginnings of addresses, by commas.

    Raises:
        ValueError: An entry is no address of a store.
    """
    stores = tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())
    for store in stores:
        if "@" in store or not _STORE.fullmatch(store):
            raise ValueError("expected s3://bucket/prefix or oci://registry/repository, by commas, without credentials")
    return stores


def is_in(uri: str, stores: Sequence[str]) -> bool:
    """Whether an address lies in one of the stores: it is that, or begins with it and then has ``/``.

    After a repository may follow ``:`` or ``@``, too; after a registry that would be another port, or a login. A path
    that goes up (``..``) lies in none.
    """
    if ".." in uri.split("/"):
        return False
    return any(uri == store or (uri.startswith(store) and uri[len(store)] in _after(store)) for store in stores)


def _after(store: str) -> str:
    is_repository = scheme_of(store) == "oci" and "/" in store.partition("://")[2]
    return "/:@" if is_repository else "/"
