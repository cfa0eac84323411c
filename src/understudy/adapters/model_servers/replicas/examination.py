"""Whether each model server by itself is ready, and why not: for ``doctor`` and ``version check``."""

import asyncio
import time
from collections.abc import Sequence

from understudy.adapters.model_servers.replicas.probes import PROBE_SECONDS, Prober
from understudy.adapters.model_servers.replicas.replica import Replica
from understudy.adapters.model_servers.status import CALL_FAILED, result_of, why_no_connection, why_probe_failed
from understudy.core.upstream.replicas import CallResult
from understudy.errors import BackendUnavailable
from understudy.ports.upstream.model_backend import ServerSeen


async def examine_replicas(
    replicas: Sequence[Replica], prober: Prober, timeout_seconds: float
) -> tuple[ServerSeen, ...]:
    """Probe all replicas at once, each for ``timeout_seconds`` at most, and return them in their order.

    A replica is probed twice: the first probe pays for the connection.
    """
    return tuple(await asyncio.gather(*(_examine(replica, prober, timeout_seconds) for replica in replicas)))


async def _examine(replica: Replica, prober: Prober, timeout_seconds: float) -> ServerSeen:
    first = await _timed(replica, prober, timeout_seconds)
    return first if first.problem else await _timed(replica, prober, timeout_seconds)


async def _timed(replica: Replica, prober: Prober, timeout_seconds: float) -> ServerSeen:
    began = time.monotonic()
    problem = await _why_not_ready(replica, prober, timeout_seconds)
    address = "" if replica.address is None else str(replica.address)
    return ServerSeen(replica.endpoint, time.monotonic() - began, problem, address)


async def _why_not_ready(replica: Replica, prober: Prober, timeout_seconds: float) -> str:
    """Return why a replica does not serve the version; empty when it says that it does."""
    try:
        is_ready = await prober.ask(replica, timeout_seconds)
    except BackendUnavailable as problem:
        return problem.detail
    except TimeoutError:
        return f"its name was not resolved within {timeout_seconds:g} s"
    except ValueError:
        return "its answer cannot be read"
    except CALL_FAILED as error:
        if result_of(error, None) is not CallResult.LATE:
            return why_probe_failed(error)
        return await _why_silent(replica, prober, timeout_seconds)
    return "" if is_ready else "it says that it does not serve the version"


async def _why_silent(replica: Replica, prober: Prober, timeout_seconds: float) -> str:
    if replica.is_connected:
        return f"it accepted the connection and did not answer within {timeout_seconds:g} s"
    why = ""
    try:
        # Without waiting for a connection: then gRPC tells why there is none, if it knows.
        await prober.ask(replica, PROBE_SECONDS, wait_for_ready=False)
    except CALL_FAILED as error:
        why = why_no_connection(error)
    except (BackendUnavailable, TimeoutError, ValueError):
        pass
    return why or f"no connection to it within {timeout_seconds:g} s"
