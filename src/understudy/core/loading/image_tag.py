"""Tags of an image registry: how a version is called that a tag names, and whether two addresses name one image.

Source: OCI image-spec 1.1, pre-defined annotation keys.
"""

import re
from collections.abc import Mapping
from typing import Final

from understudy.core.loading.oci_address import OciAddress, oci_address

VERSION: Final = "org.opencontainers.image.version"
CREATED: Final = "org.opencontainers.image.created"
DIGEST_DIGITS: Final = 12
MAX_LABEL: Final = 80
"""Of what an annotation says, so that a digest fits behind it."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._+-]")


def digits_of(digest: str) -> str:
    """Return the first digits of ``sha256:`` and 64 hex digits."""
    return digest.removeprefix("sha256:")[:DIGEST_DIGITS]


def said_version(annotations: Mapping[str, str], digest: str) -> str:
    """Return what an image calls itself: its version, else the day that it was created, else digits of its digest."""
    said = annotations.get(VERSION) or annotations.get(CREATED, "")[: len("2026-11-28")]
    return _UNSAFE.sub("-", said)[:MAX_LABEL] or digits_of(digest)


def image_of(uri: str) -> OciAddress | None:
    """Return the address of an image whose digest is a part of it; ``None``: it is none."""
    try:
        address = oci_address(uri)
    except ValueError:
        return None
    return None if address.digest is None else address


def names_same_image(uri: str, pinned: str) -> bool:
    """Whether two addresses name the same content of the same repository, by whatever tag."""
    one, other = image_of(uri), image_of(pinned)
    return one is not None and other is not None and one._replace(tag=None) == other._replace(tag=None)


def tag_of(uri: str) -> str:
    """Return the tag of an address.

    Raises:
        ValueError: It is none, or does not move: it has a digest. The message repeats nothing of it.
    """
    address = oci_address(uri)
    if address.digest is not None or address.tag is None:
        raise ValueError("an address with a digest is always the same image: name a tag")
    return address.tag
