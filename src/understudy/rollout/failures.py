"""What a rollout's challenger failed with, call by call, from the log: windows count errors without their codes."""

from understudy.ports.prediction_history import FailureHistory, LoggedFailures, TrialAsked
from understudy.ports.rollout_store import RolloutView

MAX_ROWS = 50_000
"""Of each version, that are looked at: reading them takes 0.3 s where they are in memory; a deadline ends the rest."""
_CLOCKS_SECONDS = 60.0
"""Calls are stamped by proxies, the rollout by Postgres; its number tells which calls are its own."""


async def failures_of(history: FailureHistory, view: RolloutView) -> LoggedFailures:
    """Return what the challenger's calls failed with from the rollout's start to its end, or to this moment.

    Raises:
        RegistryUnavailable, MigrationNeeded: As the history.
    """
    record = view.record
    trial = TrialAsked(
        record.id,
        record.champion_id,
        record.challenger_id,
        since=record.state.started_at - _CLOCKS_SECONDS,
        until=(record.finished_at or view.read_at) + _CLOCKS_SECONDS,
    )
    return await history.failures(trial, MAX_ROWS)
