"""Declared tests as people read them: how each stands, in a sentence."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rich.console import RenderableType

from understudy.entrypoints.cli.shared.rendering import Column, a_table
from understudy.entrypoints.cli.shared.times import day_of, when_words
from understudy.entrypoints.documents.policies import version_label
from understudy.experiments.listed_tests import ListedTest

COLUMNS = ("id", "model", "metric", "A", "B", "counts from", "declared by", "how it stands")


def standing_words(found: ListedTest) -> str:
    """Return how a test stands."""
    test = found.test
    if test is None:
        return found.problem
    if test.decision is not None:
        at = f"{day_of(test.decision.at)}, at look {len(test.looks)} of {test.plan.looks}"
        return f"decided {at}: {test.decision.sentence}"
    if found.record.ended_at is not None:
        by = f" by {found.record.ended_by}" if found.record.ended_by else ""
        return f"ended {day_of(found.record.ended_at)}{by}, without a decision"
    return f"open: {len(test.looks)} of {test.plan.looks} looks taken, {test.plan.entities_per_arm:,} entities an arm"


def cells_of(found: ListedTest, labels: Mapping[int, str], *, utc: bool) -> tuple[str, ...]:
    """Return a test below :data:`COLUMNS`; ``labels`` are the versions' by their ids."""
    record = found.record
    return (
        str(record.id),
        record.model_name,
        record.metric,
        version_label(record.champion_id, labels),
        version_label(record.challenger_id, labels),
        when_words(datetime.fromtimestamp(record.started_at, UTC), utc=utc),
        record.created_by,
        standing_words(found),
    )


def tests_text(found: Sequence[ListedTest], labels: Mapping[int, str], *, utc: bool) -> RenderableType:
    """Return tests as a table."""
    if not found:
        return "No test was declared yet. → understudy ab report MODEL --metric NAME --looks 5"
    columns = [Column(name, drop=drop) for name, drop in zip(COLUMNS, (0, 2, 0, 0, 0, 3, 4, 0), strict=True)]
    return a_table(columns, [cells_of(one, labels, utc=utc) for one in found])


def stopped_words(test_id: int, metric: str) -> str:
    """Return what the end of a test did."""
    return f"✔ test {test_id} of {metric} is over, and decides nothing; another one of it may be declared."
