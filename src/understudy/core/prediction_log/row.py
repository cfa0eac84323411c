"""One row of ``PredictionLog``: one call at one version."""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import NamedTuple, TypeAlias

from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason


class Status(StrEnum):
    """How a call ended. Everything but ``OK`` and ``FALLBACK`` carries an error code and no prediction."""

    OK = "ok"
    FALLBACK = "fallback"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    BAD_ANSWER = "bad_answer"
    ERROR = "error"


COLUMNS = (
    "prediction_id",
    "predicted_at",
    "model_version_id",
    "assigned_version_id",
    "entity_id",
    "input_hash",
    "prediction",
    "score",
    "latency_ms",
    "latency_us",
    "role",
    "reason",
    "bucket",
    "policy_generation",
    "rollout_id",
    "cache_hit",
    "status",
    "error_code",
    "defaulted",
    "deadline_us",
    "slices",
    "inputs",
)
"""The columns of ``PredictionLog`` that the proxy writes, in the order of a spooled row."""


class PredictionRow(NamedTuple):
    """A row to be logged, in the order of :data:`COLUMNS`.

    ``model_version_id`` is the version that answered (or failed last), ``assigned_version_id`` the one of the route;
    they differ after a fallback. ``prediction`` is JSON text, ``null`` when there is none. ``predicted_at`` is seconds
    since the epoch, UTC. ``defaulted`` names the features that took their declared default. ``deadline_us`` is the time
    that the caller gave the call, in microseconds, where that is less than the champion has by itself. ``slices`` is
    JSON text of :mod:`understudy.core.prediction_log.call_slices`, ``None`` for a call without any. ``inputs`` is JSON
    text too, ``None`` for an entity that is not sampled. ``is_drawn`` is no column, and stands in the row's record
    alone: the entity was made for this call, since its caller named none.
    """

    prediction_id: str
    predicted_at: float
    model_version_id: int
    assigned_version_id: int
    entity_id: str
    input_hash: str
    prediction: bytes
    score: float | None
    latency_us: int
    role: Role
    reason: Reason
    bucket: int
    policy_generation: int
    rollout_id: int | None
    cache_hit: bool
    status: Status
    error_code: str | None
    defaulted: tuple[str, ...]
    deadline_us: int | None = None
    slices: bytes | None = None
    inputs: bytes | None = None
    is_drawn: bool = False


_Values: TypeAlias = tuple[
    str,
    float,
    int,
    int,
    str,
    str,
    bytes,
    float | None,
    int,
    Role,
    Reason,
    int,
    int,
    int | None,
    bool,
    Status,
    str | None,
    tuple[str, ...],
    int | None,
    bytes | None,
    bytes | None,
    bool,
]
row_of: Callable[[_Values], PredictionRow] = partial(tuple.__new__, PredictionRow)
"""Makes a row of its values, in their order, by C: the constructor, a function of Python, takes three times as long."""
