"""Flips of a policy under load: how long after each commit the old policy still answered."""

from collections.abc import Mapping, Sequence

from e2e.load import Answer

FLIP = (
    "UPDATE ServingPolicy SET champion_version = CASE champion_version WHEN $1 THEN $2 ELSE $1 END "
    "WHERE model_name = $3 RETURNING generation"
)


def lags_seconds(answers: Sequence[Answer], committed_at: Mapping[int, float]) -> list[float]:
    """Return for each flip how long after its commit the last request was sent that an older policy still answered.

    Args:
        answers: Of every request that was sent meanwhile; those that failed name no generation and count nothing.
        committed_at: The monotonic clock at each generation's commit, in seconds.
    """
    dated = [(a.sent, int(a.headers[b"x-policy-generation"])) for a in answers if a.status == 200]
    lags = []
    for generation, at in committed_at.items():
        stale = [sent for sent, by in dated if sent > at and by < generation]
        lags.append(max(stale, default=at) - at)
    return sorted(lags)
