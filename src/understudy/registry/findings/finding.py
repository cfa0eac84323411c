"""One line of a checkup."""

from enum import StrEnum
from typing import NamedTuple

MAX_NAMED = 8
"""Names in one finding, such as those of model servers."""


class State(StrEnum):
    """How a finding is."""

    GOOD = "good"
    UNKNOWN = "unknown"
    """It cannot be seen from where the checkup runs."""
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """One line of a checkup."""

    name: str
    state: State
    what: str
    next_step: str = ""
    model_name: str | None = None
    """The model that it is about; ``None``: it is about the installation."""
    is_pressing: bool = False
    """Whether a warning is of what goes wrong at this moment, and pages of models tell of it, as of each problem. Other
    warnings are of how things were set up, and wait for daylight."""
