"""Webhooks of a model registry are taken when they were signed with the secret, and lately."""

import hmac
from base64 import b64encode
from hashlib import sha256

import pytest

from understudy.core.rollout.sources.source_webhook import MAX_AGE_SECONDS, is_signed

NOW, SECRET = 1_790_000_000.0, "of both sides"
BODY = b'{"entity":"model_version_alias","action":"created"}'


def signed(body: bytes, *, at: float = NOW, secret: str = SECRET) -> dict[str, str]:
    """Return the headers that MLflow sends: see its ``webhooks/delivery.py``."""
    stamp, delivery = str(int(at)), "8f6c"
    digest = hmac.new(secret.encode(), f"{delivery}.{stamp}.".encode() + body, sha256).digest()
    return {
        "x-mlflow-signature": f"v1,{b64encode(digest).decode()}",
        "x-mlflow-delivery-id": delivery,
        "x-mlflow-timestamp": stamp,
    }


def test_a_signed_webhook_is_taken():
    assert is_signed(SECRET, signed(BODY), BODY, NOW)
    assert is_signed(SECRET, signed(BODY, at=NOW - MAX_AGE_SECONDS), BODY, NOW)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        signed(BODY, secret="another"),
        signed(b"another body"),
        signed(BODY, at=NOW - MAX_AGE_SECONDS - 1),
        signed(BODY, at=NOW + MAX_AGE_SECONDS + 1),
        signed(BODY) | {"x-mlflow-delivery-id": "another"},
        signed(BODY) | {"x-mlflow-timestamp": "²"},
        signed(BODY) | {"x-mlflow-timestamp": "1" * 4_300},
        signed(BODY) | {"x-mlflow-signature": "v1,é"},
        signed(BODY) | {"x-mlflow-signature": "v1,"},
        signed(BODY) | {"x-mlflow-signature": "v2," + signed(BODY)["x-mlflow-signature"][3:]},
        signed(BODY) | {"x-mlflow-delivery-id": "\u20ac"},
    ],
)
def test_any_other_is_not(headers: dict[str, str]):
    assert not is_signed(SECRET, headers, BODY, NOW)
