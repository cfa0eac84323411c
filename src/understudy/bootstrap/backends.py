"""How this process reaches model servers, and asks them whether they serve a version."""

from collections.abc import Callable
from functools import partial

from understudy.adapters.model_servers.connect import connect, examine
from understudy.core.rollout.state import WarmUpResult
from understudy.core.routing.policy import ModelVersion
from understudy.ports.model_backend import ModelBackend, ServerSeen
from understudy.rollout.warm_up import READY_SECONDS, warm_up
from understudy.settings import Settings


def connector_of(settings: Settings) -> Callable[..., ModelBackend]:
    """Return :func:`understudy.adapters.model_servers.connect.connect` with the operator's rules and authorities."""
    return partial(connect, rules=settings.endpoint_rules, ca_file=settings.backend_ca)


async def try_version(settings: Settings, version: ModelVersion) -> tuple[tuple[ServerSeen, ...], WarmUpResult | None]:
    """Ask each model server whether it serves the version, and if one does, make the example calls of a warm-up.

    Raises:
        BackendUnavailable: This process cannot call them at all: for want of a token or of a file.
    """
    backend = connector_of(settings)(version)
    try:
        servers = await examine(backend, READY_SECONDS)
        serves = any(not server.problem for server in servers)
        return servers, await warm_up(version, backend) if serves else None
    finally:
        await backend.close()
