"""The kinds of model servers, by the ``protocol`` of a version, and how a version's backend is connected."""

import os
from collections.abc import Mapping
from pathlib import Path

from understudy.adapters.model_servers.addresses import (
    DEFAULT_GRPC_CLIENT,
    Discovery,
    GrpcClient,
    Metadata,
    Tls,
    Wire,
)
from understudy.adapters.model_servers.http.invocations import InvocationsBackend
from understudy.adapters.model_servers.http.json_service import JsonServiceBackend
from understudy.adapters.model_servers.http.oip import OipHttpBackend
from understudy.adapters.model_servers.http.tfserving import TfServingHttpBackend
from understudy.adapters.model_servers.oip import OipBackend
from understudy.adapters.model_servers.replicas.hedged_call import NO_HEDGING, Hedging
from understudy.adapters.model_servers.replicas.replica_set import ReplicaSet
from understudy.adapters.model_servers.server_backend import ServerBackend
from understudy.adapters.model_servers.system_resolver import SystemResolver
from understudy.adapters.model_servers.tfserving import TfServingBackend
from understudy.adapters.model_servers.torchserve import TorchServeBackend
from understudy.core.routing.policy import ModelVersion
from understudy.core.upstream.endpoint_rules import NO_RULES, EndpointRules, is_listed, parse_rules, parse_target
from understudy.errors import BackendUnavailable
from understudy.ports.upstream.model_backend import ModelBackend, ServerSeen
from understudy.ports.upstream.model_description import ModelAt

TOKEN_PREFIX = "UNDERSTUDY_BACKEND_TOKEN"  # noqa: S105  # the name of a variable, not a secret
HOSTS_SUFFIX = "_HOSTS"
"""A variable of the token's name with this behind it lists the hosts that the token may go to."""
CA_VARIABLE = "UNDERSTUDY_BACKEND_CA"
CA_PREFIX = f"{CA_VARIABLE}_"
"""Variables that a version may name for the file with its authorities begin with it."""

_BACKENDS: Mapping[str, type[ServerBackend]] = {
    "tfserving": TfServingBackend,
    "torchserve": TorchServeBackend,
    "oip": OipBackend,
    "oip-http": OipHttpBackend,
    "tfserving-http": TfServingHttpBackend,
    "mlflow": InvocationsBackend,
    "json": JsonServiceBackend,
}
"""By protocol: a new kind of model server is one more row, and its own module."""
PROTOCOLS = frozenset(_BACKENDS)


def connect(
    version: ModelVersion,
    environment: Mapping[str, str] = os.environ,
    *,
    hedging: Hedging = NO_HEDGING,
    rules: EndpointRules = NO_RULES,
    ca_file: Path | None = None,
    grpc_client: GrpcClient = DEFAULT_GRPC_CLIENT,
    discovery: Discovery | None = None,
) -> ModelBackend:
    """Return the version's backend; its channels open at the first call.

    With ``hedging``, calls of a version with several replicas are hedged, if its server can cancel calls and it may
    be called twice: ``hedge`` among its ``backend`` settings says so, and if that is not there, ``deterministic`` does.

    With ``token_env`` among the version's ``backend`` settings, every call carries ``authorization: Bearer`` and the
    value of that environment variable. Its name must begin with ``UNDERSTUDY_BACKEND_TOKEN``: otherwise a user who may
    register a version could have any secret of this process sent to a server of theirs. Where a variable of that name
    with ``_HOSTS`` behind it is set, the token goes only to endpoints whose host it names: else the same user could
    have any model server's token sent to a server of theirs.

    With ``tls`` among the settings every call goes over TLS, to a server whose certificate is for the endpoint's own
    host name: ``true`` trusts the authorities in ``ca_file`` (the usual public ones without one),
    ``{"ca_env": "UNDERSTUDY_BACKEND_CA_CHURN"}`` those in the file that this variable names.

    With ``discover`` among the settings each address of an endpoint's name is a replica, which comes and goes as
    ``discovery`` finds it; without one, as the system's resolver does.

    Addresses are judged by ``rules`` when a channel is opened. Servers over gRPC are called by ``grpc_client``.

    Raises:
        BackendUnavailable: If no backend speaks the version's protocol, ``token_env`` names a variable that may not be
            sent or is not set, ``hedge`` or ``discover`` is neither true nor false, ``tls`` cannot be read or its file
            cannot.
    """
    kind = _BACKENDS.get(version.protocol)
    if kind is None:
        raise BackendUnavailable(f"this release speaks no protocol {version.protocol!r} to model servers")
    wire = wire_of(version, environment, rules=rules, ca_file=ca_file)
    wire = wire._replace(grpc_client=grpc_client, discovery=_discovery_of(version, discovery))
    return kind(version, hedging if _may_be_hedged(version) else NO_HEDGING, wire)


def wire_of(
    version: ModelVersion | ModelAt, environment: Mapping[str, str], *, rules: EndpointRules, ca_file: Path | None
) -> Wire:
    """Return what each call to a version's servers goes by: address rules, TLS, token; raises as :func:`connect`."""
    return Wire(rules, _tls_of(version, environment, ca_file), _metadata_of(version, environment))


def replicas_of(backend: ModelBackend) -> ReplicaSet | None:
    """Return the replicas behind a backend that :func:`connect` made, for what watches them."""
    return backend.replicas if isinstance(backend, ServerBackend) else None


async def examine(backend: ModelBackend, timeout_seconds: float) -> tuple[ServerSeen, ...]:
    """Return what each model server says behind a backend that :func:`connect` made: ``ReplicaSet.examine``."""
    replicas = replicas_of(backend)
    return () if replicas is None else await replicas.examine(timeout_seconds)


def _may_be_hedged(version: ModelVersion) -> bool:
    """Whether two replicas may work on one call: a version that answers differently each time may keep state."""
    asked = version.backend.get("hedge", version.deterministic)
    if not isinstance(asked, bool):
        raise BackendUnavailable("backend.hedge must be true or false")
    return asked


def _discovery_of(version: ModelVersion, discovery: Discovery | None) -> Discovery | None:
    asked = version.backend.get("discover", False)
    if not isinstance(asked, bool):
        raise BackendUnavailable("backend.discover must be true or false")
    return (discovery or Discovery(SystemResolver())) if asked else None


def _tls_of(version: ModelVersion | ModelAt, environment: Mapping[str, str], ca_file: Path | None) -> Tls | None:
    asked = version.backend.get("tls", False)
    if asked is False:
        return None
    named = asked.get("ca_env") if isinstance(asked, Mapping) and set(asked) == {"ca_env"} else None
    if asked is not True and not str(named).startswith(CA_PREFIX):
        raise BackendUnavailable(
            f'backend.tls must be true, false or {{"ca_env": "…"}} with a variable that begins with {CA_PREFIX}'
        )
    if named is None:
        return Tls(None if ca_file is None else _authorities_in(ca_file, CA_VARIABLE))
    path = environment.get(str(named))
    if not path:
        raise BackendUnavailable(f"the environment variable {named}, which backend.tls names, is not set")
    return Tls(_authorities_in(Path(path), str(named)))


def _authorities_in(path: Path, variable: str) -> bytes:
    try:
        found = path.read_bytes()
    except OSError as problem:
        raise BackendUnavailable(f"the file that {variable} names cannot be read: {problem.strerror}") from None
    if b"-----BEGIN CERTIFICATE-----" not in found:
        raise BackendUnavailable(f"the file that {variable} names holds no certificate")
    return found


def _metadata_of(version: ModelVersion | ModelAt, environment: Mapping[str, str]) -> Metadata:
    name = version.backend.get("token_env")
    if name is None:
        return ()
    if not str(name).startswith(TOKEN_PREFIX):
        raise BackendUnavailable(f"backend.token_env must name a variable that begins with {TOKEN_PREFIX}")
    token = environment.get(str(name))
    if not token:
        raise BackendUnavailable(f"the environment variable {name}, which backend.token_env names, is not set")
    if not token.isascii() or not token.isprintable():
        raise BackendUnavailable(f"the token in {name} has characters that no header may have, such as a line's end")
    _require_permitted(version, str(name), environment.get(f"{name}{HOSTS_SUFFIX}"))
    return (("authorization", f"Bearer {token}"),)


def _require_permitted(version: ModelVersion | ModelAt, name: str, hosts: str | None) -> None:
    """Refuse to send a token to a host that its operator did not name, where one named any."""
    if hosts is None:
        return
    try:
        permitted = parse_rules(hosts)
        others = [endpoint for endpoint in version.endpoints if not is_listed(parse_target(endpoint), permitted)]
    except ValueError as problem:
        raise BackendUnavailable(f"an endpoint, or {name}{HOSTS_SUFFIX}, cannot be used: {problem}") from None
    if others:
        raise BackendUnavailable(
            f"the endpoint {others[0]} may not have the token in {name}: {name}{HOSTS_SUFFIX} does not name its host"
        )
