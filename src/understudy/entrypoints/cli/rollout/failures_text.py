"""What the failing calls of a rollout's challenger failed with, in one line."""

from rich.text import Text

from understudy.errors import leaf_errors
from understudy.ports.prediction_log.prediction_history import LoggedFailures
from understudy.rollout.status import MAX_FAILURE_ROWS

MAX_CODES = 3
"""That are named."""
_NAMES = {error.code: error.__name__ for error in leaf_errors()}


def failures_line(challenger: str, failures: LoggedFailures) -> list[Text]:
    """Return which errors there were, the most frequent first; nothing where no call failed."""
    if not failures.calls_by_code:
        return []
    codes = list(failures.calls_by_code.items())
    words = [f"{code}{f' {_NAMES[code]}' if code in _NAMES else ''} {calls:,}" for code, calls in codes[:MAX_CODES]]
    line = _opening(challenger).append(", ".join(words))
    more = len(codes) - MAX_CODES
    line.append(f" and {more} more code{'' if more == 1 else 's'}" if more > 0 else "")
    if not failures.is_whole:
        line.append(f", of each version's newest {MAX_FAILURE_ROWS:,} calls", "dim")
    return [line.append(f" → understudy explain {codes[0][0]}", "dim")]


def unknown_failures(challenger: str, why: str) -> Text:
    """Return that it is unknown what they failed with, and why."""
    return _opening(challenger).append(f"not known, {why}", "yellow")


def _opening(challenger: str) -> Text:
    return Text(f"failing calls of {challenger}: ")
