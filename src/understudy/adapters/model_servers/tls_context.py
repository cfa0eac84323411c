"""TLS to model servers, for what speaks it by Python's own ``ssl``."""

import re
import ssl
from functools import lru_cache

from understudy.adapters.model_servers.addresses import Tls
from understudy.errors import BackendUnavailable

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


@lru_cache(maxsize=64)
def client_context(tls: Tls, alpn: str | None = None) -> ssl.SSLContext:
    """Return how servers are trusted, and what is to be spoken with them (ALPN).

    Raises:
        BackendUnavailable: The authorities cannot be read.
    """
    context = _context_of(tls)
    if alpn is not None:
        context.set_alpn_protocols([alpn])
    return context


def _context_of(tls: Tls) -> ssl.SSLContext:
    if tls.authorities is None:
        return ssl.create_default_context()
    blocks = b"\n".join(_CERTIFICATE.findall(tls.authorities))
    if not blocks:  # without any, ssl would trust the public authorities
        raise BackendUnavailable("the authorities that backend.tls names cannot be read")
    try:
        return ssl.create_default_context(cadata=blocks.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise BackendUnavailable("the authorities that backend.tls names cannot be read") from None
