"""Webhooks of a registry are taken when their sender knows the secret; those of MLflow are signed, and not old."""

import hmac
from base64 import b64encode
from hashlib import sha256

import pytest

from understudy.core.rollout.sources.source_webhook import MAX_AGE_SECONDS, WebhookSecret, is_proven

NOW, SECRET = 1_790_000_000.0, "of both sides"
MLFLOW, OCI = WebhookSecret("mlflow", SECRET), WebhookSecret("oci", SECRET)
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
    assert is_proven(MLFLOW, signed(BODY), BODY, NOW)
    assert is_proven(MLFLOW, signed(BODY, at=NOW - MAX_AGE_SECONDS), BODY, NOW)


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
    assert not is_proven(MLFLOW, headers, BODY, NOW)


@pytest.mark.parametrize("said", [f"Bearer {SECRET}", SECRET])
def test_a_webhook_of_an_image_registry_has_the_secret_in_the_header_that_its_operator_sets(said: str):
    assert is_proven(OCI, {"authorization": said}, b"", NOW)


@pytest.mark.parametrize("said", ["", "Bearer", "Bearer ", f"Bearer {SECRET} ", f"Basic {SECRET}", "é", "\u20ac"])
def test_any_other_header_is_refused(said: str):
    assert not is_proven(OCI, {"authorization": said}, b"", NOW)
    assert not is_proven(OCI, {}, b"", NOW)


def test_no_secret_of_one_kind_stands_for_the_other():
    assert not is_proven(MLFLOW, {"authorization": f"Bearer {SECRET}"}, BODY, NOW)
    assert not is_proven(OCI, signed(BODY), BODY, NOW)


def test_a_secret_is_in_no_log():
    assert SECRET not in repr(MLFLOW)
    assert SECRET not in f"{[OCI]}"
