"""When a job runs next."""

from math import floor


def next_run(anchor: float, interval_seconds: float, now: float) -> float:
    """Return the first time after ``now`` of those that begin with ``anchor`` and lie ``interval_seconds`` apart.

    This grid stays where it is however long a run takes, so the schedule does not drift; times that passed during one
    are skipped, not made up for.

    Args:
        anchor: The time of the first run.
        interval_seconds: Above 0.
        now: On the same clock as ``anchor``.
    """
    if now < anchor:
        return anchor
    runs = floor((now - anchor) / interval_seconds)
    following = anchor + (runs + 1) * interval_seconds
    # The quotient may be rounded to just below a whole number: then this grid time is now, not after it.
    return following if following > now else anchor + (runs + 2) * interval_seconds
