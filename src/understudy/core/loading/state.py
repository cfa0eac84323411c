"""States of a version at one model server, as TF Serving has them: each says what its agent does about it."""

from enum import StrEnum
from typing import Final

MAX_ATTEMPTS: Final = 5
MAX_COUNTED: Final = 1_000
"""The most attempts that a record can hold."""


class LoadingState(StrEnum):
    """What the agent last wrote of a version."""

    FETCHING = "FETCHING"
    """Its artifact is being copied to the stage and verified."""
    LOADING = "LOADING"
    """The server loads it, and then answers its cases."""
    AVAILABLE = "AVAILABLE"
    """The server has it, and its endpoint is there: both became true in one transaction."""
    QUIESCING = "QUIESCING"
    """The endpoint is gone, and proxies that have not read that may still call."""
    UNLOADING = "UNLOADING"
    """The server drops it."""
    END = "END"
    """The server does not have it any more."""
    ERROR = "ERROR"
    """An attempt failed; ``error`` says why."""


def next_attempt(attempt: int) -> int:
    """Return the number of the attempt after this one; beyond ``MAX_COUNTED`` they are not counted."""
    return min(attempt + 1, MAX_COUNTED)


def retry_seconds(attempt: int) -> float | None:
    """Return the pause after the failure of an attempt, the first being 1; ``None``: not tried again by itself."""
    return None if attempt >= MAX_ATTEMPTS else 2.0 ** (attempt - 1)
