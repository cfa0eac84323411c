"""Descriptors: raises the process's soft limit, and says how many of them callers' connections may take."""

import resource
from contextlib import suppress
from typing import NamedTuple

MAX_DESCRIPTORS = 1_048_576
"""The soft limit is raised to at most this: Linux' own bound of a process (``fs.nr_open``)."""
MAX_CONNECTIONS = 50_000
"""Most connections of a process, whatever its limit. Source: Envoy's best practices for an edge proxy."""
RESERVE = 192
"""Descriptors that callers leave to Postgres, Redis, model servers, spool, metrics port (32) and refusals (48).
A proxy of one model has some 40 open, 40 more after the spool's folder was lost, and one for each further replica."""
RESERVE_RATIO = 0.125
"""The same, as a share of a high limit: there many models have many replicas."""
MAX_REFUSED = 64


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one, which needs no privilege; return the limit that holds then.

    The usual soft limit of 1,024 is kept low for programs that call ``select``; the proxy's event loop does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # a system may refuse what its limits promise
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptor_limit()


def descriptor_limit() -> int:
    """Return how many descriptors the process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


class ConnectionLimits(NamedTuple):
    """How many connections a process holds at most."""

    connections: int
    per_address: int
    """Of one address (IPv6: of one network of 64 bits)."""
    refused: int
    """Connections that are refused, and open until their callers have read why; they are part of the reserve."""


def connection_limits(descriptors: int, connections: int | None, per_address: int | None) -> ConnectionLimits:
    """Return what a process may hold that may have so many descriptors.

    Args:
        descriptors: The process's limit. Below 384 of them, callers and everything else get one half each.
        connections: What the operator set, if anything.
        per_address: The same, of one address; by default half of all, so that one caller cannot keep the others out.
    """
    reserve = max(int(descriptors * RESERVE_RATIO), min(RESERVE, descriptors // 2))
    most = connections or max(1, min(descriptors - reserve, MAX_CONNECTIONS))
    return ConnectionLimits(most, min(most, per_address or max(1, most // 2)), max(1, min(MAX_REFUSED, reserve // 4)))
