"""A caller's client of the proxy's HTTP API: predict, batch, rank, receipts, outcomes; it needs no extra.

``Client`` waits, ``AsyncClient`` is awaited; both have the same methods, and raise the leaves of ``understudy.errors``
that the proxy's problems name, or :class:`ProxyAway`.
"""

from understudy.client.answers import (
    BatchAnswer,
    BestTreatment,
    Fallback,
    Member,
    Prediction,
    Ranking,
    Receipt,
    StoredOutcomes,
)
from understudy.client.asynchronous import AsyncClient
from understudy.client.given import Entity, Outcome, Treatment
from understudy.client.problems import ProxyAway
from understudy.client.retries import NO_RETRIES, Retries
from understudy.client.synchronous import Client

__all__ = [
    "NO_RETRIES",
    "AsyncClient",
    "BatchAnswer",
    "BestTreatment",
    "Client",
    "Entity",
    "Fallback",
    "Member",
    "Outcome",
    "Prediction",
    "ProxyAway",
    "Ranking",
    "Receipt",
    "Retries",
    "StoredOutcomes",
    "Treatment",
]
