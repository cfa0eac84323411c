"""When a proxy that reports no more counts as gone."""

PRESENT_SECONDS = 30.0
"""Longest silence of a proxy that is there; the view ``understudy_status`` has the same number."""


def is_present(age_seconds: float) -> bool:
    """Whether a proxy is there that was last seen so long ago."""
    return age_seconds <= PRESENT_SECONDS
