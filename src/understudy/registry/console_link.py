"""Signatures of the console, and links that sign in there once: what the demo prints, and the console takes."""

import hmac
import json
from base64 import urlsafe_b64encode
from hashlib import sha256
from secrets import token_urlsafe

ID_BYTES = 18


def signing_secret(secret: str) -> bytes:
    """Return what a secret of the settings signs with."""
    return sha256(secret.encode()).digest()


def signature(secret: bytes, purpose: str, text: str) -> str:
    """Return the signature of a text; one for another purpose is another one."""
    digest = hmac.new(secret, f"{purpose}:{text}".encode(), sha256).digest()
    return urlsafe_b64encode(digest).decode().rstrip("=")


def console_link(secret: bytes, key_id: str, now: float) -> str:
    """Return what signs in once with a key, soon after ``now``."""
    payload = urlsafe_b64encode(json.dumps([key_id, token_urlsafe(ID_BYTES), now]).encode()).decode()
    return f"{payload}.{signature(secret, LINK, payload)}"


LINK = "link"
"""The purpose of a link's signature."""
