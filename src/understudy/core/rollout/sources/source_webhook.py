"""Webhooks of registries: whether the sender of one knows the secret.

A webhook only hastens a look, which reads the label anew. So what it says is not believed, and one that is sent again
does nothing twice; the proof keeps others from having the registries asked.

Source:
    MLflow 3, "Webhooks": ``X-MLflow-Signature: v1,<base64>`` of HMAC-SHA256 over ``<delivery id>.<timestamp>.<body>``.
    Registries of images sign nothing and send a header that their operator chooses: ``notifications.endpoints.headers``
    of the distribution project, the "Auth Header" of Harbor.
"""

import hmac
import re
from base64 import b64decode
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from understudy.core.rollout.sources.source_file import OCI

MAX_AGE_SECONDS: Final = 300
"""As MLflow's own example has it."""
SIGNATURE, DELIVERY, TIMESTAMP = "x-mlflow-signature", "x-mlflow-delivery-id", "x-mlflow-timestamp"
_VERSION: Final = "v1,"


class WebhookSecret(NamedTuple):
    """What a registry and its source know."""

    kind: str
    secret: str

    def __repr__(self) -> str:
        """Hide it from errors and logs."""
        return f"WebhookSecret(kind={self.kind!r})"


def is_proven(known: WebhookSecret, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Whether a webhook's sender knows the secret.

    Args:
        known: The secret, and of what kind its registry is.
        headers: By their names in small letters.
        body: As it came.
        now: Seconds since the epoch.
    """
    if known.kind == OCI:
        said = headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(said.encode("latin-1", "replace"), known.secret.encode())
    return _is_signed(known.secret, headers, body, now)


def _is_signed(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Whether a webhook of MLflow has a signature by the secret, and is not older than it may be."""
    said, timestamp = headers.get(SIGNATURE, ""), headers.get(TIMESTAMP, "")
    if not said.startswith(_VERSION) or not re.fullmatch(r"[0-9]{1,12}", timestamp):
        return False
    if abs(now - int(timestamp)) > MAX_AGE_SECONDS:
        return False
    try:
        given = b64decode(said.removeprefix(_VERSION), validate=True)
        signed = f"{headers.get(DELIVERY, '')}.{timestamp}.".encode("latin-1") + body
    except ValueError:
        return False
    return hmac.compare_digest(hmac.new(secret.encode(), signed, sha256).digest(), given)
