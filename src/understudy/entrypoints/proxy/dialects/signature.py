"""Signatures of TensorFlow's models: a version has one, which callers may name."""

from understudy.core.requests.caller_request import refuse_inputs
from understudy.core.routing.policy import ModelVersion

DEFAULT_SIGNATURE = "serving_default"
MAX_SHOWN = 64


def signature_of(version: ModelVersion) -> str:
    """Return the name of a version's signature."""
    return str(version.backend.get("signature_name", DEFAULT_SIGNATURE))


def require_signature(named: str | None, version: ModelVersion, pointer: str) -> None:
    """Refuse another signature than the version's; none, or an empty one, is that.

    Raises:
        InputInvalid: It is another one.
    """
    own = signature_of(version)
    if named not in (None, "", own):
        detail = f"version {version.version} has no signature {str(named)[:MAX_SHOWN]!r}, but {own!r}"
        raise refuse_inputs(pointer, detail)
