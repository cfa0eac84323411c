"""Webhooks of a model registry: whether one was signed with the secret, and lately.

A webhook only hastens a look, which reads the label anew. So what it says is not believed, and one that is sent again
does nothing twice; the signature keeps others from having the registries asked.

Source:
    MLflow 3, "Webhooks": ``X-MLflow-Signature: v1,<base64>`` of HMAC-SHA256 over ``<delivery id>.<timestamp>.<body>``.
"""

import hmac
import re
from base64 import b64decode
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

MAX_AGE_SECONDS: Final = 300
"""As MLflow's own example has it."""
SIGNATURE, DELIVERY, TIMESTAMP = "x-mlflow-signature", "x-mlflow-delivery-id", "x-mlflow-timestamp"
_VERSION: Final = "v1,"


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Whether a webhook has a signature by ``secret``, and is not older than it may be.

    Args:
        secret: What both sides know.
        headers: By their names in small letters.
        body: As it came.
        now: Seconds since the epoch.
    """
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
