"""The steps of a validation: which ones there are, and what came of one."""

from typing import Final, NamedTuple


class Steps(NamedTuple):
    """What a validation has beside cases."""

    hard_calls: bool = False
    load_seconds: float = 0.0
    """How long the load lasts; 0: there is none."""
    most_rows: int = 128
    """Of a hard call: as many as proxies put into one (``UNDERSTUDY_BACKEND_BATCH_ROWS``)."""


NO_MORE_STEPS: Final = Steps()


class StepResult(NamedTuple):
    """One step of a validation, in words."""

    step: str
    passed: bool
    words: str
