"""The screen of a rollout: its status, what happened, and its verdicts judged again."""

from collections.abc import Sequence

from rich.text import Text

from understudy.bootstrap.session import Session
from understudy.core.canary.slices.failing_slices import slice_words
from understudy.core.rollout.state import Phase
from understudy.entrypoints.cli.rollout.entities_text import entity_lines, unknown_entities
from understudy.entrypoints.cli.rollout.failures_text import failures_line, unknown_failures
from understudy.entrypoints.cli.rollout.slices_text import slice_lines, unknown_examples
from understudy.entrypoints.cli.rollout.status import status_view
from understudy.entrypoints.cli.rollout.text import by_hand_lines, replay_lines
from understudy.entrypoints.cli.shared.screens import Drawn
from understudy.entrypoints.documents.rollouts import by_hand_document, status_document
from understudy.errors import MigrationNeeded, RegistryUnavailable
from understudy.ports.registry.registry import AuditEntry
from understudy.rollout.manual_rollback import manual_rollback
from understudy.rollout.status import RolloutStatus, StatusReader, failures_of
from understudy.rollout.verdicts.entity_verdict import failing_counts, named_entities
from understudy.rollout.verdicts.replay import judged_again
from understudy.rollout.verdicts.slice_verdict import named_with_examples, worse_counts

_PAGE = "--html rollout.html"
HISTORY_SECONDS = 2.0
"""Longest wait for what the log adds to a status that is there without it."""


async def rollout_screen(
    session: Session, model_name: str, rollout_id: int | None, *, utc: bool, with_log: bool
) -> Drawn:
    """Return a rollout as it is shown, by default the model's newest one.

    Without the log it names no entity, no call and no failure of one: a key that may read rollouts may not read those.

    Raises:
        NotRegistered: There is no such rollout.
        RegistryUnavailable: Postgres does not answer in time.
    """
    reader = StatusReader(session.rollouts, session.windows, session.measure_outcome, model_name, rollout_id)
    status = await reader.read()
    by_hand = await manual_rollback(session.registry, status.view.record.state)
    screen = drawn(status, by_hand, await log_notes(session, status) if with_log else (), utc=utc)
    # A page is drawn from the database: who sees this with a key cannot have one.
    return screen if with_log else screen._replace(texts=[one for one in screen.texts if _PAGE not in str(one)])


def drawn(status: RolloutStatus, by_hand: AuditEntry | None, notes: Sequence[Text], *, utc: bool) -> Drawn:
    """Return the screen of a status that was read."""
    replays = judged_again(status.events)
    began_at = None if utc else status.view.record.state.started_at
    view = status_view(status, notes=[*by_hand_lines(by_hand), *notes], utc=utc)
    return Drawn(
        status_document(status, replays) | by_hand_document(by_hand), [*view, *replay_lines(replays, began_at)]
    )


async def log_notes(session: Session, status: RolloutStatus) -> list[Text]:
    """Return what only the log knows: which entities and slices a rollout waits because of, and what failed."""
    return [line for part in (_entities, _slices, _failures) for line in await part(session, status)]


async def _slices(session: Session, status: RolloutStatus) -> Sequence[Text]:
    """Say which slices a rollout waits because of, with calls that only the log knows."""
    counts = worse_counts(status.events) if status.view.record.state.phase is Phase.WAITING else ()
    if not counts:
        return []
    try:
        return slice_lines(await named_with_examples(session.history(HISTORY_SECONDS), status.view, counts))
    except (RegistryUnavailable, MigrationNeeded) as problem:
        return unknown_examples([slice_words(one) for one in counts], problem.detail)


async def _entities(session: Session, status: RolloutStatus) -> Sequence[Text]:
    """Say which entities a rollout waits because of; only the log knows their names."""
    counts = failing_counts(status.events) if status.view.record.state.phase is Phase.WAITING else ()
    try:
        return entity_lines(await named_entities(session.history(HISTORY_SECONDS), counts)) if counts else []
    except (RegistryUnavailable, MigrationNeeded) as problem:
        return [unknown_entities(problem.detail)]


async def _failures(session: Session, status: RolloutStatus) -> Sequence[Text]:
    """Say what the challenger's calls failed with, or why that is unknown: a status is worth showing without it."""
    challenger = status.view.record.state.challenger
    try:
        return failures_line(challenger, await failures_of(session.history(HISTORY_SECONDS), status.view))
    except (RegistryUnavailable, MigrationNeeded) as problem:
        return [unknown_failures(challenger, problem.detail)]
