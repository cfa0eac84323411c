"""Message authentication codes (MACs) of values in the shared cache: only a proxy with the key writes valid ones."""

from enum import StrEnum
from hashlib import blake2b
from hmac import compare_digest
from math import ceil

from understudy.core.schema.outputs import MAX_CACHED_BYTES

TAG_BYTES = 16
"""128 bits: with a forged tag every microsecond, one passes in 10^25 years."""
EXPIRY_BYTES = 8
_HEAD_BYTES = TAG_BYTES + EXPIRY_BYTES
MAX_SEALED_BYTES = _HEAD_BYTES + MAX_CACHED_BYTES
_KEY_BYTES = 32
_KEY_ID_BYTES = 4


class Rejected(StrEnum):
    """Why a value that was found is not used."""

    INVALID_MAC = "invalid_mac"
    """It was changed or truncated, or is of another name or key, or never had a MAC."""
    EXPIRED = "expired"
    """It was written by a proxy, and kept or put back beyond its time to live."""


class CacheMac:
    """Seals values with a keyed BLAKE2b (RFC 7693) over the name they are stored under, their expiry and themselves.

    A sealed value is the tag, the second since 1970 at which the value expires (8 bytes, big-endian), and the value.

    Args:
        secret: What every proxy of the installation has and nothing else: at least 32 bytes of it should be random.
            Proxies with another secret neither read nor overwrite what these write, since its names end in another
            :attr:`suffix`.
    """

    __slots__ = ("_keyed", "suffix")

    def __init__(self, secret: bytes) -> None:
        key = blake2b(secret, digest_size=_KEY_BYTES, person=b"understudy cache").digest()
        # Copied for each value: the block with the key is then compressed once, and not a million times.
        self._keyed = blake2b(key=key, digest_size=TAG_BYTES, person=b"cached value")
        key_id = blake2b(key=key, digest_size=_KEY_ID_BYTES, person=b"cache key id").hexdigest()
        self.suffix = f":{key_id}"
        """What names of values end in: tells keys apart, and tells nothing about them."""

    def seal(self, name: str, value: bytes, expires_at: float) -> bytes:
        """Return what is stored under this name, which must hold no NUL; ``expires_at`` is in seconds since 1970."""
        body = ceil(expires_at).to_bytes(EXPIRY_BYTES) + value
        return self._tag_of(name, body) + body

    def open(self, name: str, sealed: bytes, now: float) -> bytes | Rejected:
        """Return the value that was sealed under this name, or why it is not one.

        Whatever is stored there, it raises nothing, and one of more than ``MAX_CACHED_BYTES`` is not even hashed.
        """
        if not _HEAD_BYTES <= len(sealed) <= MAX_SEALED_BYTES:
            return Rejected.INVALID_MAC
        if not compare_digest(self._tag_of(name, sealed[TAG_BYTES:]), sealed[:TAG_BYTES]):
            return Rejected.INVALID_MAC
        if int.from_bytes(sealed[TAG_BYTES:_HEAD_BYTES]) <= now:
            return Rejected.EXPIRED
        return sealed[_HEAD_BYTES:]

    def _tag_of(self, name: str, body: bytes) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(b"%b\0%b" % (name.encode(), body))
        return keyed.digest()
