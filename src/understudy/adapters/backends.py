"""Which adapter speaks to a version's model servers."""

import os
from collections.abc import Callable, Mapping

from understudy.adapters.grpc_race import NO_HEDGING, Hedging
from understudy.adapters.grpc_replicas import Metadata, ReplicaSet
from understudy.adapters.oip import OipBackend
from understudy.adapters.tfserving import TfServingBackend
from understudy.adapters.torchserve import TorchServeBackend
from understudy.core.policy import ModelVersion, Protocol
from understudy.errors import BackendUnavailable
from understudy.ports.model_backend import ModelBackend

TOKEN_PREFIX = "UNDERSTUDY_BACKEND_TOKEN"  # noqa: S105  # the name of a variable, not a secret

_BACKENDS: dict[Protocol, Callable[[ModelVersion, Metadata, Hedging], ModelBackend]] = {
    Protocol.TFSERVING: TfServingBackend,
    Protocol.TORCHSERVE: TorchServeBackend,
    Protocol.OIP: OipBackend,
}


def connect(
    version: ModelVersion, environment: Mapping[str, str] = os.environ, *, hedging: Hedging = NO_HEDGING
) -> ModelBackend:
    """Return the version's backend; its channels open at the first call.

    With ``hedging``, calls of a version with several replicas are hedged, if its server can break calls off and it may
    be asked twice: ``hedge`` among its ``backend`` settings says so, and if that is not there, ``deterministic`` does.

    With ``token_env`` among the version's ``backend`` settings, every call carries ``authorization: Bearer`` and the
    value of that environment variable. Its name must begin with ``UNDERSTUDY_BACKEND_TOKEN``: whoever may register a
    version could otherwise have any secret of this process sent to a server of theirs.

    Raises:
        BackendUnavailable: If ``token_env`` names a variable that may not be sent or is not set, or ``hedge`` is
            neither true nor false.
    """
    metadata = _metadata_of(version, environment)
    return _BACKENDS[version.protocol](version, metadata, hedging if _may_be_asked_twice(version) else NO_HEDGING)


def replicas_of(backend: ModelBackend) -> ReplicaSet | None:
    """Return the replicas behind a backend that :func:`connect` made, for whoever watches them."""
    return backend.replicas if isinstance(backend, OipBackend | TfServingBackend | TorchServeBackend) else None


def _may_be_asked_twice(version: ModelVersion) -> bool:
    """Whether two replicas may work on one call: a version that answers differently each time may keep state."""
    asked = version.backend.get("hedge", version.deterministic)
    if not isinstance(asked, bool):
        raise BackendUnavailable("backend.hedge must be true or false")
    return asked


def _metadata_of(version: ModelVersion, environment: Mapping[str, str]) -> Metadata:
    name = version.backend.get("token_env")
    if name is None:
        return ()
    if not str(name).startswith(TOKEN_PREFIX):
        raise BackendUnavailable(f"backend.token_env must name a variable that begins with {TOKEN_PREFIX}")
    token = environment.get(str(name))
    if not token:
        raise BackendUnavailable(f"the environment variable {name}, which backend.token_env names, is not set")
    return (("authorization", f"Bearer {token}"),)
