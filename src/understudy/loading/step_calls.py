"""What the calls of a validation have in common: how long one may take, how large it may be, what a refusal says."""

from typing import Final

from understudy.core.routing.policy import ModelVersion
from understudy.errors import BackendUnavailable, BadAnswer
from understudy.ports.upstream.model_backend import ModelBackend

CALL_SECONDS: Final = 5.0
"""Of one call; longer where the version's own time-out is."""
READY_SECONDS: Final = 5.0
MAX_CALL_BYTES: Final = 1_048_576
"""Of the tensors of one call with several rows."""


def call_seconds(version: ModelVersion) -> float:
    """Return how long one call of a version may take."""
    return max(CALL_SECONDS, version.timeout_seconds)


def rows_at_once(backend: ModelBackend, most_rows: int) -> int:
    """Return how many rows proxies put into one call at most."""
    return min(most_rows, backend.rows_per_call or most_rows)


def refusal_words(problem: BackendUnavailable | BadAnswer) -> str:
    """Return why a call was refused, with the server's own words where it has some."""
    return f'{problem}; the server says: "{problem.said}"' if problem.said else str(problem)
